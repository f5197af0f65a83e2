# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml and rollback.yml under the real engine: their waves, their failures, their report.

The roles are stand-ins that say who they were run for, so that what is proven is the playbooks' own order.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
HOSTS = ("a", "b", "c", "d")
#: Nobody listens there: an attempt to connect is refused at once.
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
ASSESSMENT = {
    "due": "{{ [] if inventory_hostname in done else ['nvidia_driver', 'version_lock'] }}",
    **{"concerns": {}, "checks": [], "failed_checks": [], "failure": "", "reboot_reasons": []},
    "summary": {"gpus": [], "kernel": None, "driver": None},
}


def says(word):
    state = "{{ nvidia_driver_state | default('present') }}"
    return {"name": word, "ansible.builtin.debug": {"msg": f"<{word} {{{{ inventory_hostname }}}} {state}>"}}


def fails(when):
    return {"name": "Fail", "ansible.builtin.fail": {"msg": "the disk is on fire"}, "when": when}


def lost(when):
    return {"name": "Do not answer", "ansible.builtin.ping": {}, "vars": AWAY, "when": when}


ROLES = {
    "gpu_assess/tasks/main.yml": [
        lost("inventory_hostname in down"),
        {"name": "Assess", "ansible.builtin.set_fact": {"__gpu_assessment": ASSESSMENT}},
    ],
    "gpu_preflight/tasks/main.yml": [says("preflight"), fails("inventory_hostname in refused")],
    "nvidia_driver/tasks/fetch.yml": [says("fetch")],
    "nvidia_driver/tasks/refuse.yml": [says("refuse")],
    "nvidia_driver/tasks/main.yml": [
        says("change"),
        fails("inventory_hostname in broken"),
        lost("inventory_hostname in silent"),
    ],
    "version_lock/tasks/main.yml": [says("lock")],
    "gpu_verify/tasks/main.yml": [
        says("verify"),
        {
            "name": "Verify",
            "ansible.builtin.set_fact": {
                "__gpu_verify_result": {
                    **{**ASSESSMENT, "failed_checks": ["driver_loaded"], "failure": "another driver is loaded"},
                    "checks": [{"id": "driver_loaded", "result": "fail", "evidence": "none", "remedy": "reboot"}],
                }
            },
            "when": "inventory_hostname in unproven",
        },
        fails("inventory_hostname in unproven and gpu_verify_fail | default(true)"),
    ],
}


@pytest.fixture
def run(tmp_path):
    """Run a playbook on four hosts; ``(rc, [(step, host, state)], {host: record of the report}, output)``."""
    collection = tmp_path / "ansible_collections/gpufleet/metal"
    for name, tasks in ROLES.items():
        path = collection / "roles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(tasks, sort_keys=False))
    for name in ("plugins", "playbooks", "galaxy.yml"):
        (collection / name).symlink_to(ROOT / name)

    def start(playbook, *arguments, hosts=HOSTS, **variables):
        inventory = {"gpu": {"hosts": dict.fromkeys(hosts, {"ansible_connection": "local"})}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        lists: dict = dict.fromkeys(("done", "down", "refused", "broken", "silent", "unproven"), [])
        values = {"gpu_report_directory": f"{tmp_path}/reports", "ansible_python_interpreter": sys.executable}
        (tmp_path / "values.json").write_text(json.dumps({**lists, **values, **variables}))
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            *("-i", f"{tmp_path}/hosts.yml", "-e", f"@{tmp_path}/values.json", f"{collection}/playbooks/{playbook}"),
            *arguments,
        ]
        environment = {
            **os.environ,
            **{"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_BECOME": "false"},
            **{"ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_SSH_RETRIES": "0"},
        }
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
        report = tmp_path / "reports/report.json"
        records = json.loads(report.read_text())["hosts"] if report.exists() else []
        steps = [tuple(said.split()) for said in re.findall(r"<(\w+ \w+ \w+)>", done.stdout)]
        return done.returncode, steps, {record["name"]: record for record in records}, done.stdout + done.stderr

    return start


def hosts_of(steps, word):
    return [host for step, host, _state in steps if step == word]


def test_N8_all_is_predicted_and_fetched_everywhere_before_the_first_change_and_the_report_ends_it(run):
    rc, steps, report, output = run("upgrade.yml", done=["d"], gpu_upgrade_serial=[1, 2])
    assert rc == 0, output
    words = [word for word, _host, _state in steps]
    first = words.index("change")
    assert [(word, words[:first].count(word)) for word in ("preflight", "fetch", "refuse")] == [
        ("preflight", 3),
        ("fetch", 3),
        ("refuse", 3),
    ]
    assert not {"preflight", "fetch", "refuse"} & set(words[first:])
    assert words[first:][:3] == ["change", "lock", "verify"], "the first wave is whole before the second begins"
    assert sorted(report) == list(HOSTS)


def test_N8_a_host_that_would_fail_changes_no_host(run):
    rc, steps, report, _output = run("upgrade.yml", refused=["c"])
    assert rc != 0
    assert hosts_of(steps, "change") == []
    assert report == {}


def test_P1_in_check_mode_nothing_is_proven_and_nothing_fails(run):
    rc, steps, report, output = run("upgrade.yml", "--check", hosts=["a"], unproven=["a"])
    assert rc == 0, output
    assert hosts_of(steps, "verify") == ["a"]
    assert report == {}, "check mode writes no report"


def test_N9_a_canary_that_is_not_proven_stops_the_fleet_too(run):
    rc, steps, report, _output = run("upgrade.yml", gpu_upgrade_serial=1, unproven=["a"])
    assert rc != 0
    assert hosts_of(steps, "change") == ["a"]
    assert report["a"]["verdict"] == "failed"


@pytest.mark.parametrize("reason", ["broken", "silent"])
def test_N9_a_failure_or_a_host_that_stops_answering_ends_its_wave_and_lets_no_later_one_begin(run, reason):
    rc, steps, report, output = run("upgrade.yml", gpu_upgrade_serial=2, **{reason: ["a"]})
    assert rc != 0
    assert sorted(hosts_of(steps, "change")) == ["a", "b"]
    assert hosts_of(steps, "lock") == hosts_of(steps, "verify") == ["b"], "its wave ends together"
    assert sorted(report) == list(HOSTS), output
    if reason == "broken":
        assert (report["a"]["verdict"], report["a"]["failure"]) == ("failed", "the disk is on fire")


def test_N9_a_canary_that_fails_stops_the_fleet(run):
    rc, steps, report, output = run("upgrade.yml", gpu_upgrade_serial=[1, "100%"], broken=["a"])
    assert rc == 2, output
    assert hosts_of(steps, "change") == ["a"]
    assert report["a"]["failure"] == "the disk is on fire"


def test_N9_a_host_that_does_not_answer_counts_as_a_failure_before_anything_is_changed(run):
    rc, steps, report, _output = run("upgrade.yml", down=["d"])
    assert rc != 0
    assert steps == []
    assert report == {}


def test_N10_the_report_has_every_host_and_the_next_run_begins_with_those_that_are_left(run):
    _rc, _steps, report, _output = run("upgrade.yml", gpu_upgrade_serial=1, broken=["b"])
    assert sorted(report) == list(HOSTS)
    assert [name for name in HOSTS if report[name]["verdict"] == "failed"] == ["b"]
    _rc, steps, _report, _output = run("upgrade.yml", gpu_upgrade_serial=1, done=["a"])
    assert hosts_of(steps, "change") == ["b", "c", "d"]


def test_rollback_needs_no_variable_and_does_all_that_an_upgrade_does(run):
    rc, steps, report, output = run("rollback.yml", hosts=["a"])
    assert rc == 0, output
    assert [word for word, _host, _state in steps] == ["preflight", "fetch", "refuse", "change", "lock", "verify"]
    assert {state for _word, _host, state in steps} == {"previous"}
    assert list(report) == ["a"]


def test_the_report_of_a_single_host_that_failed_is_written_before_it_fails(run):
    rc, _steps, report, output = run("rollback.yml", hosts=["a"], broken=["a"])
    assert rc == 2
    assert report["a"]["failure"] == "the disk is on fire"
    assert "What rollback.yml did" in Path(re.search(r"^Report: (\S+)$", output, re.MULTILINE).group(1)).read_text()
