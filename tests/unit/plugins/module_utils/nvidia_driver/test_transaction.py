# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From one driver to another and back, on literal trees: every transition, every phase in which a run may die."""

import json

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, InvalidDesired, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    NvidiaDriver,
    boot,
    fabric_packages,
    journal,
    last_good,
    options,
)
from tests.unit.hosts import Dir
from tests.unit.plugins.module_utils.nvidia_driver import trees
from tests.unit.plugins.module_utils.nvidia_driver.trees import KERNEL, OLDER, VERSION

CONCERN = NvidiaDriver()
OLD_RUNFILE = f"/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{OLDER}.run"
CC = ("CC=/usr/bin/gcc-12",)
INSTALL = trees.installer(environment=CC)
BACK = trees.installer(environment=CC, runfile=OLD_RUNFILE)
UNINSTALL = ("/usr/bin/nvidia-uninstall", "--silent", "--ui=none")
UNLOADED = trees.takes("/sys/module/nvidia", "/sys/module/nvidia_uvm", "/proc/driver/nvidia")


def loads(host):
    """modprobe nvidia: the module of the running kernel that is on disk."""
    text = host.read_bytes(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
    version = text.partition(b"version=")[2].partition(b"\0")[0].decode()
    flavour = "proprietary" if b"license=NVIDIA" in text else "open"
    host.put({**trees.loaded(version, flavour), **trees.devices()})
    return 0, ""


def upgradable(make_host):
    """A host on which this role made an older driver work, and the runfiles of both versions."""
    host = make_host(
        {**trees.virgin(), **trees.on_disk(OLDER), OLD_RUNFILE: b"#!/bin/sh\n# older\n"},
        trees.tools()
        | {
            BACK: trees.installs(OLDER),
            ("/bin/sh", OLD_RUNFILE, "--check"): (0, ""),
            ("modprobe", "nvidia"): loads,
            ("rmmod", "nvidia_uvm"): trees.takes("/sys/module/nvidia_uvm", "/sys/module/nvidia/holders/nvidia_uvm"),
            ("rmmod", "nvidia"): trees.takes("/sys/module/nvidia", "/proc/driver/nvidia"),
            **trees.removes_rest(OLDER),
            **trees.removes_rest(VERSION),
        },
    )
    loads(host)
    assert trees.converge(CONCERN, host, old()).status == "clean"
    host.put({"/sys/module/nvidia/refcnt": "1\n", trees.RUNFILE: trees.CONTENT})
    host.calls.clear()
    return host


def old(**changes):
    return trees.desired(version=OLDER, runfile_sha256=sha256(b"#!/bin/sh\n# older\n"), **changes)


def sha256(content):
    return trees.hashlib.sha256(content).hexdigest()


def has(host, version):
    """The version that is on disk and loaded, with no trace of another."""
    state, difference = CONCERN.inspect(host, trees.desired() if version == VERSION else old())
    assert difference.status == "clean", difference.items
    assert set(state["traces"]) == {version}
    return state["driver"]["loaded"]["version"] == version


def breaks_after_the_old_one_is_gone(host):
    trees.installs()(host)
    host.remove(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
    return 1, "", "ERROR: the disk is on fire"


# -- forward -------------------------------------------------------------------------------------------------------


def test_an_upgrade_records_the_driver_that_it_replaced(make_host):
    host = upgradable(make_host)
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert has(host, VERSION)
    found = last_good.read(host)
    assert (found["version"], found["flavour"], found["runfile"]) == (OLDER, "open", OLD_RUNFILE)
    assert found["persistence"] is True


def test_runfiles_that_no_way_leads_to_are_removed(make_host):
    host = upgradable(make_host)
    oldest = "/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-550.127.08.run"
    host.put({oldest: "", "/var/lib/gpufleet/runfiles/550.127.08.sha256sum": ""})
    trees.converge(CONCERN, host, trees.desired())
    assert host.listdir("/var/lib/gpufleet/runfiles") == sorted(
        path.rsplit("/", 1)[1] for path in (trees.RUNFILE, OLD_RUNFILE)
    )


def test_D9_another_flavour_of_the_same_version_is_a_change_with_a_way_back(make_host):
    host = upgradable(make_host)
    other = trees.installer(environment=CC, runfile=OLD_RUNFILE, flavour="proprietary")
    host.commands[other] = trees.installs(OLDER, flavour="proprietary")
    wanted = old(kernel_module_type="proprietary")
    _state, difference = CONCERN.inspect(host, wanted)
    assert "kernel module flavour" in {item["what"] for item in difference.items}
    assert trees.converge(CONCERN, host, wanted).status == "clean"
    assert CONCERN.inspect(host, wanted)[0]["driver"]["loaded"]["flavour"] == "proprietary"
    assert last_good.read(host)["flavour"] == "open"
    host.calls.clear()
    assert trees.converge(CONCERN, host, trees.desired(state="previous")).status == "clean"
    assert CONCERN.inspect(host, old())[0]["driver"]["loaded"]["flavour"] == "open"


def test_D9_a_driver_that_waited_for_its_first_boot_is_a_way_back_for_another_flavour(make_host):
    host = upgradable(make_host)
    host.put({journal.PATH: json.dumps(dict(journal.read(host), phase=journal.STAGED, previous=None, way_back=None))})
    other = trees.installer(environment=CC, runfile=OLD_RUNFILE, flavour="proprietary")
    host.commands[other] = trees.installs(OLDER, flavour="proprietary")
    assert trees.converge(CONCERN, host, old(kernel_module_type="proprietary")).status == "clean"
    assert last_good.read(host)["flavour"] == "open"


def test_D12_what_a_killed_uninstaller_left_is_a_difference_and_removed(make_host):
    host = upgradable(make_host)
    trees.converge(CONCERN, host, trees.desired())
    host.put(
        {
            f"/usr/src/nvidia-{OLDER}/dkms.conf": "",
            f"/lib/firmware/nvidia/{OLDER}/gsp_ga10x.bin": "",
            f"{trees.LIBRARIES}/libcuda.so.{OLDER}": "",
            f"{trees.LIBRARIES}/libnvidia-ml.so.{OLDER}": "",
        }
    )
    host.commands.update(trees.removes(f"/lib/firmware/nvidia/{OLDER}", f"/usr/src/nvidia-{OLDER}"))
    _state, difference = CONCERN.inspect(host, trees.desired())
    assert [(item["what"], item["before"]) for item in difference.items] == [
        (f"driver {OLDER}", "libraries, source, firmware")
    ]
    host.calls.clear()
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert not [path for path in host.tree() if path.endswith(f".so.{OLDER}")]
    assert INSTALL not in host.calls


def test_N11_it_is_waited_for_idle_gpus_and_then_changed(make_host):
    host = upgradable(make_host)
    host.put(trees.user_of(4711))
    host.commands[("sleep", "5")] = [(0, ""), trees.takes("/proc/4711")]
    assert trees.converge(CONCERN, host, trees.desired(wait_for_idle=60)).status == "clean"
    assert host.calls.count(("sleep", "5")) == 2
    assert has(host, VERSION)


def test_N11_the_wait_has_an_end_and_nothing_was_changed(make_host):
    now = [0]
    host = upgradable(make_host)
    host.clock = lambda: now[0]
    host.put(trees.user_of(4711))
    before = host.tree()

    def passes(_host):
        now[0] += 5
        return 0, ""

    host.commands[("sleep", "5")] = passes
    with pytest.raises(ConcernError, match="python3 .pid 4711, unit train.service"):
        trees.converge(CONCERN, host, trees.desired(wait_for_idle=20))
    assert now[0] == 20
    assert host.tree() == before


# -- back ----------------------------------------------------------------------------------------------------------


def test_N6_a_change_that_fails_after_the_old_driver_is_gone_puts_it_back_and_tells_both_reasons(make_host):
    host = upgradable(make_host)
    host.commands[INSTALL] = breaks_after_the_old_one_is_gone
    with pytest.raises(ConcernError) as error:
        trees.converge(CONCERN, host, trees.desired())
    assert "the installer failed" in str(error.value)
    assert "the disk is on fire" in str(error.value)
    assert f"Driver {OLDER} is back." in str(error.value)
    assert has(host, OLDER)
    assert journal.read(host)["phase"] == "done"
    assert last_good.read(host) is None


def test_N6_a_driver_that_does_not_load_is_replaced_by_the_one_that_did(make_host):
    host = upgradable(make_host)

    def picky(host):
        text = host.read_bytes(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
        return (1, "", "modprobe: ERROR: No such device") if VERSION.encode() in text else loads(host)

    host.commands[("modprobe", "nvidia")] = picky
    with pytest.raises(ConcernError, match=f"does not load(.|\n)*Driver {OLDER} is back"):
        trees.converge(CONCERN, host, trees.desired())
    assert has(host, OLDER)


def test_N6_a_change_that_ends_before_it_began_says_that_nothing_was_changed(make_host):
    host = upgradable(make_host)
    host.commands[trees.PROBE] = (126, "", "Permission denied")
    with pytest.raises(
        ConcernError, match=f"nvidia_driver_tmpdir(.|\n)*Nothing was changed: driver {OLDER} is as it was"
    ):
        trees.converge(CONCERN, host, trees.desired())
    assert not [call for call in host.calls if call[0] in ("rmmod", "modprobe") or call[:2] == ("systemctl", "stop")]
    assert has(host, OLDER)


def test_N6_a_way_back_that_fails_is_told_and_the_next_run_goes_on(make_host):
    host = upgradable(make_host)
    host.commands[INSTALL] = breaks_after_the_old_one_is_gone
    host.commands[BACK] = (1, "", "no space")
    with pytest.raises(ConcernError, match=f"on fire(.|\n)*way back to driver {OLDER} failed too(.|\n)*no space"):
        trees.converge(CONCERN, host, trees.desired())
    assert journal.interrupted(journal.read(host))
    host.commands[BACK] = trees.installs(OLDER)
    host.commands[("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", KERNEL)] = (10, "", "Error!")
    with pytest.raises(ConcernError, match=f"DKMS failed(.|\n)*Driver {OLDER} is back"):
        trees.converge(CONCERN, host, trees.desired())
    assert has(host, OLDER)


def test_without_the_old_runfile_the_way_back_says_so(make_host):
    host = upgradable(make_host)
    host.remove(OLD_RUNFILE)
    host.commands[INSTALL] = breaks_after_the_old_one_is_gone
    with pytest.raises(ConcernError, match=f"way back to driver {OLDER} failed too: nvidia_driver: the runfile is not"):
        trees.converge(CONCERN, host, trees.desired())


def test_N7_a_host_between_two_drivers_goes_back_when_the_change_is_refused(make_host):
    host = upgradable(make_host)
    breaks_after_the_old_one_is_gone(host)
    UNLOADED(host)
    previous = {
        "version": OLDER,
        "flavour": "open",
        "runfile": OLD_RUNFILE,
        "sha256": sha256(b"#!/bin/sh\n# older\n"),
        "arguments": [],
        "module_parameters": {},
        "persistence": True,
        "members": {},
    }
    record = {"version": VERSION, "flavour": "open", "previous": previous, "way_back": previous, "stopped": []}
    host.put({journal.PATH: json.dumps(dict(record, phase="install"))})
    wanted = trees.desired(kernel_module_type="proprietary", version="400.10.01")
    with pytest.raises(ConcernError, match=f"too old(.|\n)*Driver {OLDER} is back"):
        trees.converge(CONCERN, host, wanted)
    assert has(host, OLDER)


@pytest.mark.parametrize("phase", [phase for phase in journal.PHASES if phase != "done"])
@pytest.mark.parametrize("then", ["forward", "back"])
def test_N7_an_upgrade_that_dies_in_any_phase_is_completed_or_taken_back_by_the_next_run(
    make_host, monkeypatch, phase, then
):
    host = upgradable(make_host)
    enter = journal.enter

    def dies(host, record, entered, **notes):
        enter(host, record, entered, **notes)
        if entered == phase:
            raise KeyboardInterrupt(phase)

    monkeypatch.setattr(journal, "enter", dies)
    with pytest.raises(KeyboardInterrupt):
        trees.converge(CONCERN, host, trees.desired())
    monkeypatch.setattr(journal, "enter", enter)
    assert journal.interrupted(journal.read(host)) == phase
    if then == "forward":
        assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
        assert has(host, VERSION)
        assert last_good.read(host)["version"] == OLDER
    else:
        assert trees.converge(CONCERN, host, old()).status == "clean"
        assert has(host, OLDER)
    assert journal.read(host)["phase"] == "done"


# -- state: previous -----------------------------------------------------------------------------------------------


def test_previous_goes_back_without_looking_at_version_and_checksum_and_only_once(make_host):
    host = upgradable(make_host)
    trees.converge(CONCERN, host, trees.desired())
    host.put({"/sys/module/nvidia/refcnt": "1\n"})
    wanted = validated(CONCERN, {"state": "previous"})
    state, difference = CONCERN.inspect(host, wanted)
    assert "Install driver " + OLDER in difference.actions
    assert CONCERN.returns(state, wanted)["runfile_due"] is False
    assert trees.converge(CONCERN, host, wanted).status == "clean"
    assert has(host, OLDER)
    host.calls.clear()
    assert CONCERN.inspect(host, wanted)[1].status == "clean"
    assert last_good.read(host)["version"] == OLDER


def test_previous_without_a_set_is_refused_with_the_reason(make_host):
    host = upgradable(make_host)
    wanted = validated(CONCERN, {"state": "previous"})
    state, difference = CONCERN.inspect(host, wanted)
    assert difference.actions == ["Refuse to go back"]
    assert "there is no way back on this host" in CONCERN.returns(state, wanted)["refusals"][0]
    with pytest.raises(ConcernError, match="there is no way back"):
        CONCERN.apply(host, wanted, state, difference)


def test_a_torn_last_good_set_is_none(make_host):
    assert last_good.read(make_host({last_good.PATH: '{"version": "57'})) is None
    assert last_good.read(make_host({last_good.PATH: "[]"})) is None


def test_previous_restores_the_module_parameters(make_host):
    host = upgradable(make_host)
    parameters = {"NVreg_EnableStreamMemOPs": 1}
    trees.converge(CONCERN, host, old(module_parameters=parameters))
    parameters_file = {"/proc/driver/nvidia/params": "EnableStreamMemOPs: 1\n"}
    host.put({**parameters_file, "/sys/module/nvidia/refcnt": "1\n", trees.RUNFILE: trees.CONTENT})
    trees.converge(CONCERN, host, trees.desired())
    assert not host.exists(boot.MODPROBE)
    host.put({"/sys/module/nvidia/refcnt": "1\n"})
    trees.converge(CONCERN, host, validated(CONCERN, {"state": "previous"}))
    assert "NVreg_EnableStreamMemOPs=1" in host.read_text(boot.MODPROBE)


# -- state: absent -------------------------------------------------------------------------------------------------


def removable(make_host):
    host = upgradable(make_host)
    host.put({"/usr/bin/nvidia-uninstall": ""})
    host.commands[UNINSTALL] = trees.takes("/usr/bin/nvidia-uninstall")
    for path in ("/var/lib/gpufleet/runfiles", options.TMPDIR):
        host.commands.update(trees.removes(path))
    for unit in ("nvidia-persistenced.service", "gpufleet-nvidia-devices.service"):
        host.commands[("systemctl", "disable", "--now", "--no-reload", unit)] = (0, "")
    return host


def test_absent_leaves_no_file_of_ours(make_host):
    host = removable(make_host)
    host.put({fabric_packages.DIRECTORY: Dir()})  # it kept something once
    host.commands.update(trees.removes(fabric_packages.DIRECTORY))
    wanted = validated(CONCERN, {"state": "absent"})
    assert trees.converge(CONCERN, host, wanted).status == "clean"
    left = [path for path in host.tree() if OLDER in path or "gpufleet" in path]
    assert [path for path in left if not path.startswith(("/etc/systemd/system/multi-user", "/run/"))] == []
    assert not host.exists("/sys/module/nvidia")
    host.calls.clear()
    assert CONCERN.inspect(host, wanted)[1].status == "clean"


def test_absent_of_a_driver_in_use_is_refused(make_host):
    host = removable(make_host)
    host.put(trees.user_of(4711))
    before = host.tree()
    with pytest.raises(ConcernError, match="pid 4711"):
        trees.converge(CONCERN, host, validated(CONCERN, {"state": "absent"}))
    assert host.tree() == before


def test_absent_that_was_cut_off_is_completed(make_host):
    host = removable(make_host)
    host.commands[UNINSTALL] = (1, "", "killed")
    with pytest.raises(ConcernError, match="not removed completely"):
        trees.converge(CONCERN, host, validated(CONCERN, {"state": "absent"}))
    host.remove("/usr/bin/nvidia-uninstall")
    assert trees.converge(CONCERN, host, validated(CONCERN, {"state": "absent"})).status == "clean"


def test_absent_lets_a_driver_of_packages_be(make_host):
    status = "Package: libnvidia-compute-535\nStatus: install ok installed\nVersion: 535\nArchitecture: amd64\n"
    library = f"{trees.LIBRARIES}/libnvidia-ml.so.535.183.01"
    listing = "/var/lib/dpkg/info/libnvidia-compute-535:amd64.list"
    host = make_host(trees.virgin(**{"/var/lib/dpkg/status": status, listing: library, library: ""}), trees.tools())
    host.commands.update(trees.removes("/var/lib/gpufleet/runfiles"))
    host.commands.update(trees.removes(options.TMPDIR))
    assert trees.converge(CONCERN, host, validated(CONCERN, {"state": "absent"})).status == "clean"
    assert library in host.tree()


@pytest.mark.parametrize(("option", "value"), [("wait_for_idle", -1)])
def test_a_wrong_number_is_refused_by_the_name_of_its_variable(option, value):
    with pytest.raises(InvalidDesired, match=f"nvidia_driver_{option}"):
        validated(CONCERN, {"state": "absent", option: value})


def test_a_directory_of_a_version_is_no_file_of_the_kernel(make_host):
    host = upgradable(make_host)
    host.put({"/lib/firmware/nvidia/ad102/gsp": Dir(), "/usr/src/nvidia-fs-2.1": Dir()})
    assert set(CONCERN.inspect(host, old())[0]["traces"]) == {OLDER}
