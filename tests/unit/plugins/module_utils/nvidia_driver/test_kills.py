# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Killed before any single change that it makes, alone or with the whole host: the next run ends in the old state or
in the new one. ``tests/kills`` shows the same, a phase at a time, on hosts with real processes."""

import hashlib

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver, journal, last_good
from tests.unit.plugins.module_utils.nvidia_driver import trees
from tests.unit.plugins.module_utils.nvidia_driver.machine import DAEMON, Killed, Machine
from tests.unit.plugins.module_utils.nvidia_driver.trees import KERNEL, NEWER, OLDER, VERSION

CONCERN = NvidiaDriver()
OLD_RUNFILE = f"/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{OLDER}.run"
OLD_CONTENT = b"#!/bin/sh\n# older\n"
OLD = trees.desired(version=OLDER, runfile_sha256=hashlib.sha256(OLD_CONTENT).hexdigest())
NEW = trees.desired()
ABSENT = validated(CONCERN, {"state": "absent"})
PREVIOUS = validated(CONCERN, {"state": "previous"})
ALONE_OR_NOT = pytest.mark.parametrize("whole", [False, True], ids=["module", "host"])


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """``machine(files) -> Machine``, each on a tree of its own."""
    return lambda files: Machine(tmp_path_factory.mktemp("host"), files)


@pytest.fixture(scope="module")
def killed(machine):
    """``killed(wanted, whole, *before, broken=()) -> [(where, Machine)]``: the hosts that a next run may find.

    There are two kernels and both runfiles; each document of ``before`` was made true in its turn, then a run towards
    ``wanted`` was killed before one of its changes, whichever leaves another host behind than the one before.
    """
    known = {}

    def snapshots(wanted, whole, *before, broken=()):
        host = machine({**trees.virgin(), **trees.kernel(NEWER), OLD_RUNFILE: OLD_CONTENT, "/sys/module/kernel/x": ""})
        for document in before:
            assert trees.converge(CONCERN, host, document).status == "clean"
            host.put({trees.RUNFILE: trees.CONTENT, OLD_RUNFILE: OLD_CONTENT})
        begin, found = host.snapshot(), []
        for point in range(1, 300):
            host = machine(begin)
            host.kill_at, host.whole, host.broken = point, whole, set(broken)
            try:
                trees.converge(CONCERN, host, wanted)
            except Killed:
                host.revive()
                left = host.snapshot()
                if not found or left != found[-1][1]:
                    found.append((f"killed before change {point}", left))
            except ConcernError:
                assert broken
                break
            else:
                break
        assert len(found) > 5
        return found

    def hosts(wanted, whole, *before, broken=()):
        key = repr((wanted, whole, before, broken))
        if key not in known:
            known[key] = snapshots(wanted, whole, *before, broken=broken)
        for where, left in known[key]:
            yield where, machine(left)

    return hosts


def is_whole(host, wanted):
    state, difference = CONCERN.inspect(host, wanted)
    assert difference.status == "clean", difference.items
    assert set(state["traces"]) == {wanted["version"]}
    assert state["driver"]["loaded"]["version"] == wanted["version"]
    assert set(state["driver"]["modules"].values()) == {wanted["version"]}
    assert {row["kernel"] for row in state["driver"]["dkms"]} == {KERNEL, NEWER}
    assert host.exists(DAEMON)
    assert journal.read(host)["phase"] == "done"
    assert journal.read(host)["stopped"] == []
    return True


def is_bare(host):
    """No driver, and nothing of one."""
    state, _difference = CONCERN.inspect(host, NEW)
    assert not state["traces"]
    assert not any(state["driver"]["modules"].values())
    assert not state["driver"]["library"]
    assert not [path for path in host.tree("/etc") if "gpufleet-nvidia" in path]
    return True


@ALONE_OR_NOT
def test_an_upgrade_that_was_killed_is_completed_and_keeps_its_way_back(killed, whole):
    for where, host in killed(NEW, whole, OLD):
        assert trees.converge(CONCERN, host, NEW).status == "clean", where
        assert is_whole(host, NEW), where
        assert last_good.read(host)["version"] == OLDER, where


@ALONE_OR_NOT
def test_an_upgrade_that_was_killed_goes_back_where_it_cannot_be_completed(killed, whole):
    for where, host in killed(NEW, whole, OLD):
        host.broken = {VERSION}
        host.dkms_fails = {VERSION}
        try:
            trees.converge(CONCERN, host, NEW)
        except ConcernError:
            assert is_whole(host, OLD), where
        else:
            assert is_whole(host, NEW), where


@ALONE_OR_NOT
def test_a_change_of_flavour_that_was_killed_is_completed_and_keeps_its_way_back(killed, whole):
    other = dict(OLD, kernel_module_type="proprietary")
    for where, host in killed(other, whole, OLD):
        assert trees.converge(CONCERN, host, other).status == "clean", where
        assert is_whole(host, other), where
        assert last_good.read(host)["flavour"] == "open", where


@ALONE_OR_NOT
def test_a_way_back_that_was_killed_is_followed_by_the_new_driver(killed, whole):
    for where, host in killed(NEW, whole, OLD, broken={VERSION}):
        assert trees.converge(CONCERN, host, NEW).status == "clean", where
        assert is_whole(host, NEW), where


@ALONE_OR_NOT
def test_a_way_back_that_was_killed_is_gone_to_its_end_where_the_new_driver_fails_again(killed, whole):
    for where, host in killed(NEW, whole, OLD, broken={VERSION}):
        host.broken = {VERSION}
        with pytest.raises(ConcernError):
            trees.converge(CONCERN, host, NEW)
        assert is_whole(host, OLD), where


@ALONE_OR_NOT
def test_a_first_installation_that_was_killed_is_completed(killed, whole):
    for where, host in killed(NEW, whole):
        assert trees.converge(CONCERN, host, NEW).status == "clean", where
        assert is_whole(host, NEW), where
        assert last_good.read(host) is None, where


@ALONE_OR_NOT
def test_a_first_installation_that_was_killed_leaves_nothing_where_it_cannot_be_completed(killed, whole):
    for where, host in killed(NEW, whole):
        host.broken = {VERSION}
        host.dkms_fails = {VERSION}
        try:
            trees.converge(CONCERN, host, NEW)
        except ConcernError:
            assert is_bare(host), where
        else:
            assert is_whole(host, NEW), where


@ALONE_OR_NOT
def test_a_first_installation_that_was_killed_leaves_nothing_where_the_next_run_is_refused(killed, whole):
    for where, host in killed(NEW, whole):
        loaded = host.exists("/sys/module/nvidia")
        with pytest.raises(ConcernError, match="too old"):
            trees.converge(CONCERN, host, trees.desired(kernel_module_type="proprietary", version="400.10.01"))
        assert loaded or is_bare(host), where


@ALONE_OR_NOT
def test_a_withdrawal_that_was_killed_is_completed_or_the_driver_is_installed(killed, whole):
    for again in ({VERSION}, set()):
        for where, host in killed(NEW, whole, broken={VERSION}):
            host.broken = again
            if again:
                with pytest.raises(ConcernError):
                    trees.converge(CONCERN, host, NEW)
                assert is_bare(host), where
            else:
                assert trees.converge(CONCERN, host, NEW).status == "clean", where
                assert is_whole(host, NEW), where


@ALONE_OR_NOT
def test_a_removal_that_was_killed_is_completed_or_undone(killed, whole):
    for wanted in (ABSENT, OLD):
        for where, host in killed(ABSENT, whole, OLD):
            host.put({OLD_RUNFILE: OLD_CONTENT})
            assert trees.converge(CONCERN, host, wanted).status in ("clean", "pending"), where
            assert is_bare(host) if wanted is ABSENT else is_whole(host, OLD), where


@ALONE_OR_NOT
def test_a_roll_back_that_was_killed_is_completed_and_leads_to_the_same_set(killed, whole):
    for where, host in killed(PREVIOUS, whole, OLD, NEW):
        assert trees.converge(CONCERN, host, PREVIOUS).status == "clean", where
        assert is_whole(host, OLD), where
        assert last_good.read(host)["version"] == OLDER, where
