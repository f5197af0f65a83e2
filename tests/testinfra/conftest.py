# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every scenario's tests may use."""

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
