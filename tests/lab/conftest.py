# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One throw-away lab host for all tests of this folder; skipped where hosts cannot be made."""

import os
import shutil
import subprocess
import sys

import pytest

from sim.lab import cache, hosts

NAME = "lab-test-01"


class Guest:
    """A running host, spoken to as root without SSH."""

    def __init__(self, name):
        self.name = name

    def run(self, *argv):
        command = ["podman", "exec", f"gpufleet-lab-{self.name}", *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def output(self, *argv):
        done = self.run(*argv)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def python(self, script):
        return self.output("python3", "-c", script)


def _lab(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "sim.lab", *arguments],
        cwd=cache.ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


@pytest.fixture(scope="session")
def lab():
    """Runs `python -m sim.lab` with the given words."""
    return _lab


@pytest.fixture(scope="session")
def guest(lab):
    if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("mmdebstrap"):
        pytest.skip("lab hosts need root, podman and mmdebstrap")
    done = lab("up", f"{NAME}=hgx-h100-8")
    assert done.returncode == 0, done.stderr
    yield Guest(NAME)
    hosts.down([NAME])
