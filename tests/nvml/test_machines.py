# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine descriptions: valid, expandable, and true to what they promise."""

import json

import jsonschema
import pytest
import yaml

from sim import control, machine


@pytest.mark.parametrize("name", machine.names())
def test_description_expands_and_flattens(name):
    described = machine.load(name)
    assert described["name"] == name
    addresses = [gpu["pci"] for gpu in described["gpus"]] + [switch["pci"] for switch in described["nvswitches"]]
    assert len(set(addresses)) == len(addresses)
    lines = machine.flatten(described).splitlines()
    assert lines == sorted(lines, key=lambda line: line.split("=", 1)[0])
    assert f"gpu.count={len(described['gpus'])}" in lines
    for fault in described["faults"]:
        control.check_fault(fault.split())


def test_uuid_and_serial_are_stable_and_unique():
    first, again = machine.load("hgx-h100-8")["gpus"], machine.load("hgx-h100-8")["gpus"]
    assert first == again
    assert len({gpu["uuid"] for gpu in first}) == len({gpu["serial"] for gpu in first}) == 8


def test_extending_description_says_only_what_differs(tmp_path):
    for name in ("base", "changed"):
        content = {
            "base": {"summary": "one", "gpus": [{"model": "l40s", "pci": "0000:21:00.0"}]},
            "changed": {"extends": "base", "summary": "two", "gpu_overrides": {0: {"link": {"width": 4}}}},
        }[name]
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(content))
    changed = machine.load(tmp_path / "changed.yml")
    assert changed["summary"] == "two"
    assert changed["gpus"][0]["link"] == {"max_gen": 4, "max_width": 16, "gen": 4, "width": 4}


def test_unknown_key_is_refused(tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({"summary": "x", "gpus": [], "gpu": []}))
    with pytest.raises(jsonschema.ValidationError, match="gpu"):
        machine.load(path)


def test_h200_pci_ids_equal_the_capture():
    text = (machine.HERE.parent / "tests" / "fixtures" / "h200" / "sysfs-pci.txt").read_text()
    captured = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    gpu = machine.load("h200-vm-1")["gpus"][0]
    assert gpu["device_id"] == captured["device"]
    assert gpu["subsystem_device"] == captured["subsystem_device"]
    assert gpu["class"] == captured["class"]
    assert str(gpu["link"]["width"]) == captured["current_link_width"]
