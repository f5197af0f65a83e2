# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What outlives a reset, a driver reload and a boot; the control tool's answers."""

import json

import pytest

MODES = "out['modes'] = [n.nvmlDeviceGetPersistenceMode(handle), n.nvmlDeviceGetEccMode(handle)]"
LOAD = ("load", "580.95.05", "open")


def test_persistence_mode_lasts_until_the_driver_goes(nvml_machine, nvml, sim_control):
    env = nvml_machine("l40s-pcie-2")
    assert nvml(env, f"n.nvmlDeviceSetPersistenceMode(handle, 1)\n{MODES}")["modes"] == [1, [1, 1]]
    assert nvml(env, MODES)["modes"] == [1, [1, 1]]
    sim_control(env, "unload")
    sim_control(env, *LOAD)
    assert nvml(env, MODES)["modes"] == [0, [1, 1]]


@pytest.mark.parametrize("event", [[("reset", "0")], [("boot",), LOAD]])
def test_ecc_mode_waits_for_a_reset_or_boot(nvml_machine, nvml, sim_control, event):
    env = nvml_machine("l40s-pcie-2")
    assert nvml(env, f"n.nvmlDeviceSetEccMode(handle, 0)\n{MODES}")["modes"] == [0, [1, 0]]
    for arguments in event:
        sim_control(env, *arguments)
    assert nvml(env, MODES)["modes"] == [0, [0, 0]]


def test_reset_clears_instances_and_keeps_the_mode(nvml_machine, nvml, sim_control):
    env = nvml_machine("hgx-h100-8")
    nvml(env, "n.nvmlDeviceSetMigMode(handle, 1)\nn.nvmlDeviceCreateGpuInstance(handle, 0)")
    sim_control(env, "reset", "0000:1b:00.0")
    code = """
out["mode"] = n.nvmlDeviceGetMigMode(handle)
out["free"] = n.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, 0)
"""
    assert nvml(env, code) == {"mode": [1, 1], "free": 1}


def test_loading_twice_and_unloading_nothing_are_refused(nvml_machine, sim_control):
    env = nvml_machine("l40s-pcie-2")
    assert "loaded already" in sim_control(env, *LOAD, check=False).stderr
    sim_control(env, "unload")
    assert "not loaded" in sim_control(env, "unload", check=False).stderr


def test_reset_of_an_unknown_gpu_is_refused(nvml_machine, sim_control):
    assert "no such GPU" in sim_control(nvml_machine("l40s-pcie-2"), "reset", "7", check=False).stderr


def test_reset_of_a_lost_gpu_is_refused(nvml_machine, sim_control):
    env = nvml_machine("hgx-h100-8-lost")
    assert "lost" in sim_control(env, "reset", "3", check=False).stderr


def test_boot_brings_back_the_machines_own_faults_only(nvml_machine, sim_control):
    env = nvml_machine("hgx-h100-8-lost")
    sim_control(env, "fault", "set", "hide", "nvmlSystemGetDriverBranch")
    sim_control(env, "fault", "clear", "lost")
    sim_control(env, "boot")
    shown = json.loads(sim_control(env, "show").stdout)
    assert shown["faults"] == ["lost 3"]
    assert shown["driver"] is None
    assert len(shown["gpus"]) == 8
