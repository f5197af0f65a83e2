# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of the simulated machine, as the real binding sees it."""

import subprocess

import pytest

from tests.nvml.simulated import SOURCES, build, run_nvml

DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = "NVMLError_DriverNotLoaded", "E15", "NVMLError_LibRmVersionMismatch"

ROWS_OF_ALL = """
def rows(index):
    gpu = attempt(n.nvmlDeviceGetHandleByIndex, index)
    return gpu if isinstance(gpu, str) else attempt(n.nvmlDeviceGetRemappedRows, gpu)
out["rows"] = [rows(index) for index in range(n.nvmlDeviceGetCount())]
"""
HEALTHY = [0, 0, 0, 0]


def failure(env):
    """How initialisation fails: the last line of the traceback."""
    process, _ = run_nvml(env, "")
    assert process.returncode == 1
    return process.stderr.strip().splitlines()[-1]


def test_M1_lost_gpu_fails_at_its_handle_and_leaves_the_others(nvml_machine, nvml):
    out = nvml(nvml_machine("hgx-h100-8-lost"), ROWS_OF_ALL)
    assert out["rows"] == [HEALTHY] * 3 + [GPU_IS_LOST] + [HEALTHY] * 4


def test_M2_gpu_lost_in_one_field_stays_lost(nvml_machine, nvml):
    code = """
gpu = n.nvmlDeviceGetHandleByIndex(5)
out["before"] = attempt(n.nvmlDeviceGetTemperature, gpu, 0)
out["field"] = attempt(n.nvmlDeviceGetRemappedRows, gpu)
out["after"] = attempt(n.nvmlDeviceGetTemperature, gpu, 0)
out["others"] = attempt(n.nvmlDeviceGetRemappedRows, handle)
"""
    out = nvml(nvml_machine("hgx-h100-8-lost-in-field"), code)
    assert out == {"before": 34, "field": GPU_IS_LOST, "after": GPU_IS_LOST, "others": HEALTHY}


@pytest.mark.parametrize(("machine", "code"), [("hgx-h100-8-hang-init", ""), ("hgx-h100-8-hang-field", ROWS_OF_ALL)])
def test_M4_hang_never_returns(nvml_machine, machine, code):
    with pytest.raises(subprocess.TimeoutExpired):
        run_nvml(nvml_machine(machine), code, timeout=1.5)


def test_hang_in_a_field_leaves_the_other_gpus(nvml_machine, nvml):
    out = nvml(nvml_machine("hgx-h100-8-hang-field"), "out['rows'] = n.nvmlDeviceGetRemappedRows(handle)")
    assert out["rows"] == HEALTHY


def test_crash_ends_the_process(nvml_machine):
    process, _ = run_nvml(nvml_machine("hgx-h100-8-crash"), ROWS_OF_ALL)
    assert process.returncode == -6  # SIGABRT


def test_hidden_calls_and_their_older_forms(nvml_machine, nvml):
    code = """
out["new"] = [attempt(n.nvmlDeviceGetMemoryInfo, handle, n.nvmlMemory_v2), attempt(n.nvmlSystemGetDriverBranch),
              attempt(n.nvmlDeviceGetGpuInstanceProfileInfo, handle, 0)]
out["old"] = [n.nvmlDeviceGetMemoryInfo(handle).total, n.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0, version=1).id]
"""
    out = nvml(nvml_machine("hgx-h100-8-old-library"), code)
    assert out == {"new": ["E13"] * 3, "old": [85899345920, 19]}


def test_library_built_without_symbols_is_the_same_to_the_binding(nvml_machine, nvml):
    build("hidden", "HIDE=nvmlSystemGetDriverBranch nvmlDeviceGetMemoryInfo_v2")
    library = SOURCES / "build" / "hidden" / "libnvidia-ml.so"
    code = """
out["new"] = [attempt(n.nvmlDeviceGetMemoryInfo, handle, n.nvmlMemory_v2), attempt(n.nvmlSystemGetDriverBranch)]
out["old"] = n.nvmlDeviceGetMemoryInfo(handle).total
"""
    assert nvml(nvml_machine("hgx-h100-8", library=library), code) == {"new": ["E13"] * 2, "old": 85899345920}


def test_driver_not_loaded(nvml_machine, sim_control):
    env = nvml_machine("l40s-pcie-2")
    sim_control(env, "unload")
    assert DRIVER_NOT_LOADED in failure(env)


def test_no_gpu_means_no_driver(nvml_machine, sim_control):
    env = nvml_machine("no-gpu")
    assert "No such device" in sim_control(env, "load", "580.95.05", "open", check=False).stderr
    assert DRIVER_NOT_LOADED in failure(env)


def test_library_and_module_of_different_versions(nvml_machine, sim_control):
    env = nvml_machine("l40s-pcie-2")
    sim_control(env, "unload")
    sim_control(env, "load", "570.195.03", "proprietary")
    assert VERSION_MISMATCH in failure(env)
    assert VERSION_MISMATCH in failure(nvml_machine("hgx-h100-8-version-mismatch"))


def test_version_comes_from_the_librarys_own_file_name(nvml_machine, nvml):
    env = nvml_machine("l40s-pcie-2", driver={"version": "570.195.03", "flavour": "proprietary"})
    code = (
        "out['v'] = [n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion(), n.nvmlSystemGetCudaDriverVersion()]"
    )
    assert nvml(env, code)["v"] == ["570.195.03", "12.570.195.03", 12080]


def test_forced_error_and_forced_value(nvml_machine, nvml, sim_control):
    env = nvml_machine("l40s-pcie-2")
    sim_control(env, "fault", "set", "error", "nvmlDeviceGetPowerUsage", "999", "1")
    sim_control(env, "fault", "set", "value", "0", "name", "Two Words")
    code = """
other = n.nvmlDeviceGetHandleByIndex(1)
out["power"] = [attempt(n.nvmlDeviceGetPowerUsage, handle), attempt(n.nvmlDeviceGetPowerUsage, other)]
out["name"] = [n.nvmlDeviceGetName(handle), n.nvmlDeviceGetName(other)]
"""
    assert nvml(env, code) == {"power": [34000, "E999"], "name": ["Two Words", "NVIDIA L40S"]}
    sim_control(env, "fault", "clear")
    assert nvml(env, code) == {"power": [34000, 34000], "name": ["NVIDIA L40S", "NVIDIA L40S"]}


def test_processes_are_listed_by_kind(nvml_machine, nvml):
    code = """
out["compute"] = [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(handle)]
out["graphics"] = n.nvmlDeviceGetGraphicsRunningProcesses(handle)
out["hidden"] = n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(1))
"""
    out = nvml(nvml_machine("a100-sxm4-40-4-in-use"), code)
    assert out == {"compute": [4242], "graphics": [], "hidden": []}


def test_unload_and_reset_refuse_a_gpu_in_use(nvml_machine, sim_control):
    env = nvml_machine("a100-sxm4-40-4-in-use")
    assert "in use" in sim_control(env, "unload", check=False).stderr
    assert "in use" in sim_control(env, "reset", "all", check=False).stderr
    assert sim_control(env, "reset", "2").returncode == 0


def test_unknown_fault_is_refused(nvml_machine, sim_control):
    process = sim_control(nvml_machine("no-gpu"), "fault", "set", "catch-fire", check=False)
    assert process.returncode == 1
    assert "not a fault" in process.stderr
