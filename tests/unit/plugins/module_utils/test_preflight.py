# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_preflight: pure checks over literal facts, then the reader over literal trees."""

import copy
import hashlib
import json

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _preflight
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import validated
from ansible_collections.gpufleet.metal.plugins.module_utils._nouveau import Nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver, boot, last_good
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight import facts as reader
from tests.unit.hosts import Dir, Link

RUNNING, NEWER = "6.1.0-18-amd64", "6.1.0-25-amd64"
OPTIONS = {"expected_gpus": None, "passthrough": "fail", "secure_boot": "fail", "exec_probe": True, "refresh": True}
DRIVER = {
    "state": "present",
    "version": "580.65.06",
    "kernel_module_type": "auto",
    "tmpdir": "/var/lib/gpufleet/tmp",
    "persistence": True,
    "fabric_manager": "auto",
    "display": "refuse",
    "replace_in_use": False,
    "wait_for_idle": 0,
    "ignore_compiler_mismatch": False,
}
DESIRED = {"nouveau": {"state": "present", "kernel_command_line": False}, "nvidia_driver": DRIVER}
GCC_12 = {"text": "gcc-12 (Debian 12.2.0-14) 12.2.0", "family": "gcc", "major": 12}


def gpu(address, architecture="hopper", driver=None, model="H100 SXM5 80GB"):
    return {"address": address, "device": "0x2330", "model": model, "architecture": architecture, "driver": driver}


def kernel(release, headers=True, compiler=None):
    return {"release": release, "headers": headers, "compiler": compiler or GCC_12, "initramfs": None}


FACTS = {
    "python": [3, 11],
    "os": {"id": "debian", "version": "12", "like": "", "name": "Debian GNU/Linux 12 (bookworm)"},
    "architecture": "x86_64",
    "unreadable": {},
    "manager": "apt",
    "unfinished": [],
    "dpkg_updates": [],
    "locks": [],
    "lock_obstacles": [],
    "installers": [],
    "way_back": None,
    "kernel": {
        "running": RUNNING,
        "default": RUNNING,
        "installed": [kernel(RUNNING)],
        "cmdline": "",
        "secure_boot": "disabled",
        "sig_enforce": False,
        "lockdown": "none",
        "initramfs_tool": "initramfs-tools",
    },
    "targets": [RUNNING],
    "headers": ["linux-headers-" + RUNNING],
    "missing_packages": {},
    "pci": {"gpus": [gpu("0000:1b:00.0"), gpu("0000:43:00.0")], "nvswitches": []},
    "driver": {"loaded": None, "library": None, "packages": []},
    "supported": None,
    "display": {"manager": None, "active": False, "servers": []},
    "lists_error": None,
    "fabric": {
        **{"detected": "none", "platform": "none", "manager": "apt", "parts": [], "unit": None, "modules": {}},
        **{"missing_modules": [], "running": False, "ran": False, "enabled": False, "modules_load": None},
    },
    "users": {"modules": {}, "processes": [], "foreign": []},
    "foreign_unit": False,
    "in_kernel_drivers": ["nouveau"],
    "key": {"path": None, "enrolled": False},
    "boot": {"kind": "grub", "drop_in": None, "entries": [], "sources": [], "overriding": []},
    "graphical_unlock": False,
    "space": [{"paths": ["/usr", "/var/lib/dkms"], "needed": 2 << 30, "free": 50 << 30}],
    "tmpdir": {"path": "/var/lib/gpufleet/tmp", "mount": "/", "options": ["rw", "relatime"], "probe": True},
}


def changed(base, **paths):
    """``base`` with values replaced; a key is a path joined by two underscores."""
    copied = copy.deepcopy(base)
    for path, value in paths.items():
        *parents, last = path.split("__")
        target = copied
        for name in parents:
            target = target[name]
        target[last] = value
    copied["own_gpus"] = [gpu for gpu in copied["pci"]["gpus"] if gpu["driver"] != "vfio-pci"]
    return copied


FACTS = changed(FACTS)


def check(name, facts=FACTS, desired=DESIRED, options=OPTIONS):
    found = [finding for finding in _preflight.check(facts, desired, options) if finding["id"] == name]
    assert len(found) < 2
    return found[0] if found else None


def test_a_good_host_passes_every_check():
    found = _preflight.check(FACTS, DESIRED, OPTIONS)
    assert [finding for finding in found if finding["result"] != "pass"] == []
    assert _preflight.failure(found) == ""


def test_ids_are_unique_and_evidence_is_never_empty():
    found = _preflight.check(FACTS, DESIRED, OPTIONS)
    assert len({finding["id"] for finding in found}) == len(found)
    assert all(finding["evidence"] for finding in found)


def test_all_failures_come_at_once_and_each_has_a_remedy():
    facts = changed(FACTS, dpkg_updates=["0001"], architecture=None, driver__packages=["libnvidia-compute-535"])
    facts["tmpdir"]["options"] = ["rw", "noexec"]
    failed = [finding for finding in _preflight.check(facts, DESIRED, OPTIONS) if finding["result"] == "fail"]
    assert [finding["id"] for finding in failed] == [
        "architecture",
        "package_database",
        "foreign_driver",
        "temporary_directory",
    ]
    assert all(finding["remedy"] for finding in failed)
    assert len(_preflight.failure(failed).splitlines()) == 4


def test_without_a_driver_wanted_only_the_host_itself_is_checked():
    desired = {"nouveau": DESIRED["nouveau"], "nvidia_driver": dict(DRIVER, state="unmanaged")}
    names = {finding["id"] for finding in _preflight.check(changed(FACTS, tmpdir=None), desired, OPTIONS)}
    assert names == {"operating_system", "python", "package_database", "package_lock", "gpu_count", "space"}


# -- system --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "manager", "result"),
    [
        (("ubuntu", "24.04"), "apt", "pass"),
        (("debian", "13"), "apt", "pass"),
        (("debian", "11"), "apt", "warn"),
        (("rocky", "9.4"), "dnf", "warn"),
        (("alpine", "3.20"), None, "fail"),
    ],
)
def test_operating_system(system, manager, result):
    facts = changed(FACTS, manager=manager, os={"id": system[0], "version": system[1], "like": "", "name": system[0]})
    assert check("operating_system", facts)["result"] == result


def test_B11_an_architecture_without_a_runfile_fails_before_a_download():
    assert check("architecture", changed(FACTS, architecture="aarch64"))["result"] == "pass"
    assert check("architecture", changed(FACTS, architecture=None))["result"] == "fail"


def test_P6_an_old_python_is_named():
    found = check("python", changed(FACTS, python=[3, 6]))
    assert (found["result"], found["variable"]) == ("fail", "ansible_python_interpreter")
    assert "Python 3.6" in found["evidence"]


def test_what_cannot_be_read_has_not_passed():
    found = check("readable", changed(FACTS, unreadable={"/etc/crypttab": "Permission denied"}))
    assert found["result"] == "not_measured"
    assert "/etc/crypttab (Permission denied)" in found["evidence"]


@pytest.mark.parametrize("broken", [{"unfinished": ["nginx (half-configured)"]}, {"dpkg_updates": ["0003"]}])
def test_interrupted_dpkg_fails(broken):
    found = check("package_database", changed(FACTS, **broken))
    assert found["result"] == "fail"
    assert "dpkg --configure -a" in found["remedy"]


def test_a_held_package_lock_names_who_holds_it():
    lock = "/var/lib/dpkg/lock-frontend by unattended-upgr (pid 812)"
    found = check("package_lock", changed(FACTS, locks=[lock]))
    assert found["result"] == "warn"
    assert "unattended-upgr (pid 812)" in found["evidence"]


def test_N6_an_interrupted_dpkg_fails_and_one_at_work_does_not():
    facts = changed(FACTS, unfinished=["dkms (half-configured)"])
    found = check("package_database", facts)
    assert found["result"] == "fail"
    assert "dkms (half-configured)" in found["evidence"] and "dpkg --configure -a" in found["remedy"]
    at_work = check("package_database", dict(facts, locks=["/var/lib/dpkg/lock by dpkg (pid 812)"]))
    assert at_work["result"] == "warn"
    assert "wait" in at_work["remedy"]


# -- GPUs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "expected", "result"),
    [(2, None, "pass"), (2, 2, "pass"), (2, 8, "fail"), (0, 8, "fail"), (0, None, "warn"), (0, 0, "pass")],
)
def test_P18_the_expected_count_decides_how_severe_a_missing_gpu_is(count, expected, result):
    facts = changed(FACTS, pci__gpus=FACTS["pci"]["gpus"][:count])
    found = check("gpu_count", facts, options=dict(OPTIONS, expected_gpus=expected))
    assert found["result"] == result


@pytest.mark.parametrize(
    ("architectures", "version", "asked", "result", "variable"),
    [
        (["volta"], "580.65.06", "auto", "pass", ""),
        (["volta"], "590.10", "auto", "fail", "nvidia_driver_version"),
        (["volta"], "580.65.06", "open", "fail", "nvidia_driver_kernel_module_type"),
        (["ampere", "hopper"], "580.65.06", "proprietary", "pass", ""),
        (["blackwell"], "580.65.06", "auto", "pass", ""),
        (["blackwell"], "580.65.06", "proprietary", "fail", "nvidia_driver_kernel_module_type"),
        (["blackwell"], "550.54.14", "auto", "fail", "nvidia_driver_version"),
        (["volta", "blackwell"], "580.65.06", "auto", "fail", "nvidia_driver_version"),
        ([None], "580.65.06", "auto", "warn", "nvidia_driver_version"),
    ],
)
def test_B14_generation_against_branch_and_flavour(architectures, version, asked, result, variable):
    gpus = [gpu(f"0000:{index:02x}:00.0", architecture) for index, architecture in enumerate(architectures)]
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, version=version, kernel_module_type=asked))
    found = check("gpu_generation", changed(FACTS, pci__gpus=gpus), desired)
    assert (found["result"], found["variable"]) == (result, variable)


def test_B15_passed_through_gpus_fail_or_are_left_alone():
    facts = changed(FACTS, pci__gpus=[gpu("0000:1b:00.0", driver="vfio-pci")])
    found = check("passthrough", facts)
    assert (found["result"], found["variable"]) == ("fail", "gpu_preflight_passthrough")
    assert "0000:1b:00.0" in found["evidence"]
    assert check("passthrough", facts, options=dict(OPTIONS, passthrough="allow"))["result"] == "pass"


def test_D6_packages_that_own_driver_files_are_named():
    found = check("foreign_driver", changed(FACTS, driver__packages=["libnvidia-compute-535", "nvidia-utils-535"]))
    assert found["result"] == "fail"
    assert "libnvidia-compute-535, nvidia-utils-535" in found["evidence"]


def test_a_unit_of_somebody_else_stops_before_any_change(make_host):
    found = check("persistence_daemon", changed(FACTS, foreign_unit=True))
    assert (found["result"], found["variable"]) == ("fail", "nvidia_driver_persistence")
    host = make_host(dict(VIRGIN, **{boot.PERSISTENCED_FILE: "[Service]\nExecStart=/opt/mine\n"}))
    for persistence, ids in ((True, ["persistence_daemon"]), (False, [])):
        wanted = dict(document(), nvidia_driver=dict(DRIVER, persistence=persistence))
        found = [finding["id"] for finding in _preflight.findings(host, wanted, {})]
        assert [name for name in found if name == "persistence_daemon"] == ids


def test_nouveau_that_nobody_blocks_fails():
    desired = dict(DESIRED, nouveau={"state": "unmanaged", "kernel_command_line": False})
    found = check("nouveau", desired=desired)
    assert (found["result"], found["variable"]) == ("fail", "nouveau_state")
    assert check("nouveau", changed(FACTS, in_kernel_drivers=[]), desired)["result"] == "pass"


IN_USE = changed(
    FACTS,
    driver={"loaded": {"version": "570.144", "flavour": "open"}, "library": {"version": "570.144"}, "packages": []},
    users={
        "modules": {"nvidia": {"holders": [], "references": 3}},
        "processes": [{"pid": 4711, "command": "python3", "unit": "train.service", "container": None}],
        "foreign": ["gdrdrv"],
    },
)


def test_modules_that_the_host_does_not_show_are_not_measured(make_host):
    assert reader.in_kernel_drivers(make_host()) is None
    assert reader.in_kernel_drivers(make_host({"/sys/module/ext4": Dir(), "/sys/module/nova_core": Dir()})) == [
        "nova_core"
    ]
    assert check("nouveau", changed(FACTS, in_kernel_drivers=None))["result"] == "not_measured"


def test_D2_holders_are_named_by_pid_and_unit():
    found = check("driver_in_use", IN_USE)
    assert (found["result"], found["variable"]) == ("fail", "nvidia_driver_replace_in_use")
    assert "python3 (pid 4711, unit train.service)" in found["evidence"]
    assert "kernel module gdrdrv" in found["evidence"]


def test_D2_a_variable_allows_to_replace_a_driver_in_use():
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, replace_in_use=True))
    assert check("driver_in_use", IN_USE, desired)["result"] == "warn"


def test_D1_an_old_installer_cannot_work_beside_a_driver_in_use_whatever_is_allowed():
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, replace_in_use=True, version="535.104.05"))
    found = check("driver_in_use", IN_USE, desired)
    assert (found["result"], found["variable"]) == ("fail", "nvidia_driver_version")


def test_users_of_the_wanted_driver_disturb_nobody():
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, version="570.144"))
    assert check("driver_in_use", IN_USE, desired) is None


@pytest.mark.parametrize("version", ["580.65.06", "535.104.05"])
def test_D2_N11_a_wait_for_idle_gpus_is_no_failure_before_it_has_begun(version):
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, version=version, wait_for_idle=600))
    found = check("driver_in_use", IN_USE, desired)
    assert (found["result"], found["variable"]) == ("warn", "nvidia_driver_wait_for_idle")
    assert "python3 (pid 4711, unit train.service)" in found["evidence"]
    assert "up to 600 s" in found["remedy"]


@pytest.mark.parametrize(("ours", "result"), [(True, "warn"), (False, "fail")])
def test_P12_a_running_installer_is_named_and_only_our_own_is_waited_for(ours, result):
    installer = {"pid": 99, "command": "nvidia-installer", "ours": ours}
    found = check("installer_running", changed(FACTS, installers=[installer]))
    assert found["result"] == result
    assert "pid 99" in found["evidence"]


@pytest.mark.parametrize(("policy", "result"), [("refuse", "fail"), ("stop", "warn")])
def test_D2_a_display_manager_is_named_and_the_variable_decides(policy, result):
    xorg = {"pid": 2704, "command": "Xorg", "unit": "session-c1.scope"}
    facts = changed(FACTS, display={"manager": "gdm.service", "active": True, "servers": [xorg]})
    found = check("graphical_session", facts, dict(DESIRED, nvidia_driver=dict(DRIVER, display=policy)))
    assert found["result"] == result
    assert "gdm.service; Xorg (pid 2704, unit session-c1.scope)" in found["evidence"]


def test_D3_an_x_server_without_a_manager_cannot_be_stopped_for_anybody():
    xorg = {"pid": 99, "command": "Xorg", "unit": "session-3.scope"}
    facts = changed(FACTS, display={"manager": None, "active": False, "servers": [xorg]})
    found = check("graphical_session", facts, dict(DESIRED, nvidia_driver=dict(DRIVER, display="stop")))
    assert (found["result"], found["remedy"]) == ("fail", "No display manager can be stopped for it: end it.")


def test_D3_a_session_over_the_wanted_driver_is_left_alone():
    facts = changed(FACTS, display={"manager": "gdm.service", "active": True, "servers": []})
    facts["driver"]["library"] = {"version": DRIVER["version"], "path": "/usr/lib64/x"}
    assert check("graphical_session", facts) is None


# -- what the runfile says of the GPUs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "result", "word"),
    [
        ({"flavours": ["open", "proprietary"], "legacy_branch": None}, "pass", "open modules drive all"),
        ({"flavours": ["proprietary"], "legacy_branch": None}, "fail", "(proprietary)"),
        ({"flavours": ["proprietary"], "legacy_branch": "580.xx"}, "fail", "last branch: 580.xx"),
        (None, "warn", "does not list"),
    ],
    ids=["driven", "another flavour", "dropped", "not listed"],
)
def test_B14_the_runfiles_own_list_of_gpus_decides(told, result, word):
    found = check("gpu_generation", changed(FACTS, supported={"0x2330": told}))
    assert found["result"] == result
    assert "supported-gpus.json" in found["evidence"] and word in found["evidence"]


def test_B14_a_table_that_refuses_is_not_overruled():
    facts = changed(FACTS, supported={"0x2330": None}, pci__gpus=[gpu("0000:1b:00.0", "volta")])
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, version="590.44.01"))
    assert "branch 590 no longer supports" in check("gpu_generation", facts, desired)["remedy"]


# -- the version set -----------------------------------------------------------------------------------------------

FABRIC_MANAGER = {
    **{"what": "fabric manager", "names": ["nvidia-fabricmanager", "nvidia-fabricmanager-580"], "version": "580.65.06"},
    **{"installed": None, "offer": None, "fits": False, "known": True, "offered": [], "others": {}, "lost": {}},
}


def with_fabric(detected="nvswitch", **changes):
    found = dict(FACTS["fabric"], detected=detected, platform=detected, unit="nvidia-fabricmanager.service")
    return changed(FACTS, fabric=dict(found, **changes))


@pytest.mark.parametrize(
    ("part", "result", "word"),
    [
        ({"fits": True, "installed": ["nvidia-fabricmanager", "580.65.06-1"]}, "pass", "580.65.06-1 is installed"),
        ({"offer": ["nvidia-fabricmanager", "580.65.06-1"]}, "pass", "580.65.06-1 can be had"),
        ({"offered": ["580.95.05-1"]}, "fail", "in no repository; there is 580.95.05-1"),
        ({"known": False}, "not_measured", "not known to be in a repository"),
    ],
    ids=["installed", "offered", "another version", "no lists"],
)
def test_N8_J1_the_whole_set_is_looked_for_before_anything_changes(part, result, word):
    found = check("version_set", with_fabric(parts=[dict(FABRIC_MANAGER, **part)]))
    assert found["result"] == result
    assert word in found["evidence"]
    assert "driver 580.65.06" in found["evidence"]


def test_N8_a_set_that_could_not_be_put_back_stops_before_anything_changes():
    offer, lost = ["nvidia-fabricmanager", "580.65.06-1"], {"nvidia-fabricmanager-570": "570.172.08-1"}
    facts = with_fabric(parts=[dict(FABRIC_MANAGER, offer=offer, lost=lost)])
    assert check("version_set", facts)["result"] == "pass", "no driver that it serves is here"
    facts["driver"]["library"] = {"version": "570.172.08", "path": "/usr/lib64/x"}
    found = check("version_set", facts)
    assert found["result"] == "fail"
    assert "nvidia-fabricmanager-570 570.172.08-1" in found["evidence"]
    assert found["remedy"].startswith("Copy its .deb there")


def test_J3_a_leftover_fabric_manager_is_no_failure():
    found = check("fabric_manager", changed(FACTS, fabric__enabled=True))
    assert found["result"] == "pass"
    assert "will be disabled" in found["evidence"]


@pytest.mark.parametrize(
    ("asked", "detected", "result"),
    [
        ("auto", "nvswitch", "pass"),
        ("present", "nvswitch", "pass"),
        ("present", "none", "fail"),
        ("present", "rack", "fail"),
        ("absent", "nvswitch", "warn"),
        ("absent", "nvlink5", "warn"),
        ("absent", "none", "pass"),
    ],
)
def test_J10_the_variable_against_the_machine(asked, detected, result):
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, fabric_manager=asked))
    assert check("fabric_manager", with_fabric(detected), desired)["result"] == result


def test_J3_present_goes_on_with_gpus_that_no_table_knows():
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, fabric_manager="present"))
    facts = changed(with_fabric("none"), pci__gpus=[gpu("0000:1b:00.0", None, model=None)])
    assert check("fabric_manager", facts, desired)["result"] == "warn"


def test_J5_a_module_that_a_kernel_lacks_is_named():
    facts = with_fabric("nvlink5", modules={"ib_umad": False, "mlx5_ib": False})
    assert check("fabric_modules", facts)["result"] == "pass"
    found = check("fabric_modules", changed(facts, fabric__missing_modules=[[RUNNING, "mlx5_ib"]]))
    assert found["result"] == "fail"
    assert f"kernel {RUNNING} has no module mlx5_ib" in found["evidence"]
    assert "linux-modules-extra" in found["remedy"]


# -- kernels -------------------------------------------------------------------------------------------------------


def without_headers(offered, installed=None):
    return changed(
        FACTS,
        kernel__installed=installed or [kernel(RUNNING, headers=False)],
        headers=["linux-headers-" + NEWER],
        missing_packages={"linux-headers-" + RUNNING: offered},
    )


def test_B1_headers_of_another_release_do_not_count_and_both_are_named():
    found = check("kernel_headers", without_headers(False))
    assert found["result"] == "fail"
    assert RUNNING in found["evidence"] and "linux-headers-" + NEWER in found["evidence"]


def test_B2_headers_in_no_repository_offer_the_newer_kernel():
    found = check("kernel_headers", without_headers(False, [kernel(NEWER), kernel(RUNNING, headers=False)]))
    assert found["result"] == "fail"
    assert f"Reboot into {NEWER} first" in found["remedy"]


def test_B2_headers_that_a_repository_has_are_no_failure():
    assert check("kernel_headers", without_headers(True))["result"] == "pass"
    assert check("kernel_headers", without_headers(None))["result"] == "not_measured"


def test_B2_running_kernel_that_the_next_boot_leaves_behind():
    facts = changed(FACTS, kernel__installed=[kernel(NEWER), kernel(RUNNING, headers=False)], targets=[NEWER])
    assert check("kernel_headers", facts)["result"] == "warn"


def test_no_kernel_to_build_for_fails():
    assert check("kernel_headers", changed(FACTS, targets=[]))["result"] == "fail"


@pytest.mark.parametrize(("offered", "result"), [(True, "pass"), (False, "fail"), (None, "not_measured")])
def test_B4_the_compiler_that_built_the_kernel(offered, result):
    found = check("kernel_compiler", changed(FACTS, missing_packages={"gcc-12": offered}))
    assert found["result"] == result
    assert GCC_12["text"] in found["evidence"]


def test_B6_a_minor_difference_is_none():
    newer = {"text": "gcc-12 (Debian 12.3.0-2) 12.3.0", "family": "gcc", "major": 12}
    facts = changed(FACTS, kernel__installed=[kernel(RUNNING, compiler=newer)])
    assert check("kernel_compiler", facts)["result"] == "pass"


def test_B6_only_a_variable_ignores_a_major_difference():
    desired = dict(DESIRED, nvidia_driver=dict(DRIVER, ignore_compiler_mismatch=True))
    assert check("kernel_compiler", changed(FACTS, missing_packages={"gcc-12": False}), desired)["result"] == "warn"


def test_missing_build_tools():
    assert check("build_tools", changed(FACTS, missing_packages={"dkms": True}))["result"] == "pass"
    assert check("build_tools", changed(FACTS, missing_packages={"dkms": False}))["result"] == "fail"


@pytest.mark.parametrize(
    ("state", "key", "result"),
    [
        ("enabled", {"path": "/var/lib/dkms/mok.pub", "enrolled": True}, "pass"),
        ("enabled", {"path": "/var/lib/dkms/mok.pub", "enrolled": False}, "fail"),
        ("enabled", {"path": None, "enrolled": False}, "fail"),
        ("disabled", {"path": None, "enrolled": False}, "pass"),
        ("unsupported", {"path": None, "enrolled": False}, "pass"),
        ("unknown", {"path": None, "enrolled": False}, "not_measured"),
    ],
)
def test_B8_B9_secure_boot(state, key, result):
    assert check("secure_boot", changed(FACTS, kernel__secure_boot=state, key=key))["result"] == result


def test_B8_enforced_signatures_count_without_secure_boot_too():
    facts = changed(FACTS, kernel__sig_enforce=True)
    assert check("secure_boot", facts)["result"] == "fail"
    assert check("secure_boot", facts, options=dict(OPTIONS, secure_boot="allow"))["result"] == "warn"


def test_A12_a_file_that_overrides_the_command_line_is_named():
    desired = dict(DESIRED, nouveau={"state": "present", "kernel_command_line": True})
    assert check("boot_loader", desired=desired)["result"] == "pass"
    overriding = changed(FACTS, boot__overriding=["/etc/default/grub.d/99-zz.cfg"])
    assert "/etc/default/grub.d/99-zz.cfg" in check("boot_loader", overriding, desired)["evidence"]
    assert check("boot_loader", changed(FACTS, boot__kind=None), desired)["result"] == "fail"


def test_A14_encrypted_root_behind_a_splash_screen_is_a_warning():
    assert check("splash_screen", changed(FACTS, graphical_unlock=True))["result"] == "warn"


# -- storage -------------------------------------------------------------------------------------------------------


def test_C2_a_file_system_that_is_too_small_is_named():
    facts = changed(FACTS, space=[{"paths": ["/tmp"], "needed": 2000 << 20, "free": 512 << 20}])
    found = check("space", facts)
    assert found["result"] == "fail"
    assert "/tmp: 512 MiB free, 2000 MiB needed" in found["evidence"]


@pytest.mark.parametrize(
    ("options", "probe", "result"),
    [(["rw"], True, "pass"), (["rw", "noexec"], None, "fail"), (["rw"], False, "fail"), (["ro"], None, "fail")],
)
def test_C1_temporary_directory_must_run_programs(options, probe, result):
    facts = changed(FACTS, tmpdir__options=options, tmpdir__probe=probe)
    found = check("temporary_directory", facts)
    assert found["result"] == result
    assert found["variable"] == ("nvidia_driver_tmpdir" if result == "fail" else "")


# -- reading -------------------------------------------------------------------------------------------------------

VIRGIN = {
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n',
    "/bin/sh": b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00",
    "/proc/sys/kernel/osrelease": RUNNING + "\n",
    "/proc/cmdline": "root=/dev/sda1 quiet splash\n",
    "/proc/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\ntmpfs /tmp tmpfs rw,noexec 0 0\n",
    f"/lib/modules/{RUNNING}/kernel": Dir(),
    f"/lib/modules/{RUNNING}/build": Link("/usr/src/linux-headers-" + RUNNING),
    "/boot/vmlinuz-" + RUNNING: "",
    "/usr/sbin/mkinitramfs": "",
    "/boot/config-" + RUNNING: 'CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n',
    "/var/lib/dpkg/status": "Package: base-files\nStatus: install ok installed\nVersion: 12\nArchitecture: amd64\n\n",
    "/sys/bus/pci/devices/0000:1b:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:1b:00.0/device": "0x2330\n",
    "/sys/bus/pci/devices/0000:1b:00.0/class": "0x030200\n",
}


def document():
    return {
        "nouveau": {name: spec["default"] for name, spec in Nouveau.options.items()},
        "nvidia_driver": dict(DRIVER, runfile_sha256="0" * 64, runfile_checksum=None),
    }


def test_a_virgin_host_is_read_without_a_single_command(make_host):
    host = make_host(VIRGIN)
    before = host.tree()
    found = {finding["id"]: finding["result"] for finding in _preflight.findings(host, document(), {})}
    assert found["operating_system"] == found["architecture"] == found["gpu_generation"] == "pass"
    assert found["kernel_headers"] == "not_measured"  # the link dangles; apt has no package lists yet
    assert host.calls == []
    assert host.tree() == before


def test_options_left_out_take_their_defaults(make_host):
    found = _preflight.findings(make_host(VIRGIN), document(), {"expected_gpus": 8})
    assert [finding["result"] for finding in found if finding["id"] == "gpu_count"] == ["fail"]


def test_apt_tells_what_it_could_install(make_host):
    packages = ["gcc-12", "linux-headers-" + RUNNING]
    policy = "gcc-12:\n  Installed: (none)\n  Candidate: 12.2.0-14\n  Version table:\n     12.2.0-14 500\n"
    host = make_host(
        dict(VIRGIN, **{"/var/lib/apt/lists/deb_main_binary-amd64_Packages": ""}),
        {("apt-cache", "policy", *packages): (0, policy)},
    )
    assert reader.candidates(host, packages) == {"gcc-12": True, "linux-headers-" + RUNNING: False}


READY = {
    f"/usr/src/linux-headers-{RUNNING}/Makefile": "",
    **dict.fromkeys(["/usr/sbin/dkms", "/usr/bin/make", "/usr/bin/gcc-12", "/usr/bin/gcc"], ""),
}
STANZA = "Package: {}\nStatus: install ok {}\nVersion: 1\nArchitecture: amd64\n\n"


def with_packages(*rows, **listings):
    """VIRGIN with packages: ``(name, dpkg's third word)``; file lists by name, an underscore for a hyphen."""
    files = {f"/var/lib/dpkg/info/{name.replace('_', '-')}.list": text + "\n" for name, text in listings.items()}
    return {**VIRGIN, **READY, "/var/lib/dpkg/status": "".join(STANZA.format(*row) for row in rows), **files}


def verdict(host, name):
    (found,) = [finding for finding in _preflight.findings(host, document(), {}) if finding["id"] == name]
    return found


def test_D6_D9_packages_of_two_flavours_are_named_and_go_in_one_command(make_host):
    firmware = "/lib/firmware/nvidia/535.129.03/gsp_ga10x.bin"
    host = make_host(
        with_packages(
            *(
                ("nvidia-firmware-535", "installed"),
                ("nvidia-firmware-535-server", "half-installed"),
                ("less", "installed"),
            ),
            nvidia_firmware_535=firmware,
            nvidia_firmware_535_server=firmware,
        )
    )
    found = verdict(host, "foreign_driver")
    assert found["result"] == "fail"
    assert found["evidence"].endswith("nvidia-firmware-535, nvidia-firmware-535-server")
    assert "in one command" in found["remedy"]


@pytest.mark.parametrize(
    "name", ["linux-modules-nvidia-470-5.15.0-91-generic", "linux-objects-nvidia-470-5.15.0-91-generic"]
)
def test_D10_prebuilt_modules_are_a_driver_of_packages(make_host, name):
    found = verdict(make_host(with_packages((name, "installed"))), "foreign_driver")
    assert found["result"] == "fail"
    assert name in found["evidence"]


@pytest.mark.parametrize(
    "word", ["half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"]
)
def test_N6_what_dpkg_audit_tells_is_read_from_its_files(make_host, word):
    found = verdict(make_host(with_packages(("dkms", word))), "package_database")
    assert found["result"] == "fail"
    assert f"dkms ({word})" in found["evidence"]


UPDATE = ("apt-get", "update", "--error-on=any")
SWITCH = {
    "/sys/bus/pci/devices/0000:07:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:07:00.0/device": "0x22a3\n",
    "/sys/bus/pci/devices/0000:07:00.0/class": "0x068000\n",
}
NAMES = ("nvidia-fabricmanager", "nvidia-fabricmanager-580", "libnvidia-nscq", "libnvidia-nscq-580")


def fetched(host):
    host.put({"/var/lib/apt/lists/repo_Packages": ""})
    return 0, ""


def test_N8_package_lists_are_fetched_where_the_set_is_not_found(make_host):
    offer = "".join(f"{name} | 580.65.06-1 | x y\n" for name in NAMES[::2])
    commands = {UPDATE: fetched, ("apt-cache", "madison", *NAMES): (0, offer)}
    host = make_host({**VIRGIN, **SWITCH, **READY}, {**commands, ("/var/lib/.gpufleet-exec-probe",): (0, "")})
    answer = _preflight.examination(host, document(), {}, probe=True)
    results = {finding["id"]: finding["result"] for finding in answer["findings"]}
    assert results["version_set"] == "pass"
    assert host.calls.count(UPDATE) == 1
    assert answer["version_set"] == {
        "driver": "580.65.06",
        "flavour": "open",
        "persistence_daemon": "580.65.06",
        "platform": "nvswitch",
        "packages": [
            {"what": "fabric manager", "name": "nvidia-fabricmanager", "version": "580.65.06-1"},
            {"what": "NVSwitch query library", "name": "libnvidia-nscq", "version": "580.65.06-1"},
        ],
        "unit": "nvidia-fabricmanager.service",
        "modules": [],
    }


def test_N8_lists_that_cannot_be_fetched_are_told_and_have_not_passed(make_host):
    commands = {UPDATE: (100, "", "E: cannot resolve"), ("/var/lib/.gpufleet-exec-probe",): (0, "")}
    host = make_host({**VIRGIN, **SWITCH, **READY}, commands)
    found = _preflight.examination(host, document(), {}, probe=True)["findings"]
    (version_set,) = [finding for finding in found if finding["id"] == "version_set"]
    assert version_set["result"] == "not_measured"
    assert "cannot resolve" in version_set["evidence"]


@pytest.mark.parametrize(("probe", "refresh"), [(False, True), (True, False)])
def test_N8_nothing_is_fetched_in_check_mode_or_against_the_variable(make_host, probe, refresh):
    host = make_host({**VIRGIN, **SWITCH, **READY}, {("/var/lib/.gpufleet-exec-probe",): (0, "")})
    _preflight.examination(host, document(), {"refresh": refresh}, probe=probe)
    assert UPDATE not in host.calls


def test_J3_a_host_without_nvswitch_fetches_nothing(make_host):
    host = make_host({**VIRGIN, **READY}, {("/var/lib/.gpufleet-exec-probe",): (0, "")})
    answer = _preflight.examination(host, document(), {}, probe=True)
    assert UPDATE not in host.calls
    assert answer["version_set"]["packages"] == []


def test_B14_the_runfile_is_unpacked_asked_and_removed(make_host):
    runfile = b"#!/bin/sh\n"
    path = "/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-580.65.06.run"
    target = "/var/lib/gpufleet/.gpufleet-supported-gpus"
    extract = ("/bin/sh", path, "--extract-only", "--target", target)
    remove = ("rm", "-rf", "--", target)
    chips = [{"devid": "0x2330", "name": "NVIDIA H100", "features": ["kernelopen", "gsp_proprietary_supported"]}]

    def unpack(host):
        host.put({f"{target}/supported-gpus/supported-gpus.json": json.dumps({"chips": chips})})
        return 0, ""

    wanted = dict(document()["nvidia_driver"], runfile_checksum=None)
    wanted["runfile_sha256"] = hashlib.sha256(runfile).hexdigest()
    host = make_host({**VIRGIN, path: runfile}, {extract: unpack, remove: (0, "")})
    assert reader.supported(host, wanted, probe=True) == {
        "0x2330": {"flavours": ["open", "proprietary"], "legacy_branch": None}
    }
    assert host.calls == [extract, remove]
    assert host.environments[0] == {"TMPDIR": "/var/lib/gpufleet"}
    host.calls.clear()
    assert reader.supported(host, dict(wanted, runfile_sha256="0" * 64), probe=True) is None
    assert reader.supported(host, wanted, probe=False) is None
    assert host.calls == [], "a runfile that is not the wanted one is never executed"


def test_locks_of_dnf_are_told_too(make_host):
    host = make_host({"/usr/bin/dnf": "", "/var/cache/dnf/metadata_lock.pid": "812", "/proc/812/comm": "dnf\n"})
    assert reader.package_locks(host) == ["dnf (pid 812) holds /var/cache/dnf/metadata_lock.pid"]


def test_C1_the_last_mount_over_a_directory_counts(make_host):
    mounts = "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /var ext4 rw 0 0\ntmpfs /var tmpfs rw,noexec 0 0\n"
    host = make_host(dict(VIRGIN, **{"/proc/mounts": mounts}))
    folder = reader.tmpdir(host, "/var/lib/gpufleet/tmp", probe=False)
    assert (folder["mount"], folder["options"]) == ("/var", ["rw", "noexec"])
    assert reader.tmpdir(host, "/variable/tmp", probe=False)["mount"] == "/"


@pytest.mark.parametrize(("rc", "ran"), [(0, True), (126, False)])
def test_C1_the_probe_leaves_nothing(make_host, rc, ran):
    host = make_host(VIRGIN, {("/var/lib/.gpufleet-exec-probe",): (rc, "")})
    before = host.tree()
    assert reader.tmpdir(host, "/var/lib/gpufleet/tmp", probe=True)["probe"] is ran
    assert host.tree() == before


def test_B8_a_key_is_enrolled_when_a_trusted_list_holds_it(make_host):
    key = b"0\x82DER certificate"
    store = "/sys/firmware/efi/mok-variables/MokListRT"
    files = {"/var/lib/dkms/mok.pub": key}
    assert reader.module_key(make_host(files)) == {"path": "/var/lib/dkms/mok.pub", "enrolled": None}
    assert reader.module_key(make_host(dict(files, **{store: b"header" + key})))["enrolled"] is True
    assert reader.module_key(make_host(dict(files, **{store: b"another"})))["enrolled"] is False


@pytest.mark.parametrize(
    ("crypttab", "cmdline", "answer"),
    [
        ("root UUID=1 none luks\n", "quiet splash", True),
        ("root UUID=1 none luks\n", "quiet splash console=ttyS0", False),
        ("root UUID=1 none luks\n", "quiet", False),
        ("# nothing\n\n", "quiet splash", False),
    ],
)
def test_A14_graphical_unlock(make_host, crypttab, cmdline, answer):
    host = make_host({"/etc/crypttab": crypttab, "/usr/sbin/plymouthd": ""})
    assert reader.graphical_unlock(host, cmdline) is answer


def test_P12_installers_are_found_by_their_command_line(make_host):
    host = make_host(
        {
            "/proc/77/cmdline": "/bin/sh\0/var/lib/gpufleet/NVIDIA-Linux-x86_64-580.65.06.run\0--silent\0",
            "/proc/78/cmdline": "vi\0notes.txt\0",
        }
    )
    assert reader.installers(host) == [{"pid": 77, "command": "NVIDIA-Linux-x86_64-580.65.06.run", "ours": False}]


def test_P12_our_own_installer_is_known_by_its_unit_and_so_is_what_waits_for_it(make_host):
    unit = "gpufleet-nvidia-installer.service"
    host = make_host(
        {
            "/proc/77/cmdline": f"systemd-run\0--unit={unit}\0--wait\0sh\0/var/NVIDIA-Linux-x86_64-580.65.06.run\0",
            "/proc/77/cgroup": "0::/user.slice/session-4.scope\n",
            "/proc/78/cmdline": "sh\0/var/NVIDIA-Linux-x86_64-580.65.06.run\0",
            "/proc/78/cgroup": f"0::/system.slice/{unit}\n",
        }
    )
    assert [(found["pid"], found["ours"]) for found in reader.installers(host)] == [(77, True), (78, True)]


@pytest.mark.parametrize("driver", [None, "vfio-pci"])
def test_P18_a_host_without_gpus_of_its_own_needs_no_room_for_a_driver(make_host, driver):
    tree = {path: entry for path, entry in VIRGIN.items() if driver or "0000:1b:00.0" not in path}
    if driver:
        tree["/sys/bus/pci/devices/0000:1b:00.0/driver"] = Link("../../../bus/pci/drivers/vfio-pci")
    host = make_host(tree)
    assert set(reader.needs(host, document(), [RUNNING])) == {"/boot", "/var/tmp"}
    assert reader.read(host, document())["tmpdir"] is None


def test_C2_needs_are_summed_per_file_system(make_host):
    host = make_host(VIRGIN)
    systems = reader.space(host, document(), [RUNNING])
    assert len(systems) == 1
    assert {"/usr", "/var/lib/dkms", "/var/lib/gpufleet/tmp", "/boot"} <= set(systems[0]["paths"])
    assert systems[0]["needed"] == sum(reader.needs(host, document(), [RUNNING]).values())


@pytest.mark.parametrize(
    "obstacles, state, result, words",
    [
        ([], "present", "pass", "apt can lock versions"),
        (["install python3-dnf-plugin-versionlock"], "present", "fail", "install python3-dnf-plugin-versionlock"),
        (None, "present", "fail", "with apt and dnf only"),
        (None, "unmanaged", None, None),
    ],
)
def test_a_lock_that_cannot_be_set_fails_before_the_driver_is_installed(obstacles, state, result, words):
    found = check(
        "version_lock", changed(FACTS, lock_obstacles=obstacles), dict(DESIRED, version_lock={"state": state})
    )
    assert (found and found["result"]) == result
    assert found is None or words in found["evidence"]


@pytest.mark.parametrize(
    "files, obstacles",
    [
        ({}, None),
        ({"/var/lib/dpkg/status": ""}, []),
        ({"/usr/bin/dnf5": ""}, []),
        ({"/usr/bin/dnf": ""}, ["the plugin is not installed: install python3-dnf-plugin-versionlock"]),
    ],
)
def test_what_keeps_a_package_manager_from_locking(make_host, files, obstacles):
    assert reader.lock_obstacles(make_host(files)) == obstacles


# -- the other ways of a driver ------------------------------------------------------------------------------------

OLDER = "570.172.08"
KEPT_RUNFILE = f"/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{OLDER}.run"


def last_good_set(**changes):
    """The record of a change that replaced the older driver, and its runfile."""
    content = b"#!/bin/sh\n# older\n"
    found = {
        **{"version": OLDER, "flavour": "open", "runfile": KEPT_RUNFILE, "arguments": [], "module_parameters": {}},
        **{"sha256": hashlib.sha256(content).hexdigest(), "persistence": True, "members": {}, **changes},
    }
    return {KEPT_RUNFILE: content, last_good.PATH: json.dumps(found)}


def ways(host, state, **options):
    """id -> finding of a look at what this state of the driver would meet."""
    driver = validated(NvidiaDriver(), {"state": state, **options})
    found = _preflight.findings(host, {"nouveau": document()["nouveau"], "nvidia_driver": driver}, {})
    return {finding["id"]: finding for finding in found}


def test_B14_previous_is_predicted_for_the_version_that_it_means_on_this_host(make_host):
    found = ways(make_host({**VIRGIN, **READY, **last_good_set()}), "previous")
    assert found["way_back"]["result"] == "pass"
    assert f"replaced driver {OLDER}" in found["way_back"]["evidence"]
    assert found["gpu_generation"]["evidence"].endswith(f"open modules of {OLDER}")
    assert found["kernel_headers"]["result"] == "pass"
    blackwell = {"/sys/bus/pci/devices/0000:1b:00.0/device": "0x3182\n"}
    found = ways(make_host({**VIRGIN, **READY, **last_good_set(), **blackwell}), "previous")
    assert found["gpu_generation"]["result"] == "fail"
    assert OLDER in found["gpu_generation"]["remedy"]


def test_C2_previous_needs_the_room_that_its_driver_takes(make_host):
    host = make_host({**VIRGIN, **last_good_set()})
    assert "/var/lib/dkms" in ways(host, "previous")["space"]["evidence"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda host: host.remove(last_good.PATH), "no way back on this host"),
        (lambda host: host.remove(KEPT_RUNFILE), f"{OLDER}, whose runfile is no longer"),
        (lambda host: host.put({KEPT_RUNFILE: "torn"}), f"{OLDER}, whose runfile is no longer"),
    ],
    ids=["no set", "no runfile", "another file"],
)
def test_a_way_back_that_cannot_be_gone_fails_before_the_first_step(make_host, change, words):
    host = make_host({**VIRGIN, **READY, **last_good_set()})
    change(host)
    found = ways(host, "previous")["way_back"]
    assert (found["result"], found["variable"]) == ("fail", "nvidia_driver_state")
    assert words in found["evidence"]
    assert "nvidia_driver_version" in found["remedy"]


def test_a_host_without_gpus_has_no_way_to_go_back_and_does_not_fail(make_host):
    host = make_host({path: entry for path, entry in VIRGIN.items() if "0000:1b:00.0" not in path})
    assert "way_back" not in ways(host, "previous")


def test_absent_is_asked_only_what_concerns_removal_and_is_nothing_where_no_driver_is(make_host):
    host = make_host({**VIRGIN, "/proc/mounts": "tmpfs / tmpfs rw,noexec 0 0\n"})
    found = ways(host, "absent")
    assert (found["removal"]["result"], found["removal"]["evidence"]) == ("pass", "no driver is on this host")
    judged = {"kernel_headers", "kernel_compiler", "gpu_generation", "temporary_directory", "version_set", "nouveau"}
    assert not judged & set(found)
    assert host.calls == []


REMOVABLE = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.172.08": "",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": Link("libnvidia-ml.so.570.172.08"),
    "/sys/module/nvidia/refcnt": "1\n",
    "/proc/4711/fd/3": Link("/dev/nvidia0"),
    "/proc/4711/comm": "python3\n",
}


@pytest.mark.parametrize(
    ("options", "result", "variable"),
    [
        ({}, "fail", "nvidia_driver_replace_in_use"),
        ({"replace_in_use": True}, "warn", "nvidia_driver_replace_in_use"),
        ({"wait_for_idle": 60}, "warn", "nvidia_driver_wait_for_idle"),
    ],
)
def test_D2_who_would_lose_a_driver_that_is_to_go_is_named(make_host, options, result, variable):
    unit = {"/proc/4711/cgroup": "0::/system.slice/train.service\n"}
    found = ways(make_host({**VIRGIN, **REMOVABLE, **unit}), "absent", **options)["removal"]
    assert (found["result"], found["variable"]) == (result, variable)
    assert "python3 (pid 4711, unit train.service)" in found["evidence"]


def test_D2_a_container_is_named_by_its_id_before_a_change_and_before_a_removal(make_host):
    unit = {"/proc/4711/cgroup": "0::/system.slice/docker-ab12ab12ab12ffff0000.scope\n"}
    host = make_host({**VIRGIN, **READY, **REMOVABLE, "/sys/module/nvidia/version": "570.172.08\n", **unit})
    named = "python3 (pid 4711, container ab12ab12ab12)"
    assert named in ways(host, "absent")["removal"]["evidence"]
    wanted = {"version": "580.65.06", "runfile_sha256": "0" * 64}
    assert named in ways(host, "present", **wanted)["driver_in_use"]["evidence"]


@pytest.mark.parametrize("unit", ["nvidia-persistenced.service", "nvidia-fabricmanager.service"])
def test_D2_the_drivers_own_daemons_do_not_keep_it(make_host, unit):
    host = make_host({**VIRGIN, **REMOVABLE, "/proc/4711/cgroup": f"0::/system.slice/{unit}\n"})
    assert ways(host, "absent")["removal"]["result"] == "pass"


def test_P12_an_installer_at_work_is_told_before_a_removal_too(make_host):
    at_work = {"/proc/77/cmdline": "/bin/sh\0/tmp/NVIDIA-Linux-x86_64-580.65.06.run\0"}
    found = ways(make_host({**VIRGIN, **at_work}), "absent")["installer_running"]
    assert found["result"] == "fail" and "pid 77" in found["evidence"]


def test_D6_a_driver_of_packages_stays_and_that_is_said(make_host):
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01"
    host = make_host(
        {**with_packages(("libnvidia-compute-535", "installed"), libnvidia_compute_535=library), library: ""}
    )
    found = ways(host, "absent")["removal"]
    assert found["result"] == "warn" and "libnvidia-compute-535" in found["evidence"]
