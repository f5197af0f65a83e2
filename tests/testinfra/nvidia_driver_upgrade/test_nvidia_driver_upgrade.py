# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From one driver to another, after the upgrade within a branch that converge made. The tests go one after another,
each from where the last ended: refused because in use, to another branch, down again, taken back, rolled back. The last
four are killed on their way, one in each manner (the whole table of phases and kills: ``python -m tests.kills``)."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

OLDEST, OLDER, NEWEST = "570.133.20", "570.158.01", "580.95.05"
STATE = "/var/lib/gpufleet/driver"
FAULT = "/etc/gpufleet-sim/installer-fault"
BOOT = "cat /run/gpufleet-sim/boot_id"
ORDER, SITE = "/etc/gpufleet-sim/kill", "/usr/lib/python3/dist-packages"


@pytest.fixture
def killed_in(host):
    """``killed_in(phase, kill)``: the next run is killed at the beginning of that phase, see tests/kills/trap.py."""

    def set_trap(phase, kill):
        host.check_output("printf %%s %s >%s", (ROOT / "tests/kills/trap.py").read_text(), f"{SITE}/gpufleet_trap.py")
        host.check_output("echo import gpufleet_trap >%s", f"{SITE}/gpufleet_trap.pth")
        host.check_output("echo %s >%s", f"{phase} {kill}", ORDER)

    yield set_trap
    host.check_output(f"rm -f {SITE}/gpufleet_trap.* {ORDER}")


def was_killed(host):
    """True when the order was carried out; waits for a host on its way through a reboot."""
    argv = [sys.executable, "-m", "sim.lab", "ssh", host.backend.get_hostname(), "true"]
    for _ in range(60):
        if subprocess.run(argv, cwd=ROOT, capture_output=True, check=False).returncode == 0:
            return not host.file(ORDER).exists
        time.sleep(1)
    return False


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


def test_N7_an_upgrade_across_branches_whose_module_was_killed_is_completed(host, playbook, whole, killed_in):
    killed_in("load", "module")
    assert playbook("upgrade.yml", "-e", f"nvidia_driver_version={NEWEST}").rc == 2
    assert was_killed(host)
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={NEWEST}")
    assert done.rc == 0, done.output
    assert whole(NEWEST)
    assert last_good(host)["version"] == OLDER


def test_N7_a_downgrade_through_a_reboot_is_completed(host, playbook, whole, killed_in):
    """One kernel has the modules of the older driver then, which that boot loads; the other has none."""
    killed_in("build", "reboot")
    playbook("upgrade.yml", "-e", f"nvidia_driver_version={OLDEST}")
    assert was_killed(host)
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


def test_P12_rollback_goes_back_from_the_kept_runfile_without_its_connection_and_only_once(
    host, playbook, whole, killed_in
):
    killed_in("install", "connection")
    playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert was_killed(host)
    # The installer goes on without a connection, and the preflight lets nobody begin before it has ended.
    host.check_output("while systemctl --quiet is-active gpufleet-nvidia-installer; do sleep 1; done")
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert done.rc == 0, done.output
    assert whole(NEWEST)
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert (done.rc, done.recap["changed"]) == (0, 0), done.output
    assert whole(NEWEST)
