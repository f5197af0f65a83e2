# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""auto_updates on hosts with dnf4 in the mode security. What dnf-automatic says is recorded from dnf 4.14."""

import fnmatch

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import AutoUpdates, _dnf_automatic, _units
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, validated
from tests.unit.hosts import Dir, File, Link

CONCERN = AutoUpdates()
TIMER = "dnf-automatic.timer"
UNIT = f"/usr/lib/systemd/system/{TIMER}"
FILES = {
    "/usr/bin/dnf": Link("dnf-3"),
    "/usr/bin/dnf-3": "",
    "/usr/bin/dnf-automatic": "",
    "/etc/dnf/automatic.conf": "[commands]\napply_updates = yes\nupgrade_type = default\n",
    "/run/systemd/system": Dir(),
    UNIT: "",
}
DRY_RUN = ("/usr/bin/dnf-automatic", _dnf_automatic.CONF, "--no-downloadupdates", "--no-installupdates")
AVAILABLE = """\
The following updates are available on 'host':
================================================================================
 Package                  Arch        Version                    Repo      Size
================================================================================
Upgrading:
 tzdata                   x86_64      2025b-1.el9                lab      5.4 k

Transaction Summary
================================================================================
Upgrade  1 Package
"""
NAMES = _units.names("dnf")


def dnf_host(make_host, active=(), **commands):
    """A host whose systemctl knows which units are active: ``host.active``."""

    def show(units):
        return lambda host: (
            0,
            "\n".join(f"Id={unit}\nActiveState={'active' if unit in host.active else 'inactive'}\n" for unit in units),
        )

    def change(verb):
        def answer(host):
            host.active = {TIMER} if verb == "start" else set()
            return 0, ""

        return answer

    services = [unit for unit in NAMES if unit.endswith(".service")]
    prefix = ("systemctl", "show", "--property=Id,ActiveState")
    table = {
        (*prefix, *NAMES): show(NAMES),
        (*prefix, *services): show(services),
        ("systemctl", "daemon-reload"): (0, ""),
        ("systemctl", "start", TIMER): change("start"),
        ("systemctl", "stop", TIMER): change("stop"),
        DRY_RUN: (0, AVAILABLE),
    }
    host = make_host(FILES, table)
    host.active = set(active)
    return host


def run(host, **options):
    desired = validated(CONCERN, options)
    host.forget()
    state, difference = CONCERN.inspect(host, desired)
    if difference.changed:
        CONCERN.apply(host, desired, state, difference)
        host.forget()
    return difference, CONCERN.inspect(host, desired)[1]


def test_security_updates_stay_on_and_are_told_what_to_leave_alone(make_host):
    host = dnf_host(make_host)
    _before, after = run(host, state="security", excluded_packages=["slurm"])
    assert after.status == "clean"
    assert host.active == {TIMER}
    links = {unit: host.readlink(f"{_units.DIRECTORY}/{unit}") for unit in NAMES}
    assert {unit for unit, target in links.items() if target is None} == {TIMER, "dnf-automatic.service"}
    text = host.read_text(_dnf_automatic.CONF)
    assert "upgrade_type = security\n" in text
    assert "apply_updates = yes\n" in text
    assert text.endswith(",slurm\n")
    assert f"ExecStart=\nExecStart=/usr/bin/dnf-automatic {_dnf_automatic.CONF} --timer\n" in host.read_text(
        _dnf_automatic.DROPIN
    )
    assert host.read_text("/etc/dnf/automatic.conf") == FILES["/etc/dnf/automatic.conf"]
    assert DRY_RUN in host.calls


OPERATORS = _dnf_automatic.OPERATORS
APPLYING = "[base]\napply_updates = 0\n[commands]\n# apply_updates = no\napply_updates: Yes\nupgrade_type = default\n"


def test_E12_apply_updates_of_the_operators_file_is_off_and_comes_back_byte_for_byte(make_host):
    host = dnf_host(make_host)
    host.put({OPERATORS: File(APPLYING, 0o640)})
    before, after = run(host)
    assert (after.status, f"Set apply_updates to no in {OPERATORS}" in before.actions) == ("clean", True)
    assert host.read_text(OPERATORS) == APPLYING.replace("apply_updates: Yes", "apply_updates = no")
    assert host.stat(OPERATORS).st_mode & 0o777 == 0o640
    assert run(host, state="restored")[1].status == "clean"
    assert host.read_text(OPERATORS) == APPLYING


def test_E13_a_package_that_switches_it_on_again_is_named_and_what_it_wrote_comes_back(make_host):
    host = dnf_host(make_host)
    run(host)
    host.put({OPERATORS: APPLYING})
    before, after = run(host)
    assert (before.actions, after.status) == ([f"Set apply_updates to no in {OPERATORS}"], "clean")
    run(host, state="restored")
    assert host.read_text(OPERATORS) == APPLYING


def test_what_the_operator_edits_meanwhile_stays_and_the_line_comes_back(make_host):
    host = dnf_host(make_host)
    host.put({OPERATORS: APPLYING})
    run(host)
    host.put({OPERATORS: host.read_text(OPERATORS) + "random_sleep = 9\n"})
    run(host, state="restored")
    assert host.read_text(OPERATORS) == APPLYING + "random_sleep = 9\n"
    assert run(host, state="restored")[0].status == "clean"


@pytest.mark.parametrize(
    "text", [None, "", "[commands]\napply_updates = no\n", "[emitters]\napply_updates = yes\n", "apply_updates = yes"]
)
def test_a_file_that_applies_nothing_is_left_alone(make_host, text):
    host = dnf_host(make_host)
    host.remove(OPERATORS)
    if text is not None:
        host.put({OPERATORS: text})
    run(host)
    assert host.read_text(OPERATORS) == text
    run(host, state="restored")
    assert host.read_text(OPERATORS) == text


@pytest.mark.parametrize("path", [_dnf_automatic.CONF, _dnf_automatic.DROPIN])
def test_what_was_undone_by_hand_is_named(make_host, path):
    host = dnf_host(make_host)
    run(host, state="security")
    host.remove(path)
    before, after = run(host, state="security")
    assert (before.actions, after.status) == ([f"Write {path}"], "clean")


@pytest.mark.parametrize("state", ["disabled", "restored"])
def test_no_other_mode_leaves_our_files(make_host, state):
    host = dnf_host(make_host, {TIMER})
    run(host, state="security")
    assert run(host, state=state)[1].status == "clean"
    assert (host.read_text(_dnf_automatic.CONF), host.read_text(_dnf_automatic.DROPIN)) == (None, None)
    assert host.active == (set() if state == "disabled" else {TIMER})


@pytest.mark.parametrize("name", ["kernel-core", "nvidia-container-toolkit", "libnvidia-ml", "slurm"])
def test_the_proof_fails_when_the_set_would_be_upgraded(make_host, name):
    host = dnf_host(make_host)
    row = f" {name:24} x86_64      9-1.el9                    lab      5.4 k\n"
    host.commands[DRY_RUN] = (0, AVAILABLE.replace("\nTransaction", row + "\nTransaction"))
    with pytest.raises(ConcernError, match=f"dnf-automatic would still upgrade {name}"):
        run(host, state="security", excluded_packages=["slurm"])


def test_a_dry_run_that_fails_proves_nothing(make_host):
    host = dnf_host(make_host)
    run(host, state="security")
    desired = validated(CONCERN, {"state": "security"})
    assert [check["result"] for check in CONCERN.prove(host, desired)] == ["pass"]
    host.commands[DRY_RUN] = (1, "", "Error: Failed to download metadata for repo 'lab'")
    assert [check["result"] for check in CONCERN.prove(host, desired)] == ["not_measured"]
    assert CONCERN.prove(host, validated(CONCERN, {})) == []


@pytest.mark.parametrize(
    "name",
    [
        "kernel",
        "kernel-core",
        "kernel-modules-core",
        "kernel-devel-matched",
        "kernel-rt-core",
        "nvidia-container-toolkit",
        "libnvidia-container1",
        "nvidia-fabric-manager",
        "nvidia-fabricmanager-570",
        "libnvidia-nscq",
        "nvlsm",
        "nvidia-driver-libs",
        "kmod-nvidia-open-dkms",
        "libnvidia-ml",
        "cuda-drivers",
        "xorg-x11-drv-nvidia-cuda",
    ],
)
def test_the_patterns_cover_the_set(name):
    assert any(fnmatch.fnmatchcase(name, pattern) for pattern in _dnf_automatic.PATTERNS)
    assert _dnf_automatic.touches(name)


@pytest.mark.parametrize(
    "name", ["kernel-headers", "kernel-tools", "tzdata", "nvidia-gpu-firmware", "cuda-toolkit-12-8"]
)
def test_the_patterns_leave_the_rest_to_the_security_updates(name):
    assert not any(fnmatch.fnmatchcase(name, pattern) for pattern in _dnf_automatic.PATTERNS)
    assert not _dnf_automatic.touches(name)
