# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
import yaml

from ansible_collections.gpufleet.metal.plugins.module_utils import _gpu_facts, _nvml
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import collect, links
from ansible_collections.gpufleet.metal.plugins.modules import gpu_facts
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


def test_M6_M22_facts_run_no_command_whose_hang_or_language_could_matter(make_host):
    host = full_machine(make_host)
    gather(host, ALL)
    assert host.calls == []


# -- documentation -----------------------------------------------------------------------------------------------------

#: Their keys are data: kernel releases, module parameters, module names, paths.
KEYED_BY_DATA = {
    "driver.modules",
    "driver.parameters.asked",
    "driver.parameters.in_force",
    "holders.modules",
    "unreadable",
}
TYPES = {"str": str, "int": int, "float": float, "bool": bool, "dict": dict, "list": list}


def paths(value, path=""):
    """Every ``(dotted path, value)`` in nested facts; a list stands for its elements."""
    if path:
        yield path, value
    if isinstance(value, dict) and path not in KEYED_BY_DATA:
        for key, part in value.items():
            yield from paths(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for part in value:
            yield from (found for found in paths(part, path) if found[0] != path)


def documented(path):
    """RETURN's node that documents a path, or None: by ``contains``, or by ``C(key)`` in a description above it."""
    node = yaml.safe_load(gpu_facts.RETURN)["ansible_facts"]["contains"]["gpu"]
    for key in path.split("."):
        if key in node.get("contains", {}):
            node = node["contains"][key]
            assert node["description"], path
        elif f"C({key})" not in str(node["description"]):
            return None
    return node


def full_machine(make_host):
    release = "6.1.0-30-amd64"
    parent = "0000:00:01.0"
    real = f"/sys/devices/pci0000:00/{parent}/"
    card = {name.split("/")[-1]: entry for name, entry in gpu("0000:01:00.0", "nvidia").items()}
    return make_host(
        {
            **{f"{real}0000:01:00.0/{name}": entry for name, entry in card.items()},
            "/sys/bus/pci/devices/0000:01:00.0": Link(f"../../../devices/pci0000:00/{parent}/0000:01:00.0"),
            "/sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de",
            "/sys/bus/pci/devices/0000:05:00.0/class": "0x068000",
            "/proc/sys/kernel/osrelease": release,
            f"/lib/modules/{release}/kernel/x": "",
            f"/boot/config-{release}": 'CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n',
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Mon\n",
            "/usr/lib64/libnvidia-ml.so.580.95.05": "",
            f"/var/lib/dkms/nvidia/580.95.05/{release}/x86_64/module/nvidia.ko": "",
            "/var/lib/dkms/nvidia/580.95.05/source/dkms.conf": "",
            "/sys/module/nvidia/refcnt": "1\n",
            "/usr/lib/systemd/system/docker.service": "",
            "/proc/9/comm": "train\n",
            "/proc/9/fd/3": Link("/dev/nvidia0"),
        }
    )


def test_every_fact_from_files_is_documented(make_host):
    facts = gather(full_machine(make_host), ALL)
    found = dict(paths(facts))
    for path in ("pci.gpus.acs.enabled", "pci.nvswitches.driver", "driver.dkms.status", "holders.processes.devices"):
        assert path in found, f"{path}: the test's machine lacks it"
    assert [path for path in found if not documented(path)] == []


def test_every_nvml_field_is_documented():
    names = [f"nvml.gpus.{name}" for name in (*collect.names(_nvml.SUBSETS), "index", "state", "unsupported")]
    names += [f"nvml.gpus.nvlink.links.{key}" for key in links.empty(0)]
    names += [f"nvml.system.{name}" for name, _read in collect.SYSTEM_FIELDS]
    names += [f"topology.p2p.{name}" for name in links.RELATIONS[1:]] + ["topology.ancestor"]
    assert [name for name in names if not documented(name)] == []


def test_facts_have_the_documented_types(make_host):
    nodes = yaml.safe_load(gpu_facts.RETURN)["ansible_facts"]["contains"]["gpu"]["contains"]
    facts = gather(full_machine(make_host), ALL)
    assert set(facts) == set(nodes)
    for name, value in facts.items():
        assert value is None or isinstance(value, TYPES[nodes[name]["type"]]), name
    for name, value in facts["nvml"].items():
        assert value is None or isinstance(value, TYPES[nodes["nvml"]["contains"][name]["type"]]), name
