# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tools in the package, over the simulated NVML library."""

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.nvml import simulated


@pytest.fixture(scope="session")
def tools(package, tmp_path_factory):
    """Folder with the payload of a package."""
    folder = tmp_path_factory.mktemp("tools") / "payload"
    run = [package("580.95.05"), "--silent", "-x", "--target", folder]
    subprocess.run(["sh", *map(str, run)], check=True, env={"PATH": os.environ["PATH"]})
    return folder


@pytest.fixture
def machine(tools, request):
    """machine(name) -> run(tool, *arguments) on a booted machine of that name"""
    simulated.build("all")

    def boot(name):
        # Not below pytest's own folder: nobody, whom the persistence daemon becomes, could not get there.
        folder = tempfile.TemporaryDirectory(prefix="gpufleet-")
        request.addfinalizer(folder.cleanup)
        root = Path(folder.name)
        root.chmod(0o755)
        env = {**os.environ, **simulated.place(root, name, simulated.SOURCES / "build" / "libnvidia-ml.so")}

        def run(tool, *arguments):
            argv = [sys.executable, str(tools / tool), *arguments]
            return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)

        run.root = root
        return run

    return boot


def test_list_names_every_gpu(machine):
    result = machine("l40s-pcie-2")("nvidia-smi", "-L")
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert [line.partition(" (UUID: GPU-")[0] for line in lines] == ["GPU 0: NVIDIA L40S", "GPU 1: NVIDIA L40S"]


def test_M1_lost_gpu_does_not_end_the_list(machine):
    lines = machine("hgx-h100-8-lost")("nvidia-smi", "-L").stdout.splitlines()
    assert len(lines) == 8
    assert sum(line.startswith("Unable to determine the device handle") for line in lines) == 1


@pytest.mark.parametrize(
    ("style", "lines"),
    [
        ("csv", ["index, name, memory.total [MiB]", "0, NVIDIA L40S, 46068 MiB"]),
        ("csv,noheader", ["0, NVIDIA L40S, 46068 MiB"]),
        ("csv,noheader,nounits", ["0, NVIDIA L40S, 46068"]),
    ],
)
def test_query_formats(machine, style, lines):
    run = machine("l40s-pcie-2")
    result = run("nvidia-smi", "--query-gpu=index,name,memory.total", f"--format={style}", "-i", "0")
    assert result.stdout.splitlines() == lines


def test_M18_unanswered_fields_are_in_brackets(machine):
    result = machine("l40s-pcie-2")("nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader")
    assert set(result.stdout.split("\n")) == {"[N/A]", ""}


def test_unknown_field_is_refused(machine):
    result = machine("l40s-pcie-2")("nvidia-smi", "--query-gpu=nope", "--format=csv")
    assert (result.returncode, result.stdout) == (2, 'Field "nope" is not a valid field to query.\n')


def test_topology_joins_bridged_pairs_only(machine):
    rows = [line.split("\t") for line in machine("a100-pcie-40-4")("nvidia-smi", "topo", "-m").stdout.splitlines()]
    assert rows[1] == ["GPU0", "X", "NV12", "SYS", "SYS"]
    assert rows[4] == ["GPU3", "SYS", "SYS", "NV12", "X"]


def test_topology_behind_nvswitches_is_all_to_all(machine):
    rows = [line.split("\t") for line in machine("hgx-h100-8")("nvidia-smi", "topo", "-m").stdout.splitlines()]
    assert rows[1][1:] == ["X"] + ["NV18"] * 7


def test_M16_library_and_driver_differ(machine):
    result = machine("hgx-h100-8-version-mismatch")("nvidia-smi", "-L")
    assert result.returncode == 18
    assert "Driver/library version mismatch" in result.stdout


def test_driver_not_loaded(machine):
    result = machine("no-gpu")("nvidia-smi")
    assert result.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in result.stdout


def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user, which takes root")
def test_persistence_daemon_holds_the_mode_while_it_runs(machine):
    run = machine("l40s-pcie-2")
    folder = run.root / "run/nvidia-persistenced"

    def mode():
        return run("nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader", "-i", "0").stdout.strip()

    result = run("nvidia-persistenced", "--user", "nobody")
    assert result.returncode == 0, result.stderr
    pid = int((folder / "nvidia-persistenced.pid").read_text())
    try:
        assert mode() == "Enabled"
        assert (folder / "socket").is_socket()
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Uid:\t{pwd.getpwnam('nobody').pw_uid}\t" in status
        assert run("nvidia-persistenced").returncode == 1
    finally:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: mode() == "Disabled")
    assert list(folder.iterdir()) == []


def test_persistence_daemon_needs_the_driver_and_a_known_user(machine):
    assert "Failed to query NVIDIA devices" in machine("no-gpu")("nvidia-persistenced").stderr
    assert "Failed to look up user ID" in machine("l40s-pcie-2")("nvidia-persistenced", "--user", "no-such").stderr
