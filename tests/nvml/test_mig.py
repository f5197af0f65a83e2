# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG rules of the simulated library, through the real binding."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, RESET_REQUIRED, IN_USE, INSUFFICIENT = "E3", "E4", "E6", 16, 19, "E23"

CREATE = """
def create(profile):
    instance = attempt(n.nvmlDeviceCreateGpuInstance, handle, profile)
    return instance if isinstance(instance, str) else n.nvmlGpuInstanceGetInfo(instance).id
"""


@pytest.mark.parametrize(
    ("machine", "profiles", "ids"),
    [
        # NVIDIA's MIG user guide, A100 40GB
        ("a100-sxm4-40-4", [19, 14, 5], [13, 5, 1]),
        ("a100-sxm4-40-4", [19, 19, 14, 9], [13, 11, 3, INSUFFICIENT]),
        ("a100-sxm4-40-4", [9, 19, 14, 19], [2, 7, 4, 8]),
        ("a100-sxm4-40-4", [14, 19, 19, 19, 19, 19], [5, 13, 7, 8, 9, 10]),
        # published transcripts
        ("hgx-h100-8", [19, 19, 19, 19, 19, 19, 19], [13, 11, 12, 7, 8, 9, 10]),
        ("hgx-h100-8", [9, 14], [2, 3]),
        ("rtx-pro-6000-4", [14, 14, 14, 14], [3, 4, 5, 6]),
        ("rtx-pro-6000-4", [5, 14, 14], [1, 5, 6]),
        ("a30-2", [14], [3]),
    ],
)
def test_driver_places_instances_as_the_transcripts_show(nvml_machine, nvml, machine, profiles, ids):
    code = f"{CREATE}\nn.nvmlDeviceSetMigMode(handle, 1)\nout['ids'] = [create(profile) for profile in {profiles}]"
    assert nvml(nvml_machine(machine), code)["ids"] == ids


def test_mode_off_offers_profiles_but_no_instances(nvml_machine, nvml):
    out = nvml(
        nvml_machine("hgx-h100-8"),
        """
out["mode"] = n.nvmlDeviceGetMigMode(handle)
out["max"] = n.nvmlDeviceGetMaxMigDeviceCount(handle)
out["profile"] = n.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0).name
out["create"] = attempt(n.nvmlDeviceCreateGpuInstance, handle, 19)
out["by_index"] = attempt(n.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0)
""",
    )
    assert out == {
        "mode": [0, 0],
        "max": 0,
        "profile": "MIG 1g.10gb",
        "create": NOT_SUPPORTED,
        "by_index": NOT_SUPPORTED,
    }


def test_card_without_mig_says_so(nvml_machine, nvml):
    out = nvml(
        nvml_machine("l40s-pcie-2"),
        """
out["mode"] = attempt(n.nvmlDeviceGetMigMode, handle)
out["set"] = attempt(n.nvmlDeviceSetMigMode, handle, 1)
out["profile"] = attempt(n.nvmlDeviceGetGpuInstanceProfileInfo, handle, 0)
""",
    )
    assert set(out.values()) == {NOT_SUPPORTED}


def test_placement_overlap_and_capacity(nvml_machine, nvml):
    out = nvml(
        nvml_machine("hgx-h100-8"),
        """
from ctypes import byref
def place(profile, start, size):
    placement = n.c_nvmlGpuInstancePlacement_t(start, size)
    instance = attempt(n.nvmlDeviceCreateGpuInstanceWithPlacement, handle, profile, byref(placement))
    return instance if isinstance(instance, str) else n.nvmlGpuInstanceGetInfo(instance).placement.start
n.nvmlDeviceSetMigMode(handle, 1)
out["before"] = n.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, 19)
out["placed"] = [place(9, 4, 4), place(9, 4, 4), place(14, 2, 2), place(14, 3, 2), place(19, 0, 1)]
out["after"] = {p: n.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, p) for p in (19, 14, 9, 0)}
out["media"] = [place(20, 1, 1), place(20, 0, 1)]
""",
    )
    assert out["before"] == 7
    assert out["placed"] == [4, INSUFFICIENT, 2, "E2", 0]
    assert out["after"] == {"19": 1, "14": 0, "9": 0, "0": 0}
    assert out["media"] == [1, INSUFFICIENT]


def test_compute_instances_devices_and_attributes(nvml_machine, nvml):
    out = nvml(
        nvml_machine("a100-sxm4-40-4"),
        """
n.nvmlDeviceSetMigMode(handle, 1)
gpu_instance = n.nvmlDeviceCreateGpuInstance(handle, 9)
first = n.nvmlGpuInstanceCreateComputeInstance(gpu_instance, 0)
second = n.nvmlGpuInstanceCreateComputeInstance(gpu_instance, 1)
out["third"] = attempt(n.nvmlGpuInstanceCreateComputeInstance, gpu_instance, 0)
device = n.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)
out["name"] = n.nvmlDeviceGetName(device)
out["uuid"] = n.nvmlDeviceGetUUID(device)
out["found"] = n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID(out["uuid"])) == out["uuid"]
out["ids"] = [n.nvmlDeviceGetGpuInstanceId(device), n.nvmlDeviceGetComputeInstanceId(device)]
attributes = n.nvmlDeviceGetAttributes(device)
out["attributes"] = [attributes.multiprocessorCount, attributes.gpuInstanceSliceCount,
                     attributes.computeInstanceSliceCount, attributes.memorySizeMB]
out["memory"] = n.nvmlDeviceGetMemoryInfo(device).total
out["destroy_parent"] = attempt(n.nvmlGpuInstanceDestroy, gpu_instance)
n.nvmlComputeInstanceDestroy(first)
out["hole"] = attempt(n.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0)
out["behind_hole"] = n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)) == out["uuid"]
n.nvmlComputeInstanceDestroy(second)
n.nvmlGpuInstanceDestroy(gpu_instance)
out["stale"] = attempt(n.nvmlGpuInstanceGetInfo, gpu_instance)
out["utilization"] = attempt(n.nvmlDeviceGetUtilizationRates, handle)
""",
    )
    assert out["third"] == INSUFFICIENT
    assert out["name"] == "NVIDIA A100-SXM4-40GB MIG 2c.3g.20gb"
    assert out["uuid"].startswith("MIG-") and out["found"]
    assert out["ids"] == [2, 1]
    assert out["attributes"] == [28, 3, 2, 19968]
    assert out["memory"] == 19968 * 1048576
    assert out["destroy_parent"] == f"E{IN_USE}"
    assert out["hole"] == NOT_FOUND and out["behind_hole"]
    assert out["stale"] == NOT_FOUND
    assert out["utilization"] == NOT_SUPPORTED


def test_4g_instance_has_no_3c_compute_profile(nvml_machine, nvml):
    out = nvml(
        nvml_machine("a100-sxm4-40-4"),
        """
n.nvmlDeviceSetMigMode(handle, 1)
gpu_instance = n.nvmlDeviceCreateGpuInstance(handle, 5)
info = [attempt(n.nvmlGpuInstanceGetComputeInstanceProfileInfo, gpu_instance, p, 0) for p in range(10)]
out["profiles"] = [i if isinstance(i, str) else i.instanceCount for i in info]
""",
    )
    assert out["profiles"] == [4, 2, NOT_SUPPORTED, 1] + [NOT_SUPPORTED] * 5 + ["E2"]


SET_ON = "out['status'] = n.nvmlDeviceSetMigMode(handle, 1)\nout['mode'] = n.nvmlDeviceGetMigMode(handle)"
MODE = "out['mode'] = n.nvmlDeviceGetMigMode(handle)"


def test_L2_ampere_in_use_stays_pending_until_reset(nvml_machine, nvml, sim_control):
    env = nvml_machine("a100-sxm4-40-4-in-use")
    assert nvml(env, SET_ON) == {"status": IN_USE, "mode": [0, 1]}
    assert "in use" in sim_control(env, "reset", "0", check=False).stderr
    sim_control(env, "fault", "clear", "in-use", "0")
    sim_control(env, "reset", "0")
    assert nvml(env, MODE)["mode"] == [1, 1]


def test_ampere_may_need_a_reset(nvml_machine, nvml, sim_control):
    env = nvml_machine("a100-sxm4-40-4")
    sim_control(env, "fault", "set", "value", "0", "mig.reset_required", "1")
    assert nvml(env, SET_ON) == {"status": RESET_REQUIRED, "mode": [0, 1]}
    sim_control(env, "reset", "all")
    assert nvml(env, MODE)["mode"] == [1, 1]


@pytest.mark.parametrize(("machine", "mode_after_boot"), [("a100-sxm4-40-4", [1, 1]), ("hgx-h100-8", [0, 0])])
def test_L1_what_outlives_a_reboot(nvml_machine, nvml, sim_control, machine, mode_after_boot):
    env = nvml_machine(machine)
    create = "n.nvmlDeviceCreateGpuInstance(handle, 19)"
    assert nvml(env, f"{SET_ON}\n{create}") == {"status": 0, "mode": [1, 1]}
    sim_control(env, "boot")
    sim_control(env, "load", "580.95.05", "open")
    free = "out['free'] = n.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, 19)"
    assert nvml(env, f"{MODE}\n{free}") == {"mode": mode_after_boot, "free": 7}


def test_hidden_client_blocks_destroy_and_shows_in_no_list(nvml_machine, nvml, sim_control):
    env = nvml_machine("hgx-h100-8")
    nvml(
        env,
        "n.nvmlDeviceSetMigMode(handle, 1)\n"
        "n.nvmlGpuInstanceCreateComputeInstance(n.nvmlDeviceCreateGpuInstance(handle, 9), 2)",
    )
    sim_control(env, "fault", "set", "in-use", "0", "77", "hidden", "2")
    out = nvml(
        env,
        """
gpu_instance = n.nvmlDeviceGetGpuInstanceById(handle, 2)
compute = n.nvmlGpuInstanceGetComputeInstanceById(gpu_instance, 0)
out["destroy"] = attempt(n.nvmlComputeInstanceDestroy, compute)
out["processes"] = n.nvmlDeviceGetComputeRunningProcesses(handle)
out["off"] = attempt(n.nvmlDeviceSetMigMode, handle, 0)
""",
    )
    assert out == {"destroy": f"E{IN_USE}", "processes": [], "off": IN_USE}


def test_nine_processes_race_for_seven_slices(nvml_machine, nvml):
    env = nvml_machine("hgx-h100-8")
    nvml(env, "n.nvmlDeviceSetMigMode(handle, 1)")
    racer = (
        "import pynvml as n, sys\n"
        "n.nvmlInit()\n"
        "handle = n.nvmlDeviceGetHandleByIndex(0)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "try:\n"
        "    print(n.nvmlGpuInstanceGetInfo(n.nvmlDeviceCreateGpuInstance(handle, 19)).id)\n"
        "except n.NVMLError as error:\n"
        "    print('E%d' % error.value)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", racer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )
        for _ in range(9)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.close()
    answers = [process.stdout.read().strip() for process in processes]
    for process in processes:
        process.stdout.close()
        process.wait(timeout=10)
    assert sorted(answer for answer in answers if answer != INSUFFICIENT) == sorted(map(str, range(7, 14)))
    assert answers.count(INSUFFICIENT) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_L16_changes_need_the_right_to_write(nvml_machine, nvml):
    with tempfile.TemporaryDirectory() as root:  # pytest's own folders are closed to others
        os.chmod(root, 0o755)
        env = nvml_machine("hgx-h100-8", root=Path(root))
        out = nvml(
            env,
            """
import os
os.setresuid(65534, 65534, 65534)
out["mode"] = attempt(n.nvmlDeviceGetMigMode, handle)
out["set"] = attempt(n.nvmlDeviceSetMigMode, handle, 1)
""",
        )
    assert out == {"mode": [0, 0], "set": NO_PERMISSION}
