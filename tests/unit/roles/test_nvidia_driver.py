# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own tasks: fetching is run for real on this machine's temporary files, the rest is read."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.repo import laws

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/nvidia_driver"
VERSION = "580.65.06"
NAME = f"NVIDIA-Linux-x86_64-{VERSION}.run"
PATTERN = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__nvidia_driver_package_pattern"]
#: Modules that reach over the network.
OUTWARD = ("ansible.builtin.get_url", "ansible.builtin.apt", "ansible.builtin.package", "ansible.builtin.uri")


def run(tmp_path, tasks, expected, **variables):
    """Run one of the role's task files with a literal plan; the output of ansible-playbook and its exit code."""
    runfile = {"name": NAME, "path": f"{tmp_path}/host/{NAME}", "expected_sha256": expected}
    values = {
        "nvidia_driver_version": VERSION,
        "nvidia_driver_download_retries": 0,
        "__nvidia_driver_runfile_directory": f"{tmp_path}/host",
        "__nvidia_driver_plan": {"runfile": runfile},
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    role = {"name": "gpufleet.metal.nvidia_driver", "tasks_from": tasks}
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.import_role": role}]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    (tmp_path / "values.json").write_text(json.dumps(values))
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        *("-i", "localhost,", "-c", "local", "-e", f"@{tmp_path}/values.json", f"{tmp_path}/play.yml"),
    ]
    environment = dict(os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=ROOT, check=False)
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.mark.parametrize("tasks", ["copy", "download"])
def test_C3_another_sha256_is_refused_by_the_name_of_the_variable_and_nothing_is_left(tmp_path, tasks):
    source = tmp_path / "source.run"
    source.write_text("another file")
    where = {"copy": ("path", str(source)), "download": ("url", source.as_uri())}[tasks]
    rc, output = run(tmp_path, tasks, "a" * 64, **{f"nvidia_driver_runfile_{where[0]}": where[1]})
    assert rc == 2, output
    assert "nvidia_driver_runfile_sha256" in output
    assert "was not changed" in output
    assert not (tmp_path / "host" / NAME).exists()


def test_a_checksum_file_without_the_runfiles_line_is_named(tmp_path):
    rc, output = run(tmp_path, "download", None, nvidia_driver_runfile_url="file:///nowhere")
    assert rc == 2, output
    assert f"nvidia_driver_runfile_checksum: the file has no sha256 line for {NAME}" in output


def outward_tasks():
    """(file, task, what its blocks give it) for every task of the role that reaches over the network."""

    def walk(tasks, inherited):
        for task in tasks or []:
            given = {**inherited, **({"environment": task["environment"]} if "environment" in task else {})}
            for part in ("block", "rescue", "always"):
                yield from walk(task.get(part), given)
            if laws.action_of(task)[0] in OUTWARD:
                yield task, given

    for path in sorted(ROLE.glob("tasks/*.yml")):
        yield from ((path.name, task, given) for task, given in walk(yaml.safe_load(path.read_text()), {}))


def test_C7_whatever_goes_out_has_the_proxy_a_time_limit_and_retries():
    tasks = list(outward_tasks())
    assert len(tasks) >= 5
    for file, task, given in tasks:
        action, arguments = laws.action_of(task)
        assert given.get("environment") == "{{ nvidia_driver_environment }}", (file, task["name"])
        if action == "ansible.builtin.get_url":
            assert "timeout" in arguments, (file, task["name"])
            assert "retries" in task, (file, task["name"])
        else:
            assert "lock_timeout" in arguments, (file, task["name"])


@pytest.mark.parametrize(
    "line",
    [
        "Inst libnvidia-compute-535 (535.183.01 Debian)",
        "Remv nvidia-driver-535 [535.183.01]",
        "Purg nvidia-kernel-common-535 [535.183.01]",
        "Inst linux-modules-nvidia-535-generic (6.8)",
        "Inst linux-objects-nvidia-535-6.8.0-45-generic (6.8)",
        "Inst firmware-nvidia-gsp (535)",
        "Inst cuda-drivers (580)",
        "Inst libcuda1 (535)",
    ],
)
def test_D7_D10_a_prediction_that_touches_a_driver_is_refused(line):
    assert re.search(PATTERN, "Reading package lists...\n" + line, re.MULTILINE)


@pytest.mark.parametrize(
    "line", ["Inst linux-headers-6.8.0-1010-nvidia-64k (6.8)", "Inst gcc-12 (12.2)", "Inst dkms (3.0)", "Inst make (4)"]
)
def test_D7_the_roles_own_prerequisites_pass(line):
    assert not re.search(PATTERN, line, re.MULTILINE)


def test_a_host_without_driver_is_unblocked_when_its_packages_cannot_be_installed():
    (block,) = yaml.safe_load((ROLE / "tasks/prerequisites.yml").read_text())
    first, last = block["rescue"]
    assert first["gpufleet.metal.nouveau"] == {"state": "absent"}
    assert first["when"] == "__nvidia_driver_plan.installed_version is none"
    assert "ansible.builtin.fail" in last


def test_the_whole_desired_document_reaches_the_module(tmp_path):
    rc, output = run(tmp_path, "plan", None, nvidia_driver_runfile_sha256="a" * 64, nvidia_driver_version="latest")
    assert rc == 2, output
    assert "nvidia_driver_version: 'latest' is no driver version. Write it in two or three numeric parts" in output
    rc, output = run(tmp_path, "plan", None, nvidia_driver_runfile_sha256="a" * 64, nvidia_driver_tmpdir="here")
    assert "nvidia_driver_tmpdir: 'here' is not an absolute path" in output


def test_a_version_that_yaml_took_for_a_number_is_refused_without_the_assessment_too(tmp_path):
    rc, output = run(tmp_path, "plan", None, nvidia_driver_runfile_sha256="a" * 64, nvidia_driver_version=570.190)
    assert rc == 2, output
    assert "nvidia_driver_version: 570.19 is a number" in output


def test_P9_the_controller_is_not_rebooted(tmp_path):
    waits = {"reboot_required": True, "reboot_reasons": ["nouveau drives the GPUs until then"]}
    rc, output = run(
        tmp_path,
        "reboot",
        None,
        ansible_connection="local",
        nvidia_driver_reboot="auto",
        __nvidia_driver_result=waits,
        nvidia_driver_reboot_boot_time_command="false",
    )
    assert rc == 2, output
    assert "over a local connection: it is the machine that runs Ansible. Reboot it yourself" in output


def test_P7_a_reboot_is_told_by_the_boot_id_and_has_time():
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    assert defaults["nvidia_driver_reboot_boot_time_command"].endswith("/proc/sys/kernel/random/boot_id")
    assert defaults["nvidia_driver_reboot_timeout"] >= 1200
    given = reboot_tasks()["Reboot"]["ansible.builtin.reboot"]
    assert given["boot_time_command"] == "{{ nvidia_driver_reboot_boot_time_command }}"
    assert given["reboot_timeout"] == "{{ nvidia_driver_reboot_timeout }}"
    assert "__nvidia_driver_proof.reboot_required" in str(reboot_tasks()["Fail if the reboot did not load it"])


def reboot_tasks():
    """The tasks of reboot.yml, blocks opened, by name and in their order."""
    return {task["name"]: task for task in laws.tasks_in(yaml.safe_load((ROLE / "tasks/reboot.yml").read_text()))}


def test_P8_after_a_reboot_old_connections_are_dropped_and_a_blocked_way_is_told():
    names = list(reboot_tasks())
    reset = next(
        name for name, task in reboot_tasks().items() if task.get("ansible.builtin.meta") == "reset_connection"
    )
    assert names.index("Reboot") < names.index(reset) < names.index("Prove the driver after the reboot")
    (block,) = [task for task in yaml.safe_load((ROLE / "tasks/reboot.yml").read_text()) if "rescue" in task]
    message = block["rescue"][0]["ansible.builtin.fail"]["msg"]
    for word in ("host key", "ControlMaster", "proxy", "run the playbook again"):
        assert word in message
