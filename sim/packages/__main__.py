# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the lab's signed apt repository, unless it is there: `python -m sim.packages build [--output DIR]`."""

import argparse
import sys
from pathlib import Path

from sim.lab.process import LabError
from sim.packages import apt


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.packages", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    building = actions.add_parser("build", help="write the repository and its public key")
    building.add_argument("--output", type=Path, default=apt.DEFAULT, help="default: %(default)s, served by the mirror")
    options = parser.parse_args(argv)
    try:
        print(apt.build(options.output))
    except LabError as error:
        print(f"sim.packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
