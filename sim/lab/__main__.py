# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's command line: `python -m sim.lab up|down|status|ssh|exec|reboot|mirror`."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from sim.lab import cache, hosts, images, inventory, mirror, watcher
from sim.lab.process import LabError, say


def main() -> int:
    options = _parser().parse_args()
    try:
        if os.geteuid() != 0:
            raise LabError("lab hosts need root: run this with sudo")
        return options.run(options) or 0
    except LabError as error:
        say(f"error: {error}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim.lab", description="Simulated GPU hosts on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)

    up = commands.add_parser("up", help="start hosts; without names those of inventories/lab")
    up.add_argument("hosts", nargs="*", metavar="NAME[=MACHINE[@IMAGE]]")
    up.add_argument("--image", default="debian12", help=f"{', '.join(images.IMAGES)}, or any image of this machine")
    up.add_argument("--inventory", type=Path, metavar="FILE", help="write an inventory of these hosts")
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="remove hosts; without names all, and the network and mirror with them")
    down.add_argument("hosts", nargs="*", metavar="NAME")
    down.set_defaults(run=_down)

    commands.add_parser("status", help="which hosts there are").set_defaults(run=_status)

    ssh = commands.add_parser("ssh", help="log in to a host as its administrator, or run a command there")
    ssh.add_argument("host")
    ssh.add_argument("argv", nargs=argparse.REMAINDER)
    ssh.set_defaults(run=_ssh)

    execute = commands.add_parser("exec", help="run a command as root on a host, without SSH")
    execute.add_argument("host")
    execute.add_argument("argv", nargs=argparse.REMAINDER)
    execute.set_defaults(run=_exec)

    reboot = commands.add_parser("reboot", help="restart hosts and wait for SSH")
    reboot.add_argument("hosts", nargs="+", metavar="NAME")
    reboot.set_defaults(run=_reboot)

    serve = commands.add_parser("mirror", help="serve .cache/mirror to the hosts by HTTP")
    serve.add_argument("action", choices=["start", "stop"])
    serve.set_defaults(run=lambda options: mirror.start() if options.action == "start" else mirror.stop())

    image = commands.add_parser("image", help="build an image if it is not there yet")
    image.add_argument("name", choices=sorted(images.IMAGES))
    image.set_defaults(run=lambda options: print(images.ensure(options.name)))

    watch = commands.add_parser("watch")
    watch.add_argument("host")
    watch.set_defaults(run=lambda options: watcher.watch(options.host))
    return parser


def _row(name: str) -> dict[str, str]:
    present = hosts.listed()
    if name not in present:
        raise LabError(f"no host {name}; there are: {', '.join(present) or 'none'}")
    return present[name]


def _up(options: argparse.Namespace) -> None:
    with cache.locked():
        wanted = inventory.chosen(options.hosts, options.image, hosts.listed())
        hosts.create(wanted)
    hosts.up(wanted)
    if options.inventory:
        inventory.write(options.inventory, wanted)
    say(f"{len(wanted)} hosts up")


def _down(options: argparse.Namespace) -> None:
    if not options.hosts:
        mirror.stop()
    with cache.locked():
        hosts.down(options.hosts)


def _status(_options: argparse.Namespace) -> None:
    for name, row in sorted(hosts.listed().items()):
        print(f"{name:20} {row['state']:10} {row['address']:15} {row['image']:10} {row['machine']}")


def _ssh(options: argparse.Namespace) -> int:
    return subprocess.run(hosts.ssh(_row(options.host)["address"], *options.argv), check=False).returncode


def _exec(options: argparse.Namespace) -> int:
    _row(options.host)
    terminal = ["--interactive", "--tty"] if sys.stdin.isatty() else []
    argv = ["podman", "exec", *terminal, f"gpufleet-lab-{options.host}", *(options.argv or ["/bin/bash"])]
    return subprocess.run(argv, env=os.environ, check=False).returncode


def _reboot(options: argparse.Namespace) -> None:
    for name in options.hosts:
        hosts.reboot(name, _row(name))


if __name__ == "__main__":
    sys.exit(main())
