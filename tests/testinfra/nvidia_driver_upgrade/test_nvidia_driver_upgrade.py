# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From one driver to another, after the upgrade within a branch that converge made. The tests go one after another,
each from where the last ended: refused because in use, to another branch, down again, taken back, rolled back."""

import json

import pytest

OLDEST, OLDER, NEWEST = "570.133.20", "570.158.01", "580.95.05"
STATE = "/var/lib/gpufleet/driver"
FAULT = "/etc/gpufleet-sim/installer-fault"
BOOT = "cat /run/gpufleet-sim/boot_id"


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


def last_good(host):
    return json.loads(host.file(f"{STATE}/last_good.json").content_string)


def test_N1_the_upgrade_within_the_branch_is_whole(whole):
    assert whole(OLDER)


def test_the_driver_before_the_upgrade_is_kept_whole(host):
    found = last_good(host)
    assert (found["version"], found["flavour"]) == (OLDEST, "open")
    assert found["module_parameters"] == {"NVreg_EnableStreamMemOPs": "1"}
    assert host.check_output("sha256sum %s", found["runfile"]).split()[0] == found["sha256"]


def test_N4_a_second_run_changes_nothing(host, playbook):
    boot = host.check_output(BOOT)
    done = playbook("upgrade.yml")
    assert (done.rc, done.recap["changed"]) == (0, 0), done.output
    assert host.check_output(BOOT) == boot


@pytest.fixture
def job(host):
    """Somebody's work on the first GPU."""
    host.check_output("systemd-run --quiet --unit=train sh -c 'exec sleep infinity </dev/nvidia0'")
    yield host.check_output("systemctl show --property=MainPID --value train")
    host.run("systemctl stop train")


@pytest.mark.parametrize("wait", [0, 10])
def test_D2_a_driver_in_use_is_refused_by_the_names_of_its_users(host, playbook, whole, job, wait):
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={NEWEST}", "-e", f"nvidia_driver_wait_for_idle={wait}")
    assert done.rc == 2, done.output
    assert f"pid {job}, unit train.service" in " ".join(done.output.split())
    assert whole(OLDER)
    assert host.service("train").is_running


def test_N1_an_upgrade_across_branches_is_whole(host, playbook, whole):
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={NEWEST}")
    assert done.rc == 0, done.output
    assert whole(NEWEST)
    assert last_good(host)["version"] == OLDER


def test_a_downgrade_is_whole(host, playbook, whole):
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={OLDEST}")
    assert done.rc == 0, done.output
    assert whole(OLDEST)
    assert last_good(host)["version"] == NEWEST


def test_N6_a_change_that_fails_is_taken_back_and_both_reasons_are_told(host, playbook, whole):
    host.check_output(f"echo die-in-files@{OLDER} >{FAULT}")
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={OLDER}")
    host.check_output(f"rm {FAULT}")
    said = " ".join(done.output.split())
    assert done.rc == 2
    assert "the installer failed" in said
    assert f"Driver {OLDEST} is back." in said
    assert whole(OLDEST)
    assert last_good(host)["version"] == NEWEST
    assert host.check_output("dpkg --audit") == ""


def test_rollback_goes_back_from_the_kept_runfile_and_only_once(playbook, whole):
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert done.rc == 0, done.output
    assert whole(NEWEST)
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert (done.rc, done.recap["changed"]) == (0, 0), done.output
    assert whole(NEWEST)
