# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the simulated driver packages.

python -m sim.runfile build --version 570.133.20 --output DIR
python -m sim.runfile options --version 535.129.03
"""

import argparse
import sys
from pathlib import Path

from sim.runfile.package import ARCHITECTURES, KNOWN_VERSIONS, BuildError, build, options


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m sim.runfile", description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    building = actions.add_parser("build", help="write the package and its .sha256sum")
    building.add_argument("--version", required=True, help=f"driver version, such as {', '.join(KNOWN_VERSIONS)}")
    building.add_argument("--output", required=True, type=Path)
    building.add_argument("--arch", default="x86_64", choices=sorted(ARCHITECTURES))
    building.add_argument("--nvml", type=Path, help="NVML library to pack (default: what `make -C sim/nvml` built)")
    building.add_argument(
        "--truncated", action="store_true", help="cut the package short, as a broken download does; the checksum stays"
    )
    listing = actions.add_parser("options", help="list the options the installer of a version knows")
    listing.add_argument("--version", required=True)
    arguments = parser.parse_args(argv)
    try:
        if arguments.action == "options":
            for short, name, kind in options(arguments.version):
                print(f"{'' if short == '-' else '-' + short:3} --{name} ({kind})")
        else:
            print(build(arguments.version, arguments.output, arguments.arch, arguments.nvml, arguments.truncated))
    except BuildError as error:
        print(f"sim.runfile: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
