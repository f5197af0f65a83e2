# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version set on a machine with NVSwitches and on one without, seen without the collection's own readers."""

import os
import re

import pytest

UNIT = "nvidia-fabricmanager.service"
SET = ("nvidia-fabricmanager", "libnvidia-nscq")
LOADED = r"sed -n 's/.*  \([0-9.]*\)  .*/\1/p' /proc/driver/nvidia/version"
STARTED = f"systemctl show --property=ExecMainStartTimestampMonotonic --value {UNIT}"
#: A driver of which the mirror has a fabric manager of the branch, but not of the version.
OTHER = "580.82.07"
OLDER = "570.158.01"


@pytest.fixture
def hgx(host):
    if not switches(host):
        pytest.skip("a machine without NVSwitch")


@pytest.fixture
def without(host):
    if switches(host):
        pytest.skip("a machine with NVSwitches")


def switches(host):
    return [line for line in host.check_output("cat /sys/bus/pci/devices/*/class").split() if line.startswith("0x0680")]


def version(host):
    return host.check_output(LOADED).splitlines()[0]


def reports(name):
    return "gpu_report_directory=" + os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "reports", name)


# -- with NVSwitches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SET)
@pytest.mark.usefixtures("hgx")
def test_J1_J2_the_package_has_exactly_the_version_of_the_loaded_driver(host, name):
    assert host.package(name).is_installed
    assert host.package(name).version.split("-")[0] == version(host)


@pytest.mark.usefixtures("hgx")
def test_J7_the_fabric_manager_runs_and_starts_at_boot(host):
    assert host.service(UNIT).is_enabled
    assert host.service(UNIT).is_running
    said = host.check_output(f"journalctl --unit {UNIT} --boot --output=cat")
    assert "Successfully configured all the available NVSwitches" in said
    assert "don't match with driver version" not in said


@pytest.mark.parametrize("name", SET)
@pytest.mark.usefixtures("hgx")
def test_J1_the_set_is_locked_with_the_driver(host, name):
    assert name in host.check_output("apt-mark showhold").split()
    simulated = host.run(f"apt-get --simulate dist-upgrade | grep '^Inst {name} '")
    assert simulated.rc == 1, simulated.stdout
    policy = host.check_output(f"apt-cache policy {name}")
    assert re.search(r"Candidate: (\S+)", policy).group(1).split("-")[0] == version(host), policy


@pytest.mark.usefixtures("hgx")
def test_J1_a_fabric_manager_of_another_version_really_refuses(host):
    """Else a running unit would prove nothing."""
    changed = "sed 's/^VERSION = .*/VERSION = \"580.82.07\"/' /usr/bin/nv-fabricmanager | python3 -"
    done = host.run(changed)
    assert done.rc == 1
    assert f"version 580.82.07 don't match with driver version {version(host)}" in done.stderr


@pytest.mark.usefixtures("hgx")
def test_N8_a_driver_whose_fabric_manager_no_repository_has_changes_nothing(host, playbook):
    before = host.check_output(STARTED), version(host), host.check_output("dpkg-query --show")
    done = playbook("site.yml", "-e", f"nvidia_driver_version={OTHER}", "-e", reports("other"))
    assert done.rc != 0
    assert "version_set:" in done.output
    assert f"nvidia-fabricmanager-580 {OTHER} is in no repository" in " ".join(done.output.split())
    assert done.recap["changed"] == 0
    assert (host.check_output(STARTED), version(host), host.check_output("dpkg-query --show")) == before


@pytest.mark.usefixtures("hgx")
def test_J13_what_somebody_undoes_is_named_and_repaired_and_nothing_is_restarted(host, playbook):
    host.check_output(f"systemctl disable {UNIT}")
    host.check_output("apt-get --yes --allow-change-held-packages purge libnvidia-nscq")
    plan = playbook("plan.yml")
    assert f"Enable {UNIT}" in plan.output
    assert f"Install libnvidia-nscq {version(host)}-1" in plan.output
    before = host.check_output(STARTED)
    done = playbook("site.yml", "-e", reports("repaired"))
    assert done.rc == 0, done.output
    assert host.service(UNIT).is_enabled
    assert host.package("libnvidia-nscq").version.split("-")[0] == version(host)
    assert "libnvidia-nscq" in host.check_output("apt-mark showhold").split()
    assert host.check_output(STARTED) == before


@pytest.mark.usefixtures("hgx")
def test_J13_one_that_was_stopped_asks_for_a_reboot_instead_of_a_start(host, playbook):
    host.check_output(f"systemctl stop {UNIT}")
    done = playbook("site.yml", "-e", "gpu_reboot=never", "-e", reports("stopped"))
    assert "has stopped since it set up the fabric" in " ".join(done.output.split())
    assert not host.service(UNIT).is_running
    repaired = playbook("site.yml", "-e", reports("rebooted"))
    assert repaired.rc == 0, repaired.output
    assert host.service(UNIT).is_running


@pytest.mark.usefixtures("hgx")
def test_N8_the_set_goes_down_and_back_together_and_the_way_back_asks_no_repository(host, playbook):
    before = version(host)
    mirror = f"http://10.213.77.1:8077/{OLDER}/NVIDIA-Linux-x86_64-{OLDER}.run.sha256sum"
    older = ("-e", f"nvidia_driver_version={OLDER}", "-e", f"nvidia_driver_runfile_checksum={mirror}")
    done = playbook("upgrade.yml", *older, "-e", reports("down"))
    assert done.rc == 0, done.output
    assert version(host) == OLDER
    assert host.package("nvidia-fabricmanager-570").version.split("-")[0] == OLDER
    assert host.service(UNIT).is_running
    kept = host.check_output("ls /var/lib/gpufleet/packages")
    assert f"nvidia-fabricmanager_{before}" in kept
    assert f"nvidia-fabricmanager-570_{OLDER}" in kept
    host.check_output("rm -r /etc/apt/sources.list.d/gpufleet-lab-vendor.list /var/lib/apt/lists")
    done = playbook("rollback.yml", "-e", reports("back"))
    assert done.rc == 0, done.output
    assert version(host) == before
    assert {host.package(name).version.split("-")[0] for name in SET} == {before}
    assert not host.package("nvidia-fabricmanager-570").is_installed
    assert host.service(UNIT).is_running


# -- without -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without")
def test_J3_the_leftover_is_switched_off_and_nothing_failed(host):
    assert host.package("nvidia-fabricmanager").is_installed, "it is disabled, not removed"
    assert not host.service(UNIT).is_enabled
    assert not host.service(UNIT).is_running
    assert host.check_output("systemctl --failed --no-legend --plain | awk '{print $1}'") == ""


@pytest.mark.usefixtures("without")
def test_J3_it_would_have_failed(host):
    done = host.run("/usr/bin/nv-fabricmanager")
    assert done.rc == 1
    assert "NV_WARN_NOTHING_TO_DO" in done.stderr


@pytest.mark.usefixtures("without")
def test_J3_nothing_of_the_set_was_installed(host):
    assert not host.package("libnvidia-nscq").is_installed
