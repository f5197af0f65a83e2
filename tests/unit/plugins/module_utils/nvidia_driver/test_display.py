# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Graphical sessions on a GPU host: found, named, and refused or stopped for a change."""

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver, display, journal
from tests.unit.hosts import Link
from tests.unit.plugins.module_utils.nvidia_driver import trees

CONCERN = NvidiaDriver()
ACTIVE = ("systemctl", "is-active", "--quiet", "display-manager.service")
STOP = ("systemctl", "stop", "display-manager")
START = ("systemctl", "start", "display-manager")
MANAGER = {display.LINK: Link("/usr/lib/systemd/system/gdm.service")}
XORG = {
    "/proc/2704/comm": "Xorg\n",
    "/proc/2704/cgroup": "0::/user.slice/user-120.slice/session-c1.scope\n",
}
BASH = {"/proc/2800/comm": "bash\n", "/proc/2800/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n"}


def refusals(host, **wanted):
    state, _difference = CONCERN.inspect(host, trees.desired(**wanted))
    return CONCERN.returns(state, trees.desired(**wanted))["refusals"]


def host_of(make_host, *files, active=True):
    tree = trees.virgin()
    for more in files:
        tree.update(more)
    return make_host(tree, {trees.ACTIVE: (3, ""), trees.MAIN_PID: (0, "0\n"), ACTIVE: (0 if active else 3, "")})


def test_text_mode_costs_no_command(make_host):
    host = make_host({**trees.virgin(), **BASH})
    found = display.Display().read(host, trees.desired())
    assert found == {"manager": None, "active": False, "servers": []}
    assert host.calls == []


def test_D2_the_display_manager_and_the_server_are_named_with_unit_and_pid(make_host):
    (refusal,) = refusals(host_of(make_host, MANAGER, XORG))
    assert refusal.startswith(
        "nvidia_driver_display: the display manager gdm.service; Xorg (pid 2704, unit session-c1.scope)."
    )
    assert "systemctl isolate multi-user.target" in refusal and "nvidia_driver_display to stop" in refusal


@pytest.mark.parametrize("command", ["Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "weston"])
def test_D3_a_server_is_found_without_a_display_manager_too(make_host, command):
    files = {"/proc/9/comm": command + "\n", "/proc/9/cgroup": "0::/user.slice/session-3.scope\n"}
    (refusal,) = refusals(host_of(make_host, files))
    assert f"{command} (pid 9, unit session-3.scope)" in refusal


def test_D3_a_display_manager_that_does_not_run_is_no_obstacle(make_host):
    assert refusals(host_of(make_host, MANAGER, active=False)) == []


def test_D2_stop_allows_a_manager_but_no_server_that_was_started_by_hand(make_host):
    assert refusals(host_of(make_host, MANAGER, XORG), display="stop") == []
    (refusal,) = refusals(host_of(make_host, XORG), display="stop")
    assert "without a display manager" in refusal


def test_D3_the_server_that_holds_the_driver_is_no_work_of_anybody_when_it_may_be_stopped():
    process = {"pid": 2704, "command": "Xorg", "unit": None, "container": None}
    member = display.Display()
    assert member.unit_of(process, trees.desired(display="stop")) == "display-manager"
    assert member.unit_of(process, trees.desired()) is None
    assert member.unit_of(dict(process, command="blender"), trees.desired(display="stop")) is None


def test_D3_a_session_over_a_complete_driver_is_left_alone(make_host):
    files = {**trees.on_disk(), **trees.loaded(), **trees.devices()}
    assert refusals(host_of(make_host, MANAGER, XORG, files)) == []


def ends(host):
    host.remove("/proc/2704/comm")
    host.commands[ACTIVE] = (3, "")
    return 0, ""


def comes_back(host):
    host.commands[ACTIVE] = (0, "")
    return 0, ""


def test_D2_the_manager_is_stopped_before_the_installer_and_started_after_the_driver(make_host):
    host = make_host({**trees.virgin(), **MANAGER, **XORG}, trees.tools())
    host.commands.update({ACTIVE: (0, ""), STOP: ends, START: comes_back})
    difference = trees.converge(CONCERN, host, trees.desired(display="stop"))
    assert difference.status == "clean", difference.items
    order = [host.calls.index(call) for call in (STOP, ("modprobe", "nvidia"), START)]
    assert order == sorted(order)
    assert host.calls.index(STOP) < next(n for n, call in enumerate(host.calls) if call[0] == "systemd-run")
    assert not any("kill" in word for call in host.calls for word in call)
    assert journal.read(host)["phase"] == "done"


def test_D2_the_manager_is_started_again_when_the_installer_fails_and_no_driver_is_left(make_host):
    host = make_host({**trees.virgin(), **MANAGER, **XORG}, trees.tools())
    failing = next(call for call in host.commands if call[0] == "systemd-run")
    host.commands.update({ACTIVE: (0, ""), STOP: ends, START: comes_back, failing: (1, "", "it failed")})
    with pytest.raises(ConcernError, match="the installer failed"):
        trees.converge(CONCERN, host, trees.desired(display="stop"))
    assert host.calls.index(STOP) < host.calls.index(failing) < host.calls.index(START)


def test_D3_a_manager_that_does_not_end_is_not_killed_and_the_installer_never_begins(make_host):
    host = make_host({**trees.virgin(), **MANAGER, **XORG}, trees.tools())
    host.commands.update({ACTIVE: (0, ""), STOP: (1, "", "Job timed out")})
    with pytest.raises(ConcernError, match="display-manager cannot be stopped"):
        trees.converge(CONCERN, host, trees.desired(display="stop"))
    assert not any(call[0] in ("systemd-run", "kill") for call in host.calls)


def test_D2_nothing_is_begun_beside_a_session_by_default(make_host):
    host = make_host({**trees.virgin(), **MANAGER, **XORG}, trees.tools())
    host.commands[ACTIVE] = (0, "")
    with pytest.raises(ConcernError, match="nvidia_driver_display"):
        trees.converge(CONCERN, host, trees.desired())
    assert STOP not in host.calls
    assert not any(call[0] == "systemd-run" for call in host.calls)
