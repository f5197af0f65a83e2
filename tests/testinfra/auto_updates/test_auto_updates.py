# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on a Debian host, seen by apt and systemd and not by the collection's own readers."""

import pytest

OURS = "/etc/apt/apt.conf.d/99zz-gpufleet-auto-updates"
TIMERS = ["apt-daily.timer", "apt-daily-upgrade.timer"]
UNITS = [*TIMERS, "apt-daily.service", "apt-daily-upgrade.service", "unattended-upgrades.service"]
OFF = {
    "APT::Periodic::Enable": "0",
    "APT::Periodic::Update-Package-Lists": "0",
    "APT::Periodic::Download-Upgradeable-Packages": "0",
    "APT::Periodic::Unattended-Upgrade": "0",
    "Unattended-Upgrade::InstallOnShutdown": "false",
    "Unattended-Upgrade::Automatic-Reboot": "false",
}


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


def effective(host):
    lines = host.check_output("apt-config dump").splitlines()
    settings = dict(line.rstrip(";").split(" ", 1) for line in lines if " " in line)
    return {key: settings.get(key, "").strip('"') for key in OFF}


def masked(host):
    return {unit: host.check_output("systemctl is-enabled %s || true", unit) for unit in UNITS}


def test_E12_apt_says_that_updates_are_off(host):
    assert effective(host) == OFF


def test_our_file_is_an_ordinary_one_of_root(host):
    ours = host.file(OURS)
    assert (ours.user, ours.group, ours.mode) == ("root", "root", 0o644)


@pytest.mark.parametrize("unit", UNITS)
def test_E13_units_are_masked_and_do_nothing(host, unit):
    assert host.check_output("systemctl is-enabled %s || true", unit) == "masked"
    assert host.check_output("systemctl is-active %s || true", unit) == "inactive"


def test_a_masked_timer_cannot_be_started(host):
    assert host.run("systemctl start apt-daily.timer").rc != 0


def test_no_timer_is_left_that_updates_packages(host):
    listed = host.check_output("systemctl list-timers --no-legend")
    assert not [timer for timer in TIMERS if timer in listed]


def test_E13_reconfiguring_unattended_upgrades_does_not_switch_it_on(host):
    if not host.package("unattended-upgrades").is_installed:
        pytest.skip("unattended-upgrades is not installed")
    answer = "unattended-upgrades unattended-upgrades/enable_auto_updates boolean true"
    host.check_output("echo %s | debconf-set-selections", answer)
    host.check_output("dpkg-reconfigure --frontend=noninteractive unattended-upgrades apt")
    assert 'Unattended-Upgrade "1"' in host.file("/etc/apt/apt.conf.d/20auto-upgrades").content_string
    assert effective(host) == OFF
    assert set(masked(host).values()) == {"masked"}


def test_E13_reinstalling_the_packages_does_not_switch_it_on(host):
    packages = [name for name in ("apt", "unattended-upgrades") if host.package(name).is_installed]
    if host.run("apt-get -q -o Acquire::Languages=none update --error-on=any").rc:
        pytest.skip("no package repository can be reached")
    done = host.run("DEBIAN_FRONTEND=noninteractive apt-get install -y --reinstall " + " ".join(packages))
    if "cannot be downloaded" in done.stdout:
        pytest.skip("the repositories do not have the installed versions any more")
    assert done.rc == 0, done.stderr
    for name in packages:
        assert f"Setting up {name} (" in done.stdout
    assert effective(host) == OFF
    assert set(masked(host).values()) == {"masked"}
    assert "active" not in host.check_output("systemctl is-active %s %s || true", *TIMERS).split()


def test_E15_E16_needrestart_lists_and_leaves_the_daemons_alone(host):
    if not host.package("needrestart").is_installed:
        pytest.skip("needrestart is not installed")
    program = (
        "our %nrconf; do '/etc/needrestart/needrestart.conf'; "
        'print "mode=$nrconf{restart}"; '
        "foreach my $re (keys %{$nrconf{override_rc}}) { "
        'print " kept" if "docker.service" =~ /$re/ and not $nrconf{override_rc}->{$re} }'
    )
    assert host.check_output("perl -e %s", program) == "mode=l kept"
    assert host.run("timeout 60 needrestart -b < /dev/null").rc == 0


def test_unattended_upgrade_has_nothing_to_run_it_at_shutdown(host):
    assert host.process.filter(comm="unattended-upgr") == []
