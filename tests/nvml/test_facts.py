# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts over the simulated library, with the real binding; and gpu_facts as Ansible runs it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim import machine
from tests.gpu import smi

REPOSITORY = Path(__file__).parents[2]
COLLECTIONS = REPOSITORY / ".ansible" / "collections"
ALL = ("nvml", "topology", "mig", "processes")
READ = """
import json, resource, sys
import pynvml
from ansible_collections.gpufleet.metal.plugins.module_utils import _nvml
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import binding

option = binding.pack(open(pynvml.__file__, "rb").read())
found = _nvml.read(Host(), option, float(sys.argv[1]), sys.argv[2].split(",") if sys.argv[2] else [])
print(json.dumps(dict(found, child_kib=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)))
"""
CREATE_MIG = """
import ctypes
import pynvml as n

n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
for profile in (9, 14):
    instance = n.nvmlDeviceCreateGpuInstance(gpu, profile)
    info = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 2 if profile == 9 else 1, 0)
    n.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
"""


def read(env, timeout=30, subsets=ALL):
    """A reading in a process of its own: the library cannot be exchanged within one."""
    process = subprocess.run(
        [sys.executable, "-c", READ, str(timeout), ",".join(subsets)],
        env={**os.environ, **env, "PYTHONPATH": str(COLLECTIONS)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return json.loads(process.stdout)


def states(found):
    return [gpu["state"] for gpu in found["gpus"]]


@pytest.mark.parametrize(
    "name",
    ["hgx-h100-8", "a100-pcie-40-4", "a100-sxm4-40-4", "l40s-pcie-2", "a30-2", "rtx-pro-6000-4", "hgx-b200-8", "mixed"],
)
def test_identity_agrees_with_the_machines_description(nvml_machine, name):
    description = machine.load(name)
    found = read(nvml_machine(name))
    assert found["errors"] == []
    assert states(found) == ["ok"] * len(description["gpus"])
    for fact, gpu in zip(found["gpus"], description["gpus"], strict=True):
        assert (fact["name"], fact["uuid"], fact["serial"]) == (gpu["name"], gpu["uuid"], gpu["serial"])
        assert (fact["pci"]["address"], fact["pci"]["device"], fact["minor"]) == (
            gpu["pci"],
            gpu["device_id"],
            gpu["minor"],
        )


def test_an_nvswitch_machine(nvml_machine):
    found = read(nvml_machine("hgx-h100-8"))
    gpu = found["gpus"][0]
    assert len(gpu["nvlink"]["links"]) == gpu["nvlink"]["switch_links"] == 18
    assert {link["remote"]["type"] for link in gpu["nvlink"]["links"]} == {"switch"}
    assert gpu["fabric"]["state"] == "completed"
    assert gpu["fabric"]["cluster_uuid"] == "00000000-0000-0000-0000-000000000000"
    matrix = found["topology"]["p2p"]["nvlink"]
    assert [row.count("ok") for row in matrix] == [7] * 8
    assert [matrix[index][index] for index in range(8)] == [None] * 8
    assert gpu["architecture"] == "hopper"
    assert gpu["affinity"]["memory_nodes"] == [0]


def test_a_pcie_machine_with_bridged_pairs(nvml_machine):
    found = read(nvml_machine("a100-pcie-40-4"))
    nvlink = found["topology"]["p2p"]["nvlink"]
    assert (nvlink[0][1], nvlink[2][3]) == ("ok", "ok")
    assert nvlink[0][2] != "ok"
    assert found["topology"]["ancestor"][0][3] == "system"
    assert {link["remote"]["address"] for link in found["gpus"][0]["nvlink"]["links"]} == {
        found["gpus"][1]["pci"]["address"]
    }


def test_K3_the_card_in_the_narrow_slot(nvml_machine):
    links = [gpu["pci"]["link"] for gpu in read(nvml_machine("a100-pcie-40-4"))["gpus"]]
    assert [link["width"] for link in links] == [16, 16, 8, 16]


def test_a_machine_without_nvlink_says_so(nvml_machine):
    gpu = read(nvml_machine("l40s-pcie-2"))["gpus"][0]
    assert gpu["nvlink"]["links"] is None
    assert "nvlink.links" in gpu["unsupported"]
    assert (gpu["mig"]["enabled"], gpu["mig"]["profiles"]) == (None, None)


def test_fabric_states_are_words(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-fabric-in-progress"))
    assert {gpu["fabric"]["state"] for gpu in found["gpus"]} == {"in_progress"}


def test_mig_profiles_fit_the_published_ones(nvml_machine):
    profiles = read(nvml_machine("a100-pcie-40-4"))["gpus"][0]["mig"]["profiles"]
    by_name = {profile["name"]: profile for profile in profiles}
    assert sorted(by_name) == ["1g.10gb", "1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    assert (by_name["3g.20gb"]["id"], by_name["3g.20gb"]["max_instances"], by_name["3g.20gb"]["memory_mib"]) == (
        9,
        2,
        19968,
    )
    assert by_name["3g.20gb"]["placements"] == {"size": 4, "starts": [0, 4]}


def test_mig_instances_and_devices(nvml_machine):
    env = nvml_machine("hgx-h100-8")
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import pynvml as n; n.nvmlInit(); n.nvmlDeviceSetMigMode(n.nvmlDeviceGetHandleByIndex(0), 1)",
        ],
        env={**os.environ, **env},
        check=True,
    )
    subprocess.run([sys.executable, "-c", CREATE_MIG], env={**os.environ, **env}, check=True)
    found = read(env)
    assert found["errors"] == []
    mig = found["gpus"][0]["mig"]
    assert (mig["enabled"], mig["pending"]) == (True, True)
    assert {instance["profile_id"]: len(instance["compute_instances"]) for instance in mig["instances"]} == {
        9: 1,
        14: 1,
    }
    assert sorted(device["gpu_instance_id"] for device in mig["devices"]) == sorted(
        instance["id"] for instance in mig["instances"]
    )
    assert all(device["uuid"].startswith("MIG-") for device in mig["devices"])
    assert found["gpus"][1]["mig"]["instances"] == []


def test_M1_a_lost_gpu(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-lost"))
    assert states(found) == ["ok"] * 3 + ["lost"] + ["ok"] * 4
    assert [(error["gpu"], error["field"], error["code"]) for error in found["errors"]] == [(3, "handle", 15)]


def test_M2_a_gpu_lost_in_the_middle(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-lost-in-field"))
    assert states(found) == ["ok"] * 5 + ["lost"] + ["ok"] * 2
    assert {error["gpu"] for error in found["errors"]} == {5}
    assert found["errors"][0]["field"] == "remapped_rows"
    assert found["gpus"][5]["memory"]["total_mib"] == found["gpus"][0]["memory"]["total_mib"]


def test_M4_a_hang_in_a_field(nvml_machine):
    env = nvml_machine("hgx-h100-8-hang-field")
    started = time.monotonic()
    found = read(env, timeout=6)
    assert time.monotonic() - started < 6
    assert states(found) == ["ok"] * 2 + ["hung"] + ["ok"] * 5
    assert [(error["gpu"], error["field"]) for error in found["errors"]] == [(2, "remapped_rows")]


def test_M4_a_hang_in_init(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-hang-init"), timeout=1)
    assert found["reason"].startswith("NVML did not start")


def test_a_crash(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-crash"))
    assert states(found) == ["ok"] * 2 + ["crashed"] + ["ok"] * 5
    assert "SIGABRT" in found["errors"][0]["reason"]


def test_M16_a_version_mismatch(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-version-mismatch"))
    assert (found["code"], found["gpus"]) == (18, [])
    assert "reboot" in found["reason"]


def test_a_library_that_lacks_newer_functions(nvml_machine):
    found = read(nvml_machine("hgx-h100-8-old-library"))
    assert states(found) == ["ok"] * 8
    assert found["errors"] == []
    assert found["gpus"][0]["mig"]["profiles"], "the older call answers too"


def test_no_gpu_and_no_driver(nvml_machine):
    found = read(nvml_machine("no-gpu"))
    assert found["gpus"] == []
    assert found["code"] == 9


def test_the_child_stays_small(nvml_machine):
    assert read(nvml_machine("hgx-h100-8"))["child_kib"] < 64 * 1024


def test_the_recorded_h200(nvml_machine):
    """Field by field what a real H200 answered."""
    records = json.loads((REPOSITORY / "tests/fixtures/h200/nvml.json").read_text())["records"]
    recorded = {(record["call"], tuple(record["args"])): record.get("result") for record in records}
    found = read(nvml_machine("h200-vm-1"))
    gpu = found["gpus"][0]
    assert found["errors"] == []
    assert found["system"]["driver_version"] == recorded["nvmlSystemGetDriverVersion", ()]
    assert gpu["name"] == recorded["nvmlDeviceGetName", ()]
    assert gpu["board"] == {
        "id": recorded["nvmlDeviceGetBoardId", ()],
        "part_number": recorded["nvmlDeviceGetBoardPartNumber", ()],
    }
    assert gpu["memory"]["total_mib"] == 143771
    assert gpu["bar1"]["total_mib"] == 262144
    assert gpu["power"]["default_limit_w"] == 700.0
    assert gpu["remapped_rows"]["banks"]["max"] == 3072
    assert gpu["virtualization_mode"] == "passthrough"
    assert gpu["temperature"]["thresholds"] == {"shutdown_c": 95, "slowdown_c": 89, "memory_max_c": 95, "gpu_max_c": 87}
    assert gpu["nvlink"]["links"] is None
    assert gpu["fabric"]["state"] == "not_supported"
    assert gpu["affinity"]["cpus"] == [[0, 15]]
    assert gpu["affinity"]["numa_node"] is None
    assert gpu["retired_pages"] == {"single_bit": None, "double_bit": None, "pending": None}
    assert {profile["name"]: profile["id"] for profile in gpu["mig"]["profiles"]} == {
        "1g.18gb": 19,
        "1g.18gb+me": 20,
        "1g.35gb": 15,
        "2g.35gb": 14,
        "3g.71gb": 9,
        "4g.71gb": 5,
        "7g.141gb": 0,
    }


def test_the_recorded_h200_agrees_with_its_nvidia_smi(nvml_machine):
    [recorded] = smi.parse((REPOSITORY / "tests/fixtures/h200/nvidia-smi-q.xml").read_text())
    assert smi.static_differences(read(nvml_machine("h200-vm-1"))["gpus"][0], recorded) == []


def test_the_library_may_be_given_as_a_path(nvml_machine):
    env = dict(nvml_machine("l40s-pcie-2"))
    path = env.pop("LD_LIBRARY_PATH") + "/libnvidia-ml.so.1"
    facts = json.loads(gpu_facts(env, options=f"nvml_library={path} gather_subset=nvml").partition("=> ")[2])
    assert states(facts["ansible_facts"]["gpu"]["nvml"]) == ["ok", "ok"]


def gpu_facts(env, *arguments, options=""):
    """gpu_facts as Ansible runs it over a local connection: the module's result."""
    process = subprocess.run(
        [
            Path(sys.executable).with_name("ansible"),
            "localhost",
            "-i",
            "localhost,",
            "-c",
            "local",
            "-m",
            "gpufleet.metal.gpu_facts",
            "-a",
            options,
            "-e",
            f"ansible_python_interpreter={sys.executable}",
            *arguments,
        ],
        env={
            **os.environ,
            **env,
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_the_module_needs_no_binding_on_the_host(nvml_machine, tmp_path):
    # -S: the target's Python sees no installed package, so that the binding can only come from the controller
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    output = gpu_facts(nvml_machine("hgx-h100-8"), "-e", f"ansible_python_interpreter={python}", "--check")
    facts = json.loads(output[output.index("{") :])["ansible_facts"]["gpu"]
    assert facts["nvml"]["binding"] == "controller"
    assert len(facts["nvml"]["gpus"]) == 8
    assert facts["errors"] == []


def test_the_binding_is_not_shown(nvml_machine):
    output = gpu_facts(nvml_machine("l40s-pcie-2"), "-vvv", options="gather_subset=min")
    assert "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in output
    assert len(output) < 60000
