# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every scenario's tests may use."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """One run of a playbook: exit code, everything it printed, and the host's line of the recap."""

    rc: int
    output: str

    @property
    def recap(self) -> dict[str, int]:
        counts = re.findall(r"(\w+)=(\d+)", self.output.rpartition("PLAY RECAP")[2])
        return {name: int(count) for name, count in counts}


@pytest.fixture
def playbook(host) -> Callable[..., Run]:
    """Run one of the collection's playbooks against the test's host, as the scenario's converge step does."""

    def run(name: str, *arguments: str) -> Run:
        inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
        argv = [
            Path(sys.executable).parent / "ansible-playbook",
            "-i",
            inventory,
            "--limit",
            host.backend.get_hostname(),
            ROOT / "playbooks" / name,
            *arguments,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return Run(done.returncode, done.stdout + done.stderr)

    return run


@pytest.fixture
def whole(host) -> Callable[[str], bool]:
    """``whole(version)``: the host has this driver, loaded and for every kernel, and no trace of any other."""

    def check(version: str) -> bool:
        libraries = "/usr/lib/x86_64-linux-gnu"
        kernels = [path.split("/")[3] for path in host.check_output("ls -d /lib/modules/*/kernel").split()]
        assert f"  {version}  " in host.file("/proc/driver/nvidia/version").content_string
        assert host.check_output(f"ls {libraries} | grep -c 'libnvidia-ml.so.[0-9]*[.]'") == "1"
        assert host.file(f"{libraries}/libnvidia-ml.so.1").linked_to == f"{libraries}/libnvidia-ml.so.{version}"
        assert host.check_output("ls /lib/firmware/nvidia") == version
        assert host.check_output("ls -d /usr/src/nvidia-*") == f"/usr/src/nvidia-{version}"
        rows = host.check_output("dkms status").splitlines()
        assert len(rows) == len(kernels)
        assert all(row.startswith(f"nvidia/{version}, ") and row.endswith(": installed") for row in rows)
        for release in kernels:
            assert host.check_output("modinfo -k %s -F version nvidia", release) == version
        assert host.service("nvidia-persistenced").is_running
        assert version in host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
        assert json.loads(host.file("/var/lib/gpufleet/driver/journal.json").content_string)["phase"] == "done"
        return True

    return check
