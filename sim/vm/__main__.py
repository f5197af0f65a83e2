# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m sim.vm: the virtual machine with a real kernel."""

import argparse
import subprocess
import sys
from pathlib import Path

from sim.lab.process import LabError, say
from sim.vm import image, qemu


def main() -> int:
    options = _parser().parse_args()
    try:
        return options.run(options) or 0
    except LabError as error:
        say(f"error: {error}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim.vm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    commands.add_parser("image", help="build the disks if they are not there yet").set_defaults(
        run=lambda _: print(image.ensure())
    )
    up = commands.add_parser("up", help="start a machine that was never started before")
    up.add_argument("--inventory", type=Path, metavar="FILE", help="write an inventory of it")
    up.set_defaults(run=_up)
    on = commands.add_parser("on", help="start it again with the disks as they are")
    on.add_argument("--inventory", type=Path, metavar="FILE", help="write an inventory of it")
    on.set_defaults(run=_on)
    commands.add_parser("cut", help="cut its power").set_defaults(run=lambda _: qemu.cut_power())
    commands.add_parser("down", help="cut its power and drop its disks").set_defaults(run=lambda _: qemu.remove())
    commands.add_parser("status", help="does it run, and how").set_defaults(run=lambda _: print(qemu.describe()))
    ssh = commands.add_parser("ssh", help="log in as its administrator, or run a command there")
    ssh.add_argument("argv", nargs=argparse.REMAINDER)
    ssh.set_defaults(run=lambda options: subprocess.run(qemu.ssh(*options.argv), check=False).returncode)
    return parser


def _up(options: argparse.Namespace) -> None:
    qemu.create()
    _on(options)


def _on(options: argparse.Namespace) -> None:
    qemu.start()
    if options.inventory:
        qemu.write_inventory(options.inventory)
    qemu.wait()


if __name__ == "__main__":
    sys.exit(main())
