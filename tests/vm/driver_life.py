# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m tests.vm.driver_life INVENTORY: the driver's life after site.yml, on the virtual machine.

An upgrade; a change that fails and is taken back; one through a power cut; the way back by rollback.yml. After each the
kernel is asked which driver there is.
"""

import subprocess
import sys
from pathlib import Path

from sim.lab.process import say
from sim.vm import qemu
from tests.vm import power_cuts

FIRST, NEXT, OTHER = "580.95.05", "580.105.08", "570.158.01"
FAULT = "/etc/gpufleet-sim/installer-fault"
#: What tells of the driver, one fact a line: loaded, the library that programs get, the module of each kernel, the
#: daemon, the transaction.
LOOK = r"""
sed -n 's/.*  \([0-9.]*\)  .*/loaded \1/p' /proc/driver/nvidia/version
readlink /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 | sed 's/libnvidia-ml.so./library /'
for kernel in /lib/modules/*/kernel; do
    echo "module $(/sbin/modinfo -k "$(basename "$(dirname "$kernel")")" -F version nvidia)"
done
echo "daemon $(systemctl is-active nvidia-persistenced)"
sudo sed -n 's/.*"phase": "\(.*\)".*/phase \1/p' /var/lib/gpufleet/driver/journal.json
"""


class Wrong(Exception):
    """The machine is not as it has to be."""


def main(inventory: Path) -> int:
    try:
        _upgrade(inventory)
        _failure(inventory)
        _power_cut(inventory)
        _rollback(inventory)
    except Wrong as error:
        say(f"error: {error}")
        return 1
    return 0


def _upgrade(inventory: Path) -> None:
    _is_whole(FIRST)
    _run(inventory, "upgrade.yml", NEXT)
    _is_whole(NEXT)
    say(f"upgrade.yml: {FIRST} -> {NEXT}")


def _failure(inventory: Path) -> None:
    _on_machine(f"echo die-in-files@{OTHER} | sudo tee {FAULT}")
    said = _run(inventory, "upgrade.yml", OTHER, code=2)
    _on_machine(f"sudo rm {FAULT}")
    for sentence in ("the installer failed", f"Driver {NEXT} is back"):
        if sentence not in said:
            raise Wrong(f"the failed change does not say: {sentence}")
    _is_whole(NEXT)
    say(f"upgrade.yml to {OTHER}: the installer died among the files; {NEXT} is back, and both reasons were told")


def _power_cut(inventory: Path) -> None:
    point = power_cuts.Point("while DKMS builds another version", f"/var/lib/dkms/nvidia/{OTHER}/build/*.o")
    if not power_cuts.cut(inventory, "upgrade.yml", point, *_version(OTHER)):
        raise Wrong("the power was not cut in the middle of the change")
    _run(inventory, "upgrade.yml", OTHER)
    _is_whole(OTHER)
    say(f"upgrade.yml through a power cut: {NEXT} -> {OTHER}")


def _rollback(inventory: Path) -> None:
    _run(inventory, "rollback.yml")
    _is_whole(NEXT)
    say(f"rollback.yml: {OTHER} -> {NEXT}")


def _version(version: str) -> tuple[str, str]:
    return "-e", f"nvidia_driver_version={version}"


def _run(inventory: Path, playbook: str, version: str = "", code: int = 0) -> str:
    """Run a playbook; what it said, in one line."""
    argv = power_cuts.command(inventory, playbook, *(_version(version) if version else ()))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    if done.returncode != code:
        raise Wrong(f"{playbook} {version} ended with {done.returncode} instead of {code}")
    return " ".join(done.stdout.split())


def _on_machine(script: str) -> str:
    return subprocess.run(qemu.ssh(script), capture_output=True, text=True, check=True).stdout


def _is_whole(version: str) -> None:
    found = set(_on_machine(LOOK).splitlines())
    wanted = {f"loaded {version}", f"library {version}", f"module {version}", "daemon active", "phase done"}
    if found != wanted:
        raise Wrong(f"driver {version} is not whole: {sorted(found - wanted)}, missing {sorted(wanted - found)}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
