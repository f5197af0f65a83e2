# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/example says only what the roles know, in the types that they take."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.repo import laws

ROOT = laws.repository()
BIN = Path(sys.executable).parent


def ansible(*argv):
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def inventory():
    return json.loads(ansible("ansible-inventory", "-i", "inventories/example", "--list").stdout)


def test_every_host_has_one_hardware_class_and_one_ring(inventory):
    groups = {name: set(group.get("hosts", [])) for name, group in inventory.items() if name != "_meta"}
    hosts = set(inventory["_meta"]["hostvars"])
    assert hosts
    for kind in ("class_", "ring_"):
        members = [host for name, group in groups.items() if name.startswith(kind) for host in group]
        assert sorted(members) == sorted(hosts), kind


def test_every_variable_is_one_of_a_role(inventory):
    known = {name for role in laws.roles(ROOT) for name in laws.options_of(role)}
    defaults = "".join(path.read_text() for path in ROOT.glob("roles/*/defaults/main.yml"))
    for variables in inventory["_meta"]["hostvars"].values():
        for name in variables:
            inputs = name.startswith("gpu_") and f"{{{{ {name} | default(" in defaults
            assert name in known or inputs or name.startswith("ansible_"), f"no role knows {name}"


def test_every_value_is_what_the_argument_specs_take(tmp_path):
    play = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            task
            for role in laws.roles(ROOT)
            for task in (
                {
                    "name": f"Defaults of {role.name}",
                    "ansible.builtin.include_role": {
                        "name": f"gpufleet.metal.{role.name}",
                        "tasks_from": "desired",
                        "public": True,
                        "rolespec_validate": False,
                    },
                },
                {
                    "name": f"Arguments of {role.name}",
                    "ansible.builtin.validate_argument_spec": {"argument_spec": laws.options_of(role)},
                },
            )
        ],
    }
    playbook = tmp_path / "validate.yml"
    playbook.write_text(yaml.safe_dump([play]))
    # one host of each class and ring is enough: the others have the same variables
    hosts = "train-01*,train-04*,batch-02*,batch-04*,infer-01*,infer-04*"
    done = ansible("ansible-playbook", "-i", "inventories/example", "--limit", hosts, str(playbook))
    assert done.returncode == 0, done.stdout + done.stderr
