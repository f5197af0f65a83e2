# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _gpu_facts, _nvml
from tests.unit.hosts import Dir, Link

MINIMAL = list(_gpu_facts.MINIMAL)
ALL = list(_gpu_facts.SUBSETS)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["all"], ALL),
        ([], ALL),
        (["min"], MINIMAL),
        (["!all"], MINIMAL),
        (["!all", "!min"], []),
        (["!all", "!min", "pci"], ["pci"]),
        (["mig"], [*MINIMAL, "mig"]),
        (["!mig"], [name for name in ALL if name != "mig"]),
        (["all", "!kernel"], [name for name in ALL if name != "kernel"]),
        (["!all", "services"], [*MINIMAL, "services"]),
    ],
)
def test_subsets_follow_the_rules_of_setup(asked, expected):
    assert _gpu_facts.chosen(asked) == expected


def gather(host, subsets):
    return _gpu_facts.gather(host, subsets, None, 5, "/nonexistent/libnvidia-ml.so.1")


def test_an_empty_machine_has_all_facts_and_no_error(make_host):
    facts = gather(make_host(), ALL)
    assert set(facts) == {
        "subsets",
        "errors",
        "unreadable",
        "kernel",
        "pci",
        "nouveau",
        "driver",
        "nvml",
        "topology",
        "services",
        "holders",
    }
    assert facts["errors"] == []
    assert facts["unreadable"] == {}
    assert facts["nvml"]["gpus"] == []
    assert facts["nvml"]["code"] == 12
    assert facts["driver"]["match"] == "absent"


def test_only_what_was_asked_for_is_gathered(make_host):
    assert set(gather(make_host(), ["pci"])) == {"subsets", "errors", "unreadable", "pci"}


def gpu(address, driver):
    base = f"/sys/bus/pci/devices/{address}/"
    return {
        base + "vendor": "0x10de",
        base + "device": "0x2330",
        base + "class": "0x030200",
        base + "driver": Link(f"../../../bus/pci/drivers/{driver}"),
    }


def answer(*gpus):
    return {
        "reason": None,
        "code": None,
        "binding": "host",
        "system": {},
        "topology": None,
        "errors": [],
        "gpus": [{"index": 0, "state": state, "pci": {"address": address}, "processes": []} for address, state in gpus],
    }


def test_K9_gpus_on_the_bus_that_nvml_does_not_answer_for_are_named(make_host, monkeypatch):
    found = answer(("0000:01:00.0", "ok"), ("0000:02:00.0", "hung"))
    monkeypatch.setattr(_nvml, "read", lambda *_arguments: found)
    host = make_host(
        {**gpu("0000:01:00.0", "nvidia"), **gpu("0000:02:00.0", "nvidia"), **gpu("0000:03:00.0", "nvidia")}
    )
    assert gather(host, ["nvml"])["nvml"]["missing"] == ["0000:02:00.0", "0000:03:00.0"]


def test_B15_a_gpu_handed_to_a_virtual_machine_is_not_missing(make_host, monkeypatch):
    monkeypatch.setattr(_nvml, "read", lambda *_arguments: answer(("0000:01:00.0", "ok")))
    host = make_host({**gpu("0000:01:00.0", "nvidia"), **gpu("0000:02:00.0", "vfio-pci")})
    assert gather(host, ["nvml"])["nvml"]["missing"] == []


def test_a_process_on_a_gpu_gets_its_name_and_unit(make_host, monkeypatch):
    found = answer(("0000:01:00.0", "ok"))
    found["gpus"][0]["processes"] = [{"pid": 9, "type": "compute", "memory_mib": 1}]
    monkeypatch.setattr(_nvml, "read", lambda *_arguments: found)
    host = make_host({"/proc/9/comm": "train\n", "/proc/9/cgroup": "0::/user.slice/session-1.scope\n"})
    [process] = gather(host, ["processes"])["nvml"]["gpus"][0]["processes"]
    assert (process["name"], process["unit"], process["container"]) == ("train", "session-1.scope", None)


def test_nouveau_names_the_gpus_that_it_drives(make_host):
    host = make_host({"/sys/module/nouveau": Dir(), **gpu("0000:01:00.0", "nouveau")})
    assert gather(host, ["nouveau"])["nouveau"] == {"loaded": True, "builtin": False, "gpus": ["0000:01:00.0"]}
