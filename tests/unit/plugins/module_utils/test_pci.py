# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _gpu_models, _pci
from tests.unit.hosts import Link

DEVICES = "/sys/bus/pci/devices/"


def function(address, device="0x2330", device_class="0x030200", above="", **values):
    """One PCI function as sysfs shows it: the real folder below /sys/devices and the link to it."""
    real = f"/sys/devices/pci0000:00/{above}{address}"
    files = {
        "vendor": "0x10de",
        "device": device,
        "class": device_class,
        "subsystem_vendor": "0x10de",
        "subsystem_device": "0x16c1",
        "current_link_width": "16",
        "max_link_width": "16",
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "numa_node": "0",
        **values,
    }
    tree = {
        f"{real}/{name}": value if isinstance(value, bytes | Link) else f"{value}\n" for name, value in files.items()
    }
    return {**tree, DEVICES + address: Link(f"../../../devices/pci0000:00/{above}{address}")}


def bridge(address, above="", **values):
    return function(address, "0xa000", "0x060400", above, vendor="0x8086", **values)


def config(control, length=0x200):
    """Configuration space with one ACS capability at 0x148, behind another capability."""
    data = bytearray(length)
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    data[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(data)


def test_a_machine_without_pci_has_no_gpus(make_host):
    assert _pci.read(make_host()) == {"gpus": [], "nvswitches": [], "iommu": {"enabled": False, "translation": None}}


def test_a_gpu_is_described_completely(make_host):
    host = make_host(
        {
            **bridge("0000:1a:01.0", max_link_width="16", max_link_speed="32.0 GT/s PCIe"),
            **function(
                "0000:1b:00.0",
                above="0000:1a:01.0/",
                driver=Link("../../../../bus/pci/drivers/nvidia"),
                iommu_group=Link("../../../../kernel/iommu_groups/27"),
            ),
            "/sys/class/iommu/dmar0": "",
            "/sys/kernel/iommu_groups/27/type": "identity\n",
        }
    )
    assert _pci.read(host) == {
        "gpus": [
            {
                "address": "0000:1b:00.0",
                "device": "0x2330",
                "subsystem": "0x10de:0x16c1",
                "class": "0x030200",
                "model": "H100 SXM5 80GB",
                "architecture": "hopper",
                "driver": "nvidia",
                "link": {"width": 16, "max_width": 16, "speed_gts": 32.0, "max_speed_gts": 32.0},
                "upstream": {"address": "0000:1a:01.0", "max_width": 16, "max_speed_gts": 32.0},
                "numa_node": 0,
                "iommu_group": 27,
            }
        ],
        "nvswitches": [],
        "iommu": {"enabled": True, "translation": False},
    }


def test_K9_only_gpus_count_as_gpus(make_host):
    host = make_host(
        {
            **function("0000:01:00.0", "0x20b5", "0x030200"),
            **function("0000:02:00.0", "0x2bb5", "0x030000"),
            **function("0000:02:00.1", "0x22e8", "0x040300"),
            **function("0000:03:00.0", "0x22a3", "0x068000"),
            **function("0000:04:00.0", "0x1ad8", "0x0c0330"),
            **function("0000:05:00.0", "0x1234", "0x030000", vendor="0x1234"),
            **function("0000:06:00.4", "0x26b9", "0x030200", physfn=Link("../0000:06:00.0")),
        }
    )
    found = _pci.read(host)
    assert [gpu["address"] for gpu in found["gpus"]] == ["0000:01:00.0", "0000:02:00.0"]
    assert found["nvswitches"] == [{"address": "0000:03:00.0", "device": "0x22a3", "driver": None}]


def test_K3_the_ports_limit_is_reported_beside_the_cards(make_host):
    host = make_host(
        {
            **bridge("0000:00:01.0", max_link_width="8", max_link_speed="8.0 GT/s PCIe"),
            **function(
                "0000:01:00.0",
                "0x20f1",
                above="0000:00:01.0/",
                current_link_width="8",
                current_link_speed="8.0 GT/s PCIe",
            ),
        }
    )
    gpu = _pci.read(host)["gpus"][0]
    assert gpu["link"] == {"width": 8, "max_width": 16, "speed_gts": 8.0, "max_speed_gts": 32.0}
    assert gpu["upstream"] == {"address": "0000:00:01.0", "max_width": 8, "max_speed_gts": 8.0}


def test_K1_the_idle_speed_is_told_apart_from_the_cards_own(make_host):
    gpu = _pci.read(make_host(function("0000:01:00.0", current_link_speed="2.5 GT/s PCIe")))["gpus"][0]
    assert (gpu["link"]["speed_gts"], gpu["link"]["max_speed_gts"]) == (2.5, 32.0)


@pytest.mark.parametrize("width", ["0", "63", "255", "-1", "x", ""])
@pytest.mark.parametrize("speed", ["Unknown", "Unknown speed", ""])
def test_K4_what_the_platform_hides_is_null_and_not_a_number(make_host, width, speed):
    host = make_host(function("0000:00:06.0", current_link_width=width, max_link_speed=speed, numa_node="-1"))
    gpu = _pci.read(host)["gpus"][0]
    assert gpu["link"] == {"width": None, "max_width": 16, "speed_gts": 32.0, "max_speed_gts": None}
    assert (gpu["numa_node"], gpu["iommu_group"], gpu["upstream"]) == (None, None, None)
    assert _pci.access_control(host, gpu["address"]) == []


def test_a_masked_sysfs_gives_nulls_and_no_text_none(make_host):
    base = DEVICES + "0000:01:00.0/"
    [gpu] = _pci.read(make_host({base + "vendor": "0x10de", base + "class": "0x030200"}))["gpus"]
    assert [gpu[key] for key in ("device", "subsystem", "model", "architecture", "driver")] == [None] * 5


@pytest.mark.parametrize(
    ("iommus", "kind", "translation"),
    [("dmar0", "DMA", True), ("dmar0", "DMA-FQ", True), ("dmar0", "identity", False), (None, None, None)],
)
def test_K7_pass_through_is_told_apart_from_translation_and_from_off(make_host, iommus, kind, translation):
    files = {f"/sys/class/iommu/{iommus}": "", "/sys/kernel/iommu_groups/0/type": f"{kind}\n"} if iommus else {}
    assert _pci.read(make_host(files))["iommu"] == {"enabled": bool(iommus), "translation": translation}


def test_K7_the_groups_of_the_gpus_count(make_host):
    files = {
        "/sys/class/iommu/dmar0": "",
        "/sys/kernel/iommu_groups/0/type": "identity\n",
        "/sys/kernel/iommu_groups/9/type": "DMA-FQ\n",
        **function("0000:01:00.0", iommu_group=Link("../../../kernel/iommu_groups/9")),
    }
    assert _pci.read(make_host(files))["iommu"]["translation"] is True


def test_B15_a_gpu_handed_to_a_virtual_machine_shows_its_driver(make_host):
    host = make_host(function("0000:01:00.0", driver=Link("../../../bus/pci/drivers/vfio-pci")))
    assert _pci.read(host)["gpus"][0]["driver"] == "vfio-pci"


@pytest.mark.parametrize(
    ("space", "enabled"),
    [
        (config(0x1D), ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]),
        (config(0x01), ["SrcValid"]),
        (config(0), []),
        (bytes(0x200), []),
        (bytes(0x40), None),
    ],
)
def test_K6_access_control_of_the_bridge_above(make_host, space, enabled):
    host = make_host({**bridge("0000:00:01.0", config=space), **function("0000:01:00.0", above="0000:00:01.0/")})
    assert _pci.access_control(host, "0000:01:00.0") == [{"address": "0000:00:01.0", "enabled": enabled}]


@pytest.mark.parametrize(
    ("device", "model", "architecture"),
    [
        ("0x1db6", "Tesla V100 PCIe 32GB", "volta"),
        ("0x1eb8", "Tesla T4", "turing"),
        ("0x20b0", "A100 SXM4 40GB", "ampere"),
        ("0x26b9", "L40S", "ada"),
        ("0x2335", "H200 SXM 141GB", "hopper"),
        ("0x2901", "B200", "blackwell"),
        ("0x3182", "B300", "blackwell"),
        ("0x23ff", None, None),
        ("0x2340", None, "hopper"),
        ("0xfff0", None, None),
    ],
)
def test_models_and_architectures(device, model, architecture):
    assert _gpu_models.model(device) == model
    assert _gpu_models.architecture(device) == architecture


def test_every_model_lies_in_the_range_of_a_chip_and_every_chip_has_rules():
    assert all(_gpu_models.architecture(hex(device)) for device in _gpu_models.MODELS)
    assert {chip[3] for chip in _gpu_models.CHIPS} == set(_gpu_models.DRIVER_RULES)


def test_the_ranges_of_chips_are_in_order_and_do_not_overlap():
    for before, after in zip(_gpu_models.CHIPS, _gpu_models.CHIPS[1:], strict=False):
        assert before[0] <= before[1] < after[0]


def test_B14_first_versions():
    assert _gpu_models.first_version("0x2335") == "550.90.07"
    assert _gpu_models.first_version("0x2901") == "570.133.20"
    assert _gpu_models.first_version("0x20b0") is None
