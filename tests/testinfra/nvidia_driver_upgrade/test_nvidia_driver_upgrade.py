# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver's life after the upgrade that converge made. The tests go one after another, each from where the last ended:
refused because in use, downgraded, failed and taken back, rolled back, removed."""

import json

import pytest

OLDEST, OLDER, NEWEST = "570.133.20", "570.158.01", "580.95.05"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
STATE = "/var/lib/gpufleet/driver"
FAULT = "/etc/gpufleet-sim/installer-fault"
BOOT = "cat /run/gpufleet-sim/boot_id"


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


def kernels(host):
    return [path.split("/")[3] for path in host.check_output("ls -d /lib/modules/*/kernel").split()]


def whole(host, version):
    """The host has this driver and no trace of any other."""
    assert f"  {version}  " in host.file("/proc/driver/nvidia/version").content_string
    assert host.check_output(f"ls {LIBRARIES} | grep -c 'libnvidia-ml.so.[0-9]*[.]'") == "1"
    assert host.file(f"{LIBRARIES}/libnvidia-ml.so.1").linked_to == f"{LIBRARIES}/libnvidia-ml.so.{version}"
    assert host.check_output("ls /lib/firmware/nvidia") == version
    assert host.check_output("ls -d /usr/src/nvidia-*") == f"/usr/src/nvidia-{version}"
    rows = host.check_output("dkms status").splitlines()
    assert len(rows) == len(kernels(host))
    assert all(row.startswith(f"nvidia/{version}, ") and row.endswith(": installed") for row in rows)
    for release in kernels(host):
        assert host.check_output("modinfo -k %s -F version nvidia", release) == version
    assert host.service("nvidia-persistenced").is_running
    assert version in host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    assert json.loads(host.file(f"{STATE}/journal.json").content_string)["phase"] == "done"
    return True


def last_good(host):
    return json.loads(host.file(f"{STATE}/last_good.json").content_string)


def test_N1_the_upgrade_across_branches_is_whole(host):
    assert whole(host, NEWEST)


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
def test_D2_a_driver_in_use_is_refused_by_the_names_of_its_users(host, playbook, job, wait):
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={OLDER}", "-e", f"nvidia_driver_wait_for_idle={wait}")
    assert done.rc == 2, done.output
    assert f"pid {job}, unit train.service" in " ".join(done.output.split())
    assert whole(host, NEWEST)
    assert host.service("train").is_running


def test_a_downgrade_is_whole(host, playbook):
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={OLDER}")
    assert done.rc == 0, done.output
    assert whole(host, OLDER)
    assert last_good(host)["version"] == NEWEST


def test_N6_a_change_that_fails_is_taken_back_and_both_reasons_are_told(host, playbook):
    host.check_output(f"echo die-in-files@{OLDEST} >{FAULT}")
    done = playbook("upgrade.yml", "-e", f"nvidia_driver_version={OLDEST}")
    host.check_output(f"rm {FAULT}")
    said = " ".join(done.output.split())
    assert done.rc == 2
    assert "the installer failed" in said
    assert f"Driver {OLDER} is back." in said
    assert whole(host, OLDER)
    assert last_good(host)["version"] == NEWEST
    assert host.check_output("dpkg --audit") == ""


def test_rollback_goes_back_from_the_kept_runfile_and_only_once(host, playbook):
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert done.rc == 0, done.output
    assert whole(host, NEWEST)
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert (done.rc, done.recap["changed"]) == (0, 0), done.output
    assert whole(host, NEWEST)


def test_absent_leaves_no_file_of_ours(host, playbook):
    done = playbook("upgrade.yml", "-e", "nvidia_driver_state=absent", "-e", "version_lock_state=absent")
    assert done.rc == 0, done.output
    assert not host.file("/sys/module/nvidia").exists
    assert host.check_output("dkms status") == ""
    left = host.check_output(
        "find / -xdev '(' -path /proc -o -path /sys -o -path /run -o -path /home -o -path /var/log ')' -prune -o "
        "'(' -name 'libnvidia*' -o -name 'gpufleet-nvidia*' -o -name 'NVIDIA-Linux*' -o -name 'nvidia-[0-9]*' "
        "-o -path '/lib/firmware/nvidia/[0-9]*' -o -path /var/lib/gpufleet/driver/journal.json ')' -print"
    )
    assert left == ""


def test_without_a_way_back_rollback_explains_that(host, playbook):
    done = playbook("rollback.yml")
    assert done.rc == 2
    assert "there is no way back on this host" in " ".join(done.output.split())
