# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_facts on a machine with a real GPU, compared with nvidia-smi of the same run. Nothing is changed, ever."""

import json
import os
import subprocess

import pytest

from tests.gpu import local, smi

pytestmark = local.NEEDS_GPU


def nvidia_smi():
    process = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=60, check=True)
    return smi.parse(process.stdout)


def gpu_facts(folder, options=""):
    process = local.run(folder, "adhoc", "localhost", "-m", "gpufleet.metal.gpu_facts", "-a", options)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(process.stdout[process.stdout.index("{") :])["ansible_facts"]["gpu"]


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    """``(before, facts, after)`` of one run."""
    before = nvidia_smi()
    facts = gpu_facts(tmp_path_factory.mktemp("facts"))
    after = nvidia_smi()
    print(json.dumps(facts, indent=1))
    return before, facts, after


def pairs(reading):
    before, facts, after = reading
    gpus = facts["nvml"]["gpus"]
    assert len(gpus) == len(before) == len(after) > 0
    return zip(gpus, before, after, strict=True)


def test_nvml_is_complete(reading):
    _before, facts, _after = reading
    assert facts["nvml"]["reason"] is None
    assert facts["nvml"]["binding"] == "controller"
    assert facts["errors"] == []
    assert {gpu["state"] for gpu in facts["nvml"]["gpus"]} == {"ok"}
    assert facts["nvml"]["missing"] == []


def test_static_fields_equal_nvidia_smi(reading):
    differences = {gpu["index"]: smi.static_differences(gpu, before) for gpu, before, _after in pairs(reading)}
    assert not any(differences.values()), differences


def test_dynamic_fields_lie_within_their_tolerances(reading):
    differences = {gpu["index"]: smi.dynamic_differences(gpu, before, after) for gpu, before, after in pairs(reading)}
    assert not any(differences.values()), differences


def test_the_run_changed_no_setting(reading):
    for _gpu, before, after in pairs(reading):
        changed = {path for path in smi.STATIC.values() if smi.element(before, path) != smi.element(after, path)}
        assert not changed


def test_pci_driver_and_nvml_tell_of_the_same_machine(reading):
    _before, facts, _after = reading
    assert {gpu["address"] for gpu in facts["pci"]["gpus"]} >= {gpu["pci"]["address"] for gpu in facts["nvml"]["gpus"]}
    by_address = {gpu["address"]: gpu for gpu in facts["pci"]["gpus"]}
    for gpu in facts["nvml"]["gpus"]:
        on_bus = by_address[gpu["pci"]["address"]]
        assert on_bus["device"] == gpu["pci"]["device"]
        assert on_bus["architecture"] == gpu["architecture"]
        assert on_bus["driver"] == "nvidia"
    assert facts["driver"]["loaded"]["version"] == facts["nvml"]["system"]["driver_version"]
    assert facts["nouveau"] == {"loaded": False, "builtin": False, "gpus": []}
    assert facts["kernel"]["running"] == os.uname().release


def test_values_are_typed(reading):
    """No fact is a number in a string."""
    _before, facts, _after = reading

    def walk(value, path=""):
        if isinstance(value, dict):
            for key, part in value.items():
                yield from walk(part, f"{path}.{key}")
        elif isinstance(value, list):
            for index, part in enumerate(value):
                yield from walk(part, f"{path}.{index}")
        elif isinstance(value, str) and path.endswith(
            ("_mib", "_w", "_c", "_mhz", "_percent", "_gts", "_mb_s", "width")
        ):
            yield path

    assert list(walk(facts["nvml"])) == []
