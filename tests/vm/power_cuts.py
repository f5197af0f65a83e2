# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m tests.vm.power_cuts INVENTORY: run site.yml on the virtual machine, cut its power on the way, three times.

Each run begins where the cut before has left the machine and gets further. Whoever calls this runs site.yml once more,
and that run must end well.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sim.lab.process import say
from sim.vm import qemu

ROOT = Path(__file__).parents[2]
#: How long a run may take to get to its point, in seconds.
DEADLINE = 1800.0


@dataclass(frozen=True)
class Point:
    """A moment of site.yml: `sign` is a pattern of files that are on the machine when it has come."""

    name: str
    sign: str


POINTS = (
    Point("while the first initramfs is rebuilt", "/var/tmp/mkinitramfs*"),
    Point("while the installer builds the modules", "/var/lib/dkms/nvidia/*/build/*.o"),
    Point("after the reboot", "/sys/module/nvidia"),
)


def main(inventory: Path) -> int:
    return 0 if all(cut(inventory, "site.yml", point) for point in POINTS) else 1


def cut(inventory: Path, playbook: str, point: Point, *arguments: str) -> bool:
    """Run a playbook, cut the power at this point of it and start the machine again; True when all of that happened."""
    log = ROOT / "build" / "vm" / f"cut-{point.name.replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        run = subprocess.Popen(command(inventory, playbook, *arguments), stdout=output, stderr=subprocess.STDOUT)
        reached = _wait(point, run)
        qemu.cut_power()
        run.wait()
    if not reached:
        say(f"{playbook} ended with {run.returncode} and was never seen {point.name}; see {log}")
        return False
    if run.returncode == 0:
        say(f"{playbook} ended well although the power was cut {point.name}; see {log}")
        return False
    say(f"power cut: {point.name}")
    qemu.start()
    qemu.write_inventory(inventory / "lab.yml")
    qemu.wait()
    return True


def command(inventory: Path, playbook: str, *arguments: str) -> list[str | Path]:
    """The command line that runs a playbook of the collection on the machine."""
    tool = Path(sys.executable).parent / "ansible-playbook"
    return [tool, "-i", inventory, ROOT / "playbooks" / playbook, *arguments]


def _wait(point: Point, run: subprocess.Popen) -> bool:
    """True when the point has come; False when the run ended before it did, or took too long.

    The machine itself looks out for it, so that the cut comes in the middle and not a login later. It does so with what
    bash has built in: each process that it would start costs an emulated machine more than the look.
    """
    look = f"compgen -G '{point.sign}' && exit 0; read -rt 0.3 -u 3"
    lookout = f"exec 3<> <(:); for ((turn = 0; turn < 100; turn++)); do {look}; done; exit 1"
    begin = time.monotonic()
    while run.poll() is None and time.monotonic() - begin < DEADLINE:
        if subprocess.run(qemu.ssh(lookout), capture_output=True, check=False).returncode == 0:
            return True
        time.sleep(1)  # no answer: it reboots
    return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
