# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The library under AddressSanitizer and UBSan: every recorded call and a full MIG life on every kind of card."""

import subprocess

import pytest

from tests.nvml.simulated import HERE, SOURCES, build

MIG_LIFE = """
import ctypes, sys
sys.argv[1:] = [%r]
sys.path.insert(0, %r)
import contextlib, io, replay
with contextlib.redirect_stdout(io.StringIO()):
    replay.main()
handle = n.nvmlDeviceGetHandleByIndex(0)
if attempt(n.nvmlDeviceSetMigMode, handle, 1) == 0:
    for _ in range(2):
        made = []
        for number in range(18):
            info = attempt(n.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
            if isinstance(info, str):
                continue
            instance = attempt(n.nvmlDeviceCreateGpuInstance, handle, info.id)
            while not isinstance(instance, str):
                computes = [attempt(n.nvmlGpuInstanceCreateComputeInstance, instance, p) for p in range(9)]
                made.append((instance, [c for c in computes if not isinstance(c, str)]))
                instance = attempt(n.nvmlDeviceCreateGpuInstance, handle, info.id)
        for index in range(8):
            device = attempt(n.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if not isinstance(device, str):
                n.nvmlDeviceGetName(device), n.nvmlDeviceGetUUID(device), n.nvmlDeviceGetAttributes(device)
        for instance, computes in made:
            for compute in computes:
                n.nvmlComputeInstanceGetInfo(compute)
                n.nvmlComputeInstanceDestroy(compute)
            n.nvmlGpuInstanceDestroy(instance)
        out["made"] = len(made)
"""


@pytest.fixture(scope="module")
def sanitized():
    build("asan")
    return SOURCES / "build" / "asan" / "libnvidia-ml.so"


@pytest.mark.parametrize("machine", ["a100-sxm4-40-4", "rtx-pro-6000-4", "hgx-h100-8", "mixed"])
def test_no_memory_error_and_no_undefined_behaviour(nvml_machine, nvml, sanitized, machine):
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    env = nvml_machine(machine, library=sanitized)
    # the interpreter's own allocations at exit are not leaks of the library
    env.update(LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0", PYTHONMALLOC="malloc")
    recording = str(HERE.parent / "fixtures" / "h200" / "nvml.json")
    out = nvml(env, MIG_LIFE % (recording, str(HERE)), timeout=60)
    assert machine == "mixed" or out["made"] > 0
