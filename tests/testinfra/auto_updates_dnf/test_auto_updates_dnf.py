# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on hosts with dnf, seen by systemd, dnf and rpm and not by the collection's own readers.

The timers of its automatic updates were on before, all but one (molecule/auto_updates_dnf/prepare.yml).
"""

import json
import time
from pathlib import Path

import pytest

CONVERGE = Path(__file__).parents[3] / "molecule/shared/converge.yml"
TIMERS4 = [f"dnf-automatic{kind}.timer" for kind in ("", "-download", "-install", "-notifyonly")]
TIMERS5 = ["dnf5-automatic.timer"]
OTHERS = ["fwupd-refresh.timer", "packagekit-offline-update.service"]


@pytest.fixture
def timers(host):
    """The timers that this host's dnf has."""
    return TIMERS5 if host.file("/usr/bin/dnf5").exists else TIMERS4


def services(timers):
    return [timer.replace(".timer", ".service") for timer in timers]


def state(host, unit):
    done = host.run("systemctl show --property=UnitFileState,ActiveState,LoadState %s", unit)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def packages(host):
    return {row for row in host.check_output("rpm -qa").splitlines() if not row.startswith("gpg-pubkey")}


def converge(playbook, **variables):
    return playbook(CONVERGE, "-e", json.dumps(variables))


def test_every_unit_is_masked_and_none_runs(host, timers):
    for unit in [*TIMERS4, *TIMERS5, *services(TIMERS4), *services(TIMERS5), *OTHERS]:
        found = state(host, unit)
        assert (found["LoadState"], found["ActiveState"]) == ("masked", "inactive"), unit
    upcoming = host.check_output("systemctl list-timers")
    assert not [timer for timer in timers if timer in upcoming]


def test_E12_who_runs_the_program_by_other_ways_installs_nothing(host):
    """dnf4's program itself; dnf5's is a plugin that Debian does not have."""
    assert "apply_updates = no" in host.file("/etc/dnf/automatic.conf").content_string
    if host.file("/usr/bin/dnf-automatic").exists:
        before = packages(host)
        host.check_output("dnf-automatic /etc/dnf/automatic.conf")
        assert packages(host) == before


def test_E13_nobody_starts_an_update_through_systemd(host, timers):
    before = packages(host)
    for unit in [*timers, *services(timers)]:
        assert host.run("systemctl start %s", unit).rc != 0
    assert packages(host) == before


def test_an_upgrade_by_hand_goes_on(host):
    before = packages(host)
    host.check_output("dnf -y upgrade tzdata")
    assert len(before ^ packages(host)) == 2


def test_the_plan_names_a_unit_that_was_unmasked_and_the_role_masks_it_again(host, playbook, timers):
    host.check_output("systemctl unmask %s %s", timers[-1], services(timers)[-1])
    host.check_output("systemctl start %s", timers[-1])
    assert f"Mask and stop {timers[-1]}" in playbook("plan.yml").output
    assert converge(playbook).recap["changed"] == 1
    found = state(host, timers[-1])
    assert (found["LoadState"], found["ActiveState"]) == ("masked", "inactive")
    assert converge(playbook).recap["changed"] == 0


def test_E14_a_transaction_at_work_is_waited_for_and_named_and_never_ended(host, playbook, timers):
    """Whoever holds rpm's lock: here a program that holds it as rpm does."""
    program = "import fcntl,time; f=open('/var/lib/rpm/.rpm.lock','w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(600)"
    host.check_output("systemd-run --unit=at-work /usr/bin/python3 -c %s", program)
    try:
        time.sleep(2)
        pid = host.check_output("systemctl show --property=MainPID --value at-work")
        host.check_output("systemctl unmask %s", timers[0])
        run = converge(playbook, auto_updates_wait_timeout=3)
        assert run.rc != 0
        assert f"python3 (pid {pid}) holds /var/lib/rpm/.rpm.lock" in " ".join(run.output.split())
        assert state(host, "at-work")["ActiveState"] == "active"
    finally:
        host.check_output("systemctl stop at-work")
    assert converge(playbook).rc == 0


def test_security_updates_go_on_without_the_set(host, playbook, timers):
    """Here no lock restrains dnf: only what this role told dnf-automatic."""
    if timers != TIMERS4:
        refused = converge(playbook, auto_updates_state="security")
        assert "security is for hosts with apt or dnf4" in " ".join(refused.output.split())
        return
    host.check_output("dnf -y downgrade tzdata")
    assert converge(playbook, auto_updates_state="security").rc == 0
    assert state(host, timers[0])["ActiveState"] == "active"
    assert [state(host, timer)["LoadState"] for timer in timers[1:]] == ["masked"] * 3
    assert "kernel-core" in host.run("dnf -q check-upgrade --security").stdout
    before = packages(host)
    host.check_output("systemctl start dnf-automatic.service")
    assert {row.partition("-2")[0] for row in before ^ packages(host)} == {"tzdata"}
    assert converge(playbook, auto_updates_state="security").recap["changed"] == 0


def test_restored_puts_back_what_was_there_byte_for_byte(host, playbook):
    """The last test: it takes the role's work away."""
    assert converge(playbook, auto_updates_state="restored").rc == 0
    before = host.file("/root/before").content_string
    assert host.check_output("what-is-there").splitlines() == before.splitlines()
    assert "enabled" in before and "/etc/systemd/system/fwupd-refresh.timer l 777 /dev/null" in before
    assert converge(playbook, auto_updates_state="restored").recap["changed"] == 0
