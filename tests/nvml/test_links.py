# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink, fabric, topology and PCIe of the simulated machines."""

import pytest

MATRICES = """
import collections
gpus = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
def field(gpu, *key):
    answer = n.nvmlDeviceGetFieldValues(gpu, [key])[0]
    return "E%d" % answer.nvmlReturn if answer.nvmlReturn else answer.value.uiVal
out["links"] = [field(gpu, 91, 0) for gpu in gpus]
out["switch_links"] = field(handle, 147, 0)
out["first"] = [field(handle, 165, 0), field(handle, 164, 0), field(handle, 166, 0)]
count = out["links"][0] if isinstance(out["links"][0], int) else 0
remotes = [n.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId for link in range(count)]
out["remotes"] = collections.Counter(remotes)
out["errors"] = [attempt(n.nvmlDeviceGetNvLinkErrorCounter, handle, 0, counter) for counter in range(4)]
out["nvlink"] = [[attempt(n.nvmlDeviceGetP2PStatus, a, b, 2) for b in gpus] for a in gpus]
out["topology"] = [[attempt(n.nvmlDeviceGetTopologyCommonAncestor, a, b) for b in gpus] for a in gpus]
"""


def test_switch_machine(nvml_machine, nvml):
    out = nvml(nvml_machine("hgx-h100-8"), MATRICES)
    assert out["links"] == [18] * 8
    assert out["switch_links"] == 18
    assert out["first"] == [1, 26562, 6]
    assert sorted(out["remotes"].values()) == [4, 4, 5, 5]
    assert "00000000:07:00.0" in out["remotes"]
    assert out["errors"] == [0] * 4
    assert out["nvlink"][0] == [5, 0, 0, 0, 0, 0, 0, 0]
    assert out["topology"][0] == ["E3", 40, 40, 40, 50, 50, 50, 50]


def test_bridged_pairs(nvml_machine, nvml):
    out = nvml(nvml_machine("a100-pcie-40-4"), MATRICES)
    assert out["links"] == [12] * 4
    assert out["switch_links"] == 0
    assert out["remotes"] == {"00000000:65:00.0": 12}
    assert out["nvlink"] == [[5, 0, 5, 5], [0, 5, 5, 5], [5, 5, 5, 0], [5, 5, 0, 5]]


def test_mesh_without_switch(nvml_machine, nvml):
    out = nvml(nvml_machine("a100-sxm4-40-4"), MATRICES)
    assert sorted(out["remotes"].values()) == [4, 4, 4]
    assert out["nvlink"][0] == [5, 0, 0, 0]


def test_card_without_nvlink(nvml_machine, nvml):
    out = nvml(nvml_machine("l40s-pcie-2"), MATRICES)
    assert out["links"] == ["E3", "E3"]
    assert out["switch_links"] == "E3"
    assert out["errors"] == ["E3"] * 4


def test_mig_mode_ends_nvlink_between_gpus(nvml_machine, nvml):
    out = nvml(nvml_machine("a100-sxm4-40-4"), "n.nvmlDeviceSetMigMode(handle, 1)\n" + MATRICES)
    assert out["nvlink"][0] == [5, 5, 5, 5]
    assert out["nvlink"][1] == [5, 5, 0, 0]


def test_card_in_a_narrow_slow_slot(nvml_machine, nvml):
    code = """
def link(index):
    gpu = n.nvmlDeviceGetHandleByIndex(index)
    names = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth",
             "GpuMaxPcieLinkGeneration")
    return [getattr(n, "nvmlDeviceGet" + name)(gpu) for name in names]
out["links"] = [link(1), link(2)]
"""
    assert nvml(nvml_machine("a100-pcie-40-4"), code)["links"] == [[4, 16, 4, 16, 4], [3, 8, 3, 16, 4]]


FABRIC = """
from ctypes import byref
info = n.c_nvmlGpuFabricInfo_v3_t()
n.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
out["fabric"] = [info.state, info.status, info.cliqueId, bytes(info.clusterUuid).hex(), info.healthSummary]
"""


@pytest.mark.parametrize(
    ("machine", "state", "health"),
    [
        ("hgx-h100-8", 3, 0),
        ("hgx-b200-8", 3, 1),
        ("hgx-h100-8-fabric-in-progress", 2, 0),
        ("a100-sxm4-40-4", 0, 0),
    ],
)
def test_J7_fabric_states(nvml_machine, nvml, machine, state, health):
    assert nvml(nvml_machine(machine), FABRIC)["fabric"] == [state, 0, 0, "00" * 16, health]


def test_fabric_info_refuses_an_unknown_version(nvml_machine, nvml):
    code = """
from ctypes import byref
info = n.c_nvmlGpuFabricInfo_v3_t()
info.version = 0x09000028
out["answer"] = attempt(n.nvmlDeviceGetGpuFabricInfoV, handle, byref(info))
"""
    assert nvml(nvml_machine("hgx-h100-8"), code)["answer"] == "E25"
