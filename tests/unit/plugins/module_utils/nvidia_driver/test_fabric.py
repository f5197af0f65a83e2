# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric's software as a member of the version set, on literal hosts."""

import json

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, Difference
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import fabric, fabric_packages
from tests.unit.hosts import Dir, Link
from tests.unit.plugins.module_utils.nvidia_driver import trees

FABRIC = fabric.Fabric()
VERSION = trees.VERSION
APT_LIST = {"/var/lib/apt/lists/repo_Packages": ""}
SWITCH = {
    f"/sys/bus/pci/devices/0000:07:00.0/{name}": f"{value}\n"
    for name, value in {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}.items()
}
MADISON = (
    *("apt-cache", "madison", "nvidia-fabricmanager", "nvidia-fabricmanager-580"),
    *("libnvidia-nscq", "libnvidia-nscq-580"),
)
OFFER = "".join(
    f"{name} | {VERSION}-1 | https://repo.example.org x\n" for name in ("nvidia-fabricmanager", "libnvidia-nscq")
)
#: The same, on a host with the packages of another branch: can those be had again?
OLD_NAMES = ("libnvidia-nscq-570", "nvidia-fabricmanager-570")
MADISON_OVER_OLD = (*MADISON, *OLD_NAMES)
OFFER_OLD = "".join(f"{name} | {trees.OLDER}-1 | https://repo.example.org x\n" for name in OLD_NAMES)
WORDS = (f"libnvidia-nscq={VERSION}-1", f"nvidia-fabricmanager={VERSION}-1")
SIMULATE = (
    "apt-get",
    "install",
    "--yes",
    "--no-install-recommends",
    "--allow-downgrades",
    "--allow-change-held-packages",
)
LOCK = (
    *("-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Options::=--force-confold"),
    *("-o", "Dir::Cache::archives=/var/lib/gpufleet/packages", "-o", "APT::Keep-Downloaded-Packages=true"),
)
INSTALL = (*SIMULATE, *LOCK, *WORDS)
SIMULATE = ("apt-get", "--simulate", *INSTALL[1:])
ACTIVE = ("systemctl", "is-active", "--quiet", fabric.UNIT)
RAN = ("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", fabric.UNIT)
JOURNAL = ("journalctl", "--unit", fabric.UNIT, "--boot", "--lines=30", "--output=cat")
WANTS = f"/etc/systemd/system/multi-user.target.wants/{fabric.UNIT}"
MISMATCH = (
    f"fabric manager NVIDIA GPU driver interface version {trees.OLDER} don't match with driver version {VERSION}. "
    "Please update with matching NVIDIA driver package.\n"
)


def desired(**changes):
    return trees.desired(**changes)


def dpkg(**versions):
    """dpkg's status with these packages installed; an underscore in a name is a hyphen."""
    stanza = "Package: {}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {}\n"
    return "\n".join(stanza.format(name.replace("_", "-"), version) for name, version in versions.items())


COMPLETE = dpkg(nvidia_fabricmanager=f"{VERSION}-1", libnvidia_nscq=f"{VERSION}-1")
OLD = dpkg(nvidia_fabricmanager_570=f"{trees.OLDER}-1", libnvidia_nscq_570=f"{trees.OLDER}-1")


def file_of(name, version):
    return f"{fabric_packages.DIRECTORY}/{name}_{version}_amd64.deb"


def files_of(version, *names):
    return {file_of(name, f"{version}-1"): "" for name in names}


def downloaded(*words):
    return {file_of(*word.split("=")): "" for word in words}


def downloads(*words):
    """The command that puts the files of installed packages aside, and its effect."""
    return {(*INSTALL[: -len(WORDS)], "--reinstall", "--download-only", *words): trees.does(downloaded(*words))}


def hgx(status="", **extra):
    return {**trees.virgin(), **SWITCH, **APT_LIST, "/var/lib/dpkg/status": status, **extra}


def state_of(host, document, loaded=None, users=None, library=None):
    return {
        "members": {"fabric": FABRIC.read(host, document)},
        "driver": {"loaded": {"version": loaded} if loaded else None, "library": library and {"version": library}},
        "stopped": [],
        "users": users or {"modules": {}, "processes": [], "foreign": []},
    }


def difference_of(host, document=None, **state):
    document = document or desired()
    difference = Difference()
    FABRIC.assess(difference, state_of(host, document, **state), document)
    return difference


def whats(difference):
    return {item["what"]: item["after"] for item in difference.items}


def installs(host):
    host.put({"/var/lib/dpkg/status": COMPLETE})
    return 0, ""


def enables(host):
    host.put({WANTS: Link("/usr/lib/systemd/system/" + fabric.UNIT)})
    return 0, ""


BUSY = {
    "modules": {"nvidia": {"holders": [], "references": 1}},
    "processes": [{"pid": 7, "command": "python3", "unit": "train.service", "container": None}],
    "foreign": [],
}


def test_J3_a_host_without_nvswitch_needs_nothing_and_asks_nobody(make_host):
    host = make_host({**trees.virgin(), **APT_LIST})
    assert difference_of(host).status == "clean"
    assert host.calls == []


def test_J3_a_leftover_fabric_manager_is_disabled_and_nothing_fails(make_host):
    files = {**trees.virgin(), "/var/lib/dpkg/status": COMPLETE, WANTS: Link("/usr/lib/systemd/system/x")}
    disable = ("systemctl", "disable", "--now", fabric.UNIT)
    host = make_host(files, {ACTIVE: (3, ""), disable: (0, "")})
    difference = difference_of(host)
    assert whats(difference) == {fabric.UNIT: "disabled"}
    assert "no NVSwitch" in difference.items[0]["why"]
    assert FABRIC.refusals(state_of(host, desired()), desired()) == []
    FABRIC.install(host, desired(), state_of(host, desired()))
    assert disable in host.calls


def test_J1_the_set_is_found_in_the_repository_and_planned_by_name_and_version(make_host):
    host = make_host(hgx(), {MADISON: (0, OFFER)})
    assert whats(difference_of(host)) == {
        "package nvidia-fabricmanager": f"{VERSION}-1",
        "package libnvidia-nscq": f"{VERSION}-1",
        fabric.UNIT: "enabled",
    }
    assert FABRIC.refusals(state_of(host, desired()), desired()) == []


def test_J1_a_set_that_no_repository_has_is_refused_with_what_there_is(make_host):
    other = f"nvidia-fabricmanager | 580.95.05-1 | https://repo.example.org x\nlibnvidia-nscq | {VERSION}-1 | y z\n"
    host = make_host(hgx(), {MADISON: (0, other)})
    refusals = FABRIC.refusals(state_of(host, desired()), desired())
    assert len(refusals) == 1
    assert refusals[0].startswith(
        "nvidia_driver_fabric_manager: no repository of this host has nvidia-fabricmanager or"
    )
    assert f"{VERSION}; there is 580.95.05-1" in refusals[0]
    assert "repository" in refusals[0]


def test_without_package_lists_the_set_is_refused_rather_than_hoped_for(make_host):
    host = make_host({**trees.virgin(), **SWITCH})
    refusals = FABRIC.refusals(state_of(host, desired()), desired())
    assert len(refusals) == 2
    assert "no package lists" in refusals[0]


def test_J1_the_set_is_installed_in_one_step_and_the_unit_starts_at_boot(make_host):
    enable = ("systemctl", "enable", fabric.UNIT)
    commands = {MADISON: (0, OFFER), SIMULATE: (0, f"Inst nvidia-fabricmanager ({VERSION}-1)\n"), INSTALL: installs}
    host = make_host(hgx(), {**commands, enable: enables, ACTIVE: (3, ""), RAN: (0, "0\n")})
    FABRIC.install(host, desired(), state_of(host, desired()))
    assert host.calls.index(SIMULATE) < host.calls.index(INSTALL)
    assert not any("start" in call or "restart" in call for call in host.calls)
    assert fabric_packages.remembered(host) == ["libnvidia-nscq", "nvidia-fabricmanager"]
    assert difference_of(host).status == "clean"
    host.calls.clear()
    FABRIC.install(host, desired(), state_of(host, desired()))
    assert {call[:2] for call in host.calls} <= {("systemctl", "is-active"), ("systemctl", "show")}


def test_D7_a_package_that_would_bring_a_driver_along_is_not_installed(make_host):
    simulated = f"Inst nvidia-fabricmanager ({VERSION}-1)\nInst nvidia-driver-580 (x)\nInst zlib1g (y)\n"
    host = make_host(hgx(), {MADISON: (0, OFFER), SIMULATE: (0, simulated)})
    with pytest.raises(ConcernError, match="would also change nvidia-driver-580,"):
        FABRIC.install(host, desired(), state_of(host, desired()))
    assert INSTALL not in host.calls


def test_J1_another_branch_goes_out_in_the_step_in_which_the_wanted_one_comes_in(make_host):
    removed = tuple(name + "-" for name in OLD_NAMES)
    commands = {
        MADISON_OVER_OLD: (0, OFFER + OFFER_OLD),
        (*SIMULATE, *removed): (0, ""),
        (*INSTALL, *removed): installs,
    }
    commands.update(downloads(*(f"{name}={trees.OLDER}-1" for name in OLD_NAMES)))
    host = make_host(hgx(OLD, **{WANTS: Link("x")}), {**commands, ACTIVE: (3, ""), RAN: (0, "0\n")})
    FABRIC.install(host, desired(), state_of(host, desired()))
    assert (*INSTALL, *removed) in host.calls
    aside = next(number for number, call in enumerate(host.calls) if "--download-only" in call)
    assert aside < host.calls.index((*INSTALL, *removed)), "what goes is put aside before it goes"
    assert sorted(fabric_packages.kept(host)) == sorted(OLD_NAMES)


def test_J1_what_cannot_be_put_aside_stays(make_host):
    words = tuple(f"{name}={trees.OLDER}-1" for name in OLD_NAMES)
    commands = dict.fromkeys(downloads(*words), (100, "", "E: 404"))
    host = make_host(hgx(OLD), {MADISON_OVER_OLD: (0, OFFER + OFFER_OLD), ACTIVE: (3, ""), RAN: (0, "0\n"), **commands})
    with pytest.raises(ConcernError, match="cannot be kept for the way back.*404"):
        FABRIC.install(host, desired(), state_of(host, desired()))
    assert not any(call[:2] == INSTALL[:2] and "--download-only" not in call for call in host.calls)


def test_N8_a_set_that_works_and_could_not_be_had_again_is_not_replaced(make_host):
    half = OFFER_OLD.splitlines(keepends=True)[0]
    host = make_host(hgx(OLD), {MADISON_OVER_OLD: (0, OFFER + half), ACTIVE: (3, ""), RAN: (0, "0\n")})
    (refusal,) = FABRIC.refusals(state_of(host, desired(), library=trees.OLDER), desired())
    assert f"nvidia-fabricmanager-570 {trees.OLDER}-1 serves the present driver" in refusal
    assert "Copy its .deb there" in refusal
    assert FABRIC.refusals(state_of(host, desired(), library="570.133.20"), desired()) == [], "it does not work now"
    host.put(files_of(trees.OLDER, "nvidia-fabricmanager-570"))
    assert FABRIC.refusals(state_of(host, desired(), library=trees.OLDER), desired()) == []


def test_N8_the_way_back_asks_no_repository(make_host):
    """As state: previous takes it, and as a change that failed does."""
    older = desired(version=trees.OLDER)
    files = {**files_of(trees.OLDER, *OLD_NAMES), **files_of(VERSION, "nvidia-fabricmanager", "libnvidia-nscq")}
    words = (*(file_of(name, f"{trees.OLDER}-1") for name in OLD_NAMES), "libnvidia-nscq-", "nvidia-fabricmanager-")
    back = INSTALL[: -len(WORDS)] + words
    commands = {SIMULATE[: -len(WORDS)] + words: (0, ""), back: trees.does({"/var/lib/dpkg/status": OLD})}
    tree = {path: entry for path, entry in hgx(COMPLETE, **{WANTS: Link("x")}, **files).items() if path not in APT_LIST}
    host = make_host(tree, {**commands, ACTIVE: (3, ""), RAN: (0, "0\n")})
    assert FABRIC.refusals(state_of(host, older, library=VERSION), older) == []
    FABRIC.install(host, older, state_of(host, older))
    assert host.calls.count(back) == 1
    assert FABRIC.kept(state_of(host, older))["packages"] == dict.fromkeys(OLD_NAMES, f"{trees.OLDER}-1")
    host.put({"/var/lib/dpkg/status": COMPLETE, fabric_packages.RECORD: '["libnvidia-nscq", "nvidia-fabricmanager"]'})
    assert FABRIC.put_back(host, {"packages": dict.fromkeys(OLD_NAMES, f"{trees.OLDER}-1"), "enabled": True}) == []
    assert host.calls.count(back) == 2


def test_only_the_files_of_the_present_set_and_of_the_last_good_one_stay(make_host):
    stays = {**files_of(trees.OLDER, *OLD_NAMES), **files_of(VERSION, "nvidia-fabricmanager", "libnvidia-nscq")}
    goes = {**files_of("550.54.14", "nvidia-fabricmanager-550"), **files_of("580.95.05", "nvidia-fabricmanager")}
    epoch = {f"{fabric_packages.DIRECTORY}/nvlsm_1%3a2025.06-1_amd64.deb": ""}
    host = make_host(hgx(COMPLETE + "\n" + dpkg(nvlsm="1:2025.06-1"), **stays, **goes, **epoch))
    FABRIC.prune(host, {"packages": dict.fromkeys(OLD_NAMES, f"{trees.OLDER}-1")})
    assert set(host.tree(fabric_packages.DIRECTORY)) == {*stays, *epoch}
    FABRIC.prune(host, None)
    assert set(fabric_packages.kept(host)) == {"nvidia-fabricmanager", "libnvidia-nscq", "nvlsm"}


def test_J1_the_upgrade_of_a_branch_goes_back_with_its_packages(make_host):
    host = make_host(hgx(OLD, **{WANTS: Link("x")}), {MADISON_OVER_OLD: (0, OFFER), ACTIVE: (3, ""), RAN: (0, "0\n")})
    kept = json.loads(json.dumps(FABRIC.kept(state_of(host, desired()))))
    assert kept["packages"] == {
        "nvidia-fabricmanager-570": f"{trees.OLDER}-1",
        "libnvidia-nscq-570": f"{trees.OLDER}-1",
    }
    back = (
        *(f"libnvidia-nscq-570={trees.OLDER}-1", f"nvidia-fabricmanager-570={trees.OLDER}-1"),
        *("libnvidia-nscq-", "nvidia-fabricmanager-"),
    )
    host.put({"/var/lib/dpkg/status": COMPLETE})
    host.put({fabric_packages.RECORD: '["libnvidia-nscq", "nvidia-fabricmanager"]'})
    host.commands.update({SIMULATE[: -len(WORDS)] + back: (0, ""), INSTALL[: -len(WORDS)] + back: (0, "")})
    assert FABRIC.put_back(host, kept) == []
    assert INSTALL[: -len(WORDS)] + back in host.calls


def test_what_cannot_be_put_back_is_told(make_host):
    host = make_host(hgx())
    words = (f"nvidia-fabricmanager-570={trees.OLDER}-1",)
    host.commands[SIMULATE[: -len(WORDS)] + words] = (100, "", "E: Version was not found\n")
    kept = {"packages": {"nvidia-fabricmanager-570": f"{trees.OLDER}-1"}, "enabled": True}
    assert "Version was not found" in FABRIC.put_back(host, kept)[0]


def test_J13_a_fabric_manager_that_serves_gpus_in_use_is_left_until_the_reboot(make_host):
    host = make_host(hgx(OLD, **{WANTS: Link("x")}), {MADISON_OVER_OLD: (0, OFFER), ACTIVE: (0, "")})
    state = state_of(host, desired(), loaded=trees.OLDER, users=BUSY)
    difference = Difference()
    FABRIC.assess(difference, state, desired())
    assert difference.status == "pending"
    assert "python3 (pid 7" in difference.pending[0]["why"]
    FABRIC.install(host, desired(), state)
    assert {call[0] for call in host.calls} == {"apt-cache", "systemctl"}


def test_J13_a_fabric_manager_that_stopped_waits_for_a_reset_or_a_reboot(make_host):
    host = make_host(hgx(COMPLETE, **{WANTS: Link("x")}), {ACTIVE: (3, ""), RAN: (0, "123456\n")})
    difference = difference_of(host, loaded=VERSION)
    assert difference.status == "pending"
    assert "reset" in difference.pending[0]["why"]
    state = state_of(host, desired(), loaded=VERSION)
    FABRIC.start(host, desired(), state)
    assert not any("start" in call for call in host.calls)
    start = ("systemctl", "start", fabric.UNIT)
    host.commands[start] = (0, "")
    FABRIC.start(host, desired(), dict(state, stopped=["nvidia-fabricmanager"]))
    assert host.calls[-1] == start, "what an interrupted change had stopped is started again"


def test_J9_a_fabric_manager_that_never_came_up_is_started(make_host):
    start = ("systemctl", "start", fabric.UNIT)
    host = make_host(hgx(COMPLETE, **{WANTS: Link("x")}), {ACTIVE: (3, ""), RAN: (0, "0\n"), start: (0, "")})
    assert whats(difference_of(host, loaded=VERSION)) == {fabric.UNIT: "running"}
    FABRIC.start(host, desired(), state_of(host, desired(), loaded=VERSION))
    assert start in host.calls


def test_a_running_fabric_manager_is_never_started_again(make_host):
    host = make_host(hgx(COMPLETE, **{WANTS: Link("x")}), {ACTIVE: (0, "")})
    assert difference_of(host, loaded=VERSION).status == "clean"
    FABRIC.start(host, desired(), state_of(host, desired(), loaded=VERSION))
    assert set(host.calls) == {ACTIVE}


def test_J1_a_fabric_manager_that_does_not_start_tells_why(make_host):
    start = ("systemctl", "start", fabric.UNIT)
    commands = {ACTIVE: (3, ""), RAN: (0, "0\n"), start: (1, "", "failed"), JOURNAL: (0, MISMATCH)}
    host = make_host(hgx(COMPLETE), commands)
    with pytest.raises(ConcernError, match="fabric manager and the driver are of different versions"):
        FABRIC.start(host, desired(), state_of(host, desired()))


def test_J1_a_set_of_another_version_than_the_loaded_driver_is_seen(make_host):
    old = dpkg(nvidia_fabricmanager="580.95.05-1", libnvidia_nscq=f"{VERSION}-1")
    one = MADISON[:4]
    host = make_host(
        hgx(old, **trees.loaded()), {one: (0, OFFER), ACTIVE: (3, ""), RAN: (0, "0\n"), JOURNAL: (0, MISMATCH)}
    )
    problems = FABRIC.verify(host, desired())
    assert problems[0] == f"the fabric manager is nvidia-fabricmanager 580.95.05-1, the driver {VERSION}"
    assert "does not run: the fabric manager and the driver are of different versions" in problems[1]


def test_nothing_is_verified_before_the_wanted_driver_is_loaded(make_host):
    assert FABRIC.verify(make_host(hgx(**trees.loaded(trees.OLDER))), desired()) == []


# -- NVLink 5 ------------------------------------------------------------------------------------------------------

B200 = {
    **trees.gpu("0000:1b:00.0", "0x2901"),
    **trees.gpu("0000:43:00.0", "0x2901"),
    f"/lib/modules/{trees.KERNEL}/modules.dep": "kernel/drivers/infiniband/core/ib_umad.ko.xz: kernel/x.ko\n",
}
NVLINK5 = dpkg(
    nvidia_fabricmanager=f"{VERSION}-1",
    libnvidia_nscq=f"{VERSION}-1",
    libnvsdm=f"{VERSION}-1",
    nvlsm="2025.06.6-1",
    infiniband_diags="50.0-2",
)


def hgx_b200(modules=("ib_umad", "mlx5_ib"), **extra):
    dep = "".join(f"kernel/drivers/infiniband/{name}.ko.xz:\n" for name in modules)
    return {
        **hgx(NVLINK5),
        **B200,
        f"/lib/modules/{trees.KERNEL}/modules.dep": dep,
        "/sys/module/loop": Dir(),
        WANTS: Link("x"),
        **extra,
    }


def test_J5_a_kernel_without_a_module_is_refused_and_the_module_named(make_host):
    host = make_host(hgx_b200(modules=("ib_umad",)), {ACTIVE: (3, ""), RAN: (0, "0\n")})
    refusals = FABRIC.refusals(state_of(host, desired()), desired())
    assert len(refusals) == 1
    assert f"kernel {trees.KERNEL} has no module mlx5_ib" in refusals[0]
    assert "linux-modules-extra" in refusals[0]


def test_J5_the_modules_are_loaded_now_and_at_each_boot_before_the_fabric_manager(make_host):
    start = ("systemctl", "start", fabric.UNIT)
    loads = [("modprobe", "ib_umad"), ("modprobe", "mlx5_ib")]
    commands = {ACTIVE: (3, ""), RAN: (0, "0\n"), start: (0, ""), **dict.fromkeys(loads, (0, ""))}
    host = make_host(hgx_b200(), commands)
    assert set(whats(difference_of(host, loaded=VERSION))) == {
        *("/etc/modules-load.d/gpufleet-nvlink.conf", "kernel module ib_umad", "kernel module mlx5_ib", fabric.UNIT)
    }
    FABRIC.install(host, desired(), state_of(host, desired()))
    assert host.read_text(fabric.MODULES_LOAD).splitlines()[1:] == ["ib_umad", "mlx5_ib"]
    FABRIC.start(host, desired(), state_of(host, desired()))
    assert [call for call in host.calls if call in (*loads, start)] == [*loads, start]


def test_J5_a_module_that_does_not_load_is_named(make_host):
    commands = {ACTIVE: (3, ""), RAN: (0, "0\n"), ("modprobe", "ib_umad"): (1, "", "FATAL: not found")}
    host = make_host(hgx_b200(), commands)
    with pytest.raises(ConcernError, match="kernel module ib_umad cannot be loaded"):
        FABRIC.start(host, desired(), state_of(host, desired()))


# -- the variable, and leaving -------------------------------------------------------------------------------------


def test_absent_disables_the_fabric_manager_of_a_machine_that_has_a_fabric(make_host):
    host = make_host(hgx(COMPLETE, **{WANTS: Link("x")}), {ACTIVE: (0, "")})
    document = dict(desired(), fabric_manager="absent")
    difference = difference_of(host, document)
    assert whats(difference) == {fabric.UNIT: "disabled"}
    assert difference.items[0]["why"] == "nvidia_driver_fabric_manager is absent"


def test_present_serves_a_machine_whose_switches_are_not_known(make_host):
    host = make_host({**trees.virgin(), **APT_LIST}, {MADISON: (0, OFFER)})
    document = dict(desired(), fabric_manager="present")
    assert "package nvidia-fabricmanager" in whats(difference_of(host, document))


def test_present_is_refused_on_a_compute_node_of_a_rack(make_host):
    status = dpkg(nvidia_imex=f"{VERSION}-1")
    host = make_host({**trees.virgin(), **trees.gpu(device="0x2941"), "/var/lib/dpkg/status": status})
    document = dict(desired(), fabric_manager="present")
    assert "switch trays" in FABRIC.refusals(state_of(host, document), document)[0]


def test_J3_a_compute_node_of_a_rack_gets_imex_and_its_leftover_fabric_manager_is_disabled(make_host):
    ask = ("apt-cache", "madison", "nvidia-imex", "nvidia-imex-580")
    status = dpkg(nvidia_fabricmanager=f"{VERSION}-1")
    tree = {**trees.virgin(), **trees.gpu(device="0x31c2"), **APT_LIST, "/var/lib/dpkg/status": status}
    commands = {ask: (0, f"nvidia-imex | {VERSION}-1 | x y\n"), ACTIVE: (3, "")}
    host = make_host({**tree, WANTS: Link("x")}, commands)
    difference = difference_of(host, loaded=VERSION)
    assert whats(difference) == {fabric.UNIT: "disabled", "package nvidia-imex": f"{VERSION}-1"}
    assert "switch trays" in difference.items[0]["why"]


def test_withdraw_removes_what_was_installed_here_and_nothing_else(make_host):
    removal = ("nvidia-fabricmanager-",)
    files = hgx(
        COMPLETE, **{fabric_packages.RECORD: '["nvidia-fabricmanager"]', fabric.MODULES_LOAD: fabric.MODULES_LOAD_TEXT}
    )
    host = make_host(files, {SIMULATE[: -len(WORDS)] + removal: (0, ""), INSTALL[: -len(WORDS)] + removal: (0, "")})
    done, failed = FABRIC.withdraw(host)
    assert failed == []
    assert done == ["nvidia-fabricmanager were removed", f"{fabric.MODULES_LOAD} was removed"]
    assert not host.exists(fabric_packages.RECORD)


def test_D2_the_fabric_managers_process_may_be_stopped_for_the_change():
    process = {"pid": 3, "command": "nv-fabricmanager", "unit": fabric.UNIT, "container": None}
    assert FABRIC.unit_of(process, desired()) == "nvidia-fabricmanager"
    assert FABRIC.unit_of(dict(process, unit="train.service"), desired()) is None
    assert FABRIC.unit_of(dict(process, unit=None), desired()) is None


def test_hosts_with_dnf_get_the_exact_version_too(make_host):
    host = make_host(
        {"/usr/bin/dnf": ""}, {("dnf", "--assumeyes", "install", "nvidia-fabricmanager-580.65.06-1"): (0, "")}
    )
    fabric_packages.change(host, "dnf", {"nvidia-fabricmanager": "580.65.06-1"}, [])
    assert len(host.calls) == 1
