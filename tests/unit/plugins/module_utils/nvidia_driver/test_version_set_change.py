# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver of a machine with NVSwitches changes as a whole: with its fabric manager, and back with it."""

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver, fabric_packages
from tests.unit.hosts import Link
from tests.unit.plugins.module_utils.nvidia_driver import test_fabric, test_transaction, trees
from tests.unit.plugins.module_utils.nvidia_driver.trees import OLDER, VERSION

CONCERN = NvidiaDriver()
NEW_NAMES = ("libnvidia-nscq", "nvidia-fabricmanager")
OLD_NAMES = test_fabric.OLD_NAMES
UNIT = test_fabric.fabric.UNIT
START = ("systemctl", "start", UNIT)
#: The transaction starts a unit that it had stopped under its short name.
START_AGAIN = ("systemctl", "start", "nvidia-fabricmanager")
STOP = ("systemctl", "stop", "nvidia-fabricmanager")
PROCESS = "/proc/300"


def fabric_manager(host):
    """The version of the fabric manager that is installed."""
    packages = fabric_packages._packages.installed(host)
    return next(packages[name]["version"].split("-")[0] for name in packages if "fabricmanager" in name)


def starts(host):
    """As the real one: only beside a driver of its own version."""
    host.forget()
    loaded = host.read_value("/sys/module/nvidia/version")
    if loaded != fabric_manager(host):
        return 1, "", f"fabric manager {fabric_manager(host)} beside driver {loaded}"
    host.put({**trees.user_of(300, "nv-fabricmanager", f"/system.slice/{UNIT}"), "/run/fm-ran": ""})
    return 0, ""


def stops(host):
    trees.shutil.rmtree(host.path(PROCESS))
    host.forget()
    return 0, ""


def becomes(status, *words):
    """apt-get install, which leaves the files that it fetched."""
    return trees.does({"/var/lib/dpkg/status": status, **test_fabric.downloaded(*words)})


def hgx(make_host):
    """A machine with NVSwitches on which an older driver works with its fabric manager."""
    host = test_transaction.upgradable(make_host)
    host.put({**test_fabric.SWITCH, **test_fabric.APT_LIST, "/var/lib/dpkg/status": test_fabric.OLD})
    host.put({test_fabric.WANTS: Link("x")})
    forward = (*test_fabric.WORDS, *(name + "-" for name in OLD_NAMES))
    back = (
        *(test_fabric.file_of(name, f"{OLDER}-1") for name in OLD_NAMES),
        *(name + "-" for name in NEW_NAMES),
    )
    install = test_fabric.INSTALL[: -len(test_fabric.WORDS)]
    simulate = test_fabric.SIMULATE[: -len(test_fabric.WORDS)]
    host.commands.update(
        {
            test_fabric.MADISON_OVER_OLD: (0, test_fabric.OFFER + test_fabric.OFFER_OLD),
            test_fabric.ACTIVE: lambda host: (0 if host.exists(PROCESS) else 3, ""),
            test_fabric.RAN: lambda host: (0, "5\n" if host.exists("/run/fm-ran") else "0\n"),
            **{STOP: stops, START: starts, START_AGAIN: starts},
            test_fabric.JOURNAL: (0, test_fabric.MISMATCH),
            **test_fabric.downloads(*(f"{name}={OLDER}-1" for name in OLD_NAMES)),
            **{(*simulate, *words): (0, "") for words in (forward, back)},
            (*install, *forward): becomes(test_fabric.COMPLETE, *test_fabric.WORDS),
            (*install, *back): becomes(test_fabric.OLD),
        }
    )
    assert starts(host) == (0, "")
    host.calls.clear()
    return host


def whole(host, version):
    """Driver, fabric manager and the running one are of one version."""
    assert test_transaction.has(host, version)
    assert fabric_manager(host) == version
    assert host.exists(PROCESS), "the fabric manager runs"
    return True


def numbers(host, *calls):
    return [host.calls.index(call) for call in calls]


def test_N1_J13_stop_install_load_start_in_this_order_and_no_restart(make_host):
    host = hgx(make_host)
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert whole(host, VERSION)
    packages = next(call for call in host.calls if f"nvidia-fabricmanager={VERSION}-1" in call and call[1] == "install")
    order = numbers(host, STOP, ("rmmod", "nvidia"), test_transaction.INSTALL, packages, ("modprobe", "nvidia"), START)
    assert order == sorted(order)
    services = [
        number
        for number, call in enumerate(host.calls)
        if call[:2] in (("systemctl", "start"), ("systemctl", "restart"))
    ]
    assert min(services) > order[-2], "nothing is started before the driver is loaded"
    assert not any(call[:2] == ("systemctl", "restart") and UNIT in call for call in host.calls)


def test_N1_what_was_stopped_waits_for_the_reboot_that_loads_its_version(make_host):
    host = hgx(make_host)
    host.put({"/sys/module/nvidia_uvm/refcnt": "1\n"})  # seen once the daemons' files are closed
    beside = trees.installer("--allow-installation-with-running-driver", environment=test_transaction.CC)
    host.commands[beside] = trees.installs()
    difference = trees.converge(CONCERN, host, trees.desired())
    assert difference.status == "pending", difference.items
    assert host.read_value("/sys/module/nvidia/version") == OLDER
    assert fabric_manager(host) == VERSION
    assert STOP in host.calls
    assert not {START, START_AGAIN} & set(host.calls), "beside the old driver it would only fail"


def test_J1_N8_a_fabric_manager_that_does_not_start_takes_the_whole_set_back(make_host):
    host = hgx(make_host)

    def refuses(host):
        return starts(host) if fabric_manager(host) == OLDER else (1, "", "it refuses")

    host.commands.update({START: refuses, START_AGAIN: refuses})
    with pytest.raises(ConcernError, match=f"it refuses(.|\n)*Driver {OLDER} is back"):
        trees.converge(CONCERN, host, trees.desired())
    assert whole(host, OLDER)


def test_N8_previous_goes_back_with_the_fabric_manager_when_no_repository_answers_any_more(make_host):
    host = hgx(make_host)
    trees.converge(CONCERN, host, trees.desired())
    host.put({"/sys/module/nvidia/refcnt": "1\n"})
    host.remove(*test_fabric.APT_LIST)
    assert trees.converge(CONCERN, host, validated(CONCERN, {"state": "previous"})).status == "clean"
    assert whole(host, OLDER)


def test_N8_a_set_that_no_repository_has_is_refused_before_the_first_step(make_host):
    host = hgx(make_host)
    host.commands[test_fabric.MADISON_OVER_OLD] = (0, test_fabric.OFFER_OLD)
    before = host.tree()
    with pytest.raises(ConcernError, match=f"no repository of this host has nvidia-fabricmanager or .* {VERSION}"):
        trees.converge(CONCERN, host, trees.desired())
    assert host.tree() == before
    assert whole(host, OLDER)
