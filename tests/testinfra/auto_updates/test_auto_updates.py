# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on a Debian host, seen by apt and systemd and not by the collection's own readers.

The host's repositories offer newer versions of the driver set, the kernel and one other package, and no lock is there
(molecule/auto_updates/prepare.yml). The tests run in this order: updates off, security updates on, all as before.
"""

import json
import re
from pathlib import Path

import pytest

CONVERGE = Path(__file__).parents[3] / "molecule/shared/converge.yml"
OURS = "/etc/apt/apt.conf.d/99zz-gpufleet-auto-updates"
TIMERS = ["apt-daily.timer", "apt-daily-upgrade.timer"]
UNITS = [*TIMERS, "apt-daily.service", "apt-daily-upgrade.service", "unattended-upgrades.service"]
OTHERS = ["fwupd-refresh.timer", "fwupd-refresh.service", "packagekit-offline-update.service"]
SET = {
    "nvidia-container-toolkit": "1.17.8-1",
    "nvidia-container-toolkit-base": "1.17.8-1",
    "libnvidia-container-tools": "1.17.8-1",
    "libnvidia-container1": "1.17.8-1",
    "nvlsm": "2025.03.1-1",
    "linux-image-cloud-amd64": "1.0-1",
    "linux-headers-cloud-amd64": "1.0-1",
}
OFF = {
    "APT::Periodic::Enable": "0",
    "APT::Periodic::Update-Package-Lists": "0",
    "APT::Periodic::Download-Upgradeable-Packages": "0",
    "APT::Periodic::Unattended-Upgrade": "0",
    "Unattended-Upgrade::InstallOnShutdown": "false",
    "Unattended-Upgrade::Automatic-Reboot": "false",
}


def effective(host):
    lines = host.check_output("apt-config dump").splitlines()
    settings = dict(line.rstrip(";").split(" ", 1) for line in lines if " " in line)
    return {key: settings.get(key, "").strip('"') for key in OFF}


@pytest.fixture
def role(playbook):
    """Run the role as converge did, with these variables more; it must succeed."""

    def run(**variables):
        done = playbook(str(CONVERGE), "-e", json.dumps(variables))
        assert done.rc == 0, done.output
        return done

    return run


def versions(host, names):
    return {name: host.package(name).version for name in names}


def masked(host):
    return {unit: host.check_output("systemctl is-enabled %s || true", unit) for unit in UNITS}


def test_E12_apt_says_that_updates_are_off(host):
    assert effective(host) == OFF


def test_our_file_is_an_ordinary_one_of_root(host):
    ours = host.file(OURS)
    assert (ours.user, ours.group, ours.mode) == ("root", "root", 0o644)


@pytest.mark.parametrize("unit", [*UNITS, *OTHERS])
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


def test_E15_needrestart_asks_nothing_on_a_terminal(host):
    done = host.run("timeout 100 script --quiet --return --command needrestart /dev/null < /dev/null")
    assert done.rc == 0, done.stdout


def test_unattended_upgrade_has_nothing_to_run_it_at_shutdown(host):
    assert host.process.filter(comm="unattended-upgr") == []


# -- security updates stay on ----------------------------------------------------------------------------------------


def dry_run(host):
    """Names that unattended-upgrade would upgrade now."""
    done = host.run("unattended-upgrade --dry-run --debug")
    assert done.rc == 0, done.stderr
    lines = re.findall(r"^Packages that will be upgraded:(.*)$", done.stdout + done.stderr, re.MULTILINE)
    return {name for line in lines for name in line.split()}


def test_security_mode_enables_and_starts_the_timers(host, role):
    role(auto_updates_state="security")
    for timer in TIMERS:
        assert host.service(timer).is_enabled and host.service(timer).is_running
    for unit in OTHERS:
        assert host.check_output("systemctl is-enabled %s || true", unit) == "masked"
    assert role(auto_updates_state="security").recap["changed"] == 0


def test_E12_security_mode_is_what_apt_says_and_the_operators_own_exclusions_stay(host):
    now = effective(host)
    assert (now["APT::Periodic::Enable"], now["APT::Periodic::Unattended-Upgrade"]) == ("1", "1")
    assert (now["Unattended-Upgrade::Automatic-Reboot"], now["Unattended-Upgrade::InstallOnShutdown"]) == (
        "false",
        "false",
    )
    listed = re.findall(
        r'^Unattended-Upgrade::Package-Blacklist:: "(.*)";$', host.check_output("apt-config dump"), re.M
    )
    assert "mine" in listed
    assert [pattern for pattern in listed if re.match(pattern, "linux-image-99.0.0-1-cloud-amd64")]
    assert not [pattern for pattern in listed if re.match(pattern, "lab-canary")]


def test_without_our_exclusion_the_set_would_be_upgraded(host):
    host.check_output("sed -i.kept /Blacklist/d %s", OURS)
    try:
        assert dry_run(host) >= {*SET, "lab-canary"}
    finally:
        host.check_output("mv %s.kept %s", OURS, OURS)


def test_an_unattended_upgrade_upgrades_the_rest_and_nothing_of_the_set(host):
    assert versions(host, SET) == SET
    assert host.package("lab-canary").version == "1.0-1"
    done = host.run("unattended-upgrade --verbose")
    assert done.rc == 0, done.stderr
    assert host.package("lab-canary").version == "1.1-1"
    assert versions(host, SET) == SET
    assert not host.package("linux-image-99.0.0-1-cloud-amd64").is_installed
    assert not host.file("/var/run/reboot-required").exists


def test_E13_switching_updates_off_by_debconf_does_not_stop_security_mode(host):
    answer = "unattended-upgrades unattended-upgrades/enable_auto_updates boolean false"
    host.check_output("echo %s | debconf-set-selections", answer)
    host.check_output("dpkg-reconfigure --frontend=noninteractive unattended-upgrades")
    assert effective(host)["APT::Periodic::Unattended-Upgrade"] == "1"


@pytest.mark.parametrize(
    ("undo", "words"),
    [
        ("systemctl disable --now apt-daily-upgrade.timer", "Enable and start apt-daily-upgrade.timer"),
        ("systemctl stop apt-daily.timer", "Start apt-daily.timer"),
        ("rm " + OURS, "Set Unattended-Upgrade::Automatic-Reboot to false"),
    ],
)
def test_what_is_undone_by_hand_is_named_by_the_plan_and_repaired(host, playbook, role, undo, words):
    host.check_output(undo)
    plan = playbook("plan.yml", "-e", "auto_updates_state=security")
    assert plan.rc == 0 and words in plan.output, plan.output
    role(auto_updates_state="security")
    assert all(host.service(timer).is_running for timer in TIMERS)
    assert "Blacklist" in host.file(OURS).content_string


# -- as it was before ------------------------------------------------------------------------------------------------


def test_restored_puts_back_what_was_there_byte_for_byte(host, role):
    # What the tests above had debconf and the package's scripts write is not the role's.
    host.check_output("cp /etc/apt/apt.conf.d/10periodic /etc/apt/apt.conf.d/20auto-upgrades")
    role(auto_updates_state="restored")
    written = re.compile(r"/etc/apt/(apt.conf.d/20auto-upgrades.ucf-dist|sources.list) ")
    texts = host.check_output("what-is-there"), host.file("/root/before").content_string
    now, before = ([line for line in text.splitlines() if line and not written.match(line)] for text in texts)
    assert now == before
    # The operator's own: a timer that was off, a unit that was masked, a file that our needrestart drop-in overrides.
    assert before[-6:] == ["disabled", "enabled", "enabled", "inactive", "active", "active"]
    for path in (
        "apt/apt.conf.d/20auto-upgrades",
        "needrestart/conf.d/50-site.conf",
        "systemd/system/fwupd-refresh.timer",
    ):
        assert [line for line in before if line.startswith(f"/etc/{path} ")]
    assert role(auto_updates_state="restored").recap["changed"] == 0


def test_E14_a_running_package_operation_is_waited_for_and_its_holder_named(host, playbook, role):
    host.check_output("apt-get -qq update")
    # Its installation takes half a minute.
    host.check_output(
        "systemd-run --unit=slow --setenv=DEBIAN_FRONTEND=noninteractive apt-get install -y nvlsm=2025.10.0-1"
    )
    host.check_output("timeout 60 sh -c 'until pgrep -f nvlsm[.]postinst; do sleep 0.2; done'")
    hurried = playbook(str(CONVERGE), "-e", '{"auto_updates_wait_timeout": 1}')
    assert hurried.rc != 0
    assert re.search(r"(apt-get|dpkg) \(pid \d+\) holds /var/lib/dpkg/lock", " ".join(hurried.output.split()))
    assert effective(host) == OFF
    role()
    assert host.package("nvlsm").version == "2025.10.0-1"
    assert host.check_output("dpkg --audit") == ""
