# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import json
import os

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    NvidiaDriver,
    boot,
    journal,
    runfile,
    unload,
)
from tests.unit.hosts import Dir, Link
from tests.unit.plugins.module_utils.nvidia_driver import trees
from tests.unit.plugins.module_utils.nvidia_driver.trees import KERNEL, NEWER, OLDER, VERSION, does

CONCERN = NvidiaDriver()
INSTALL = trees.installer(environment=("CC=/usr/bin/gcc-12",))
UNLOADS = {
    ("rmmod", "nvidia_uvm"): trees.takes("/sys/module/nvidia_uvm", "/sys/module/nvidia/holders/nvidia_uvm"),
    ("rmmod", "nvidia"): trees.takes("/sys/module/nvidia", "/proc/driver/nvidia"),
}
NOUVEAU = {"/sys/module/nouveau/refcnt": "1\n"}


def inspect(host, **wanted):
    return CONCERN.inspect(host, trees.desired(**wanted))


def whats(difference):
    return {item["what"]: item for item in difference.items}


@pytest.fixture
def complete(make_host):
    """A host on which one run has made everything true."""
    host = make_host(trees.virgin(), trees.tools())
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    host.calls.clear()
    host.environments.clear()
    return host


def test_a_virgin_host_gets_a_truthful_plan_without_runfile_and_dkms(make_host):
    files = trees.virgin(runfile=False)
    for path in ("/usr/sbin/dkms", "/usr/bin/make", "/usr/bin/gcc-12", f"/lib/modules/{KERNEL}/build/Makefile"):
        del files[path]
    host = make_host(files, {trees.ACTIVE: (3, ""), trees.MAIN_PID: (0, "0\n")})
    before = host.tree()
    state, difference = inspect(host)
    assert {f"package {name}" for name in ("dkms", "make", "gcc-12", f"linux-headers-{KERNEL}")} <= set(
        whats(difference)
    )
    assert {trees.RUNFILE, "user-space libraries", f"module for {KERNEL}", "GPU firmware"} <= set(whats(difference))
    assert whats(difference)["loaded driver"]["after"] == VERSION
    assert CONCERN.returns(state, trees.desired())["missing_packages"] == [
        "dkms",
        "gcc-12",
        f"linux-headers-{KERNEL}",
        "make",
    ]
    assert host.tree() == before


def test_a_virgin_host_is_installed_loaded_and_ready(make_host):
    host = make_host(trees.virgin(), trees.tools())
    difference = trees.converge(CONCERN, host, trees.desired())
    assert difference.status == "clean", difference.items
    order = [host.calls.index(call) for call in (trees.CHECK, trees.PROBE, INSTALL, ("modprobe", "nvidia"))]
    assert order == sorted(order)
    assert host.calls.count(("systemctl", "daemon-reload")) == 1
    assert journal.read(host)["phase"] == "done"


def test_N4_the_installed_version_is_a_no_op(complete):
    _state, difference = inspect(complete)
    assert difference.status == "clean"
    assert set(complete.calls) <= {trees.ACTIVE, trees.MAIN_PID}


def test_with_nouveau_loaded_everything_is_prepared_and_a_reboot_is_pending(make_host):
    host = make_host(trees.virgin(**NOUVEAU), trees.tools(**{}))
    difference = trees.converge(CONCERN, host, trees.desired())
    assert difference.status == "pending"
    assert "nouveau" in difference.pending[0]["why"]
    assert ("modprobe", "nvidia") not in host.calls
    assert not [call for call in host.calls if call[:2] in (("systemctl", "start"), ("systemctl", "restart"))]


def test_B3_a_leftover_program_is_no_installed_driver(complete):
    complete.put({"/usr/bin/nvidia-smi": "", **trees.kernel(NEWER), "/proc/sys/kernel/osrelease": NEWER + "\n"})
    _state, difference = inspect(complete)
    assert whats(difference)[f"module for {NEWER}"]["before"] == "absent"


def test_C8_every_bootable_kernel_with_headers_gets_the_module(make_host):
    install = ("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", NEWER)
    host = make_host(
        {**trees.virgin(), **trees.kernel(NEWER)}, trees.tools(**{}) | {install: does(trees.module(NEWER))}
    )
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert install in host.calls


def test_C8_only_a_new_kernel_needs_no_installer(complete):
    install = ("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", NEWER)
    complete.commands[install] = does(trees.module(NEWER))
    complete.put(trees.kernel(NEWER))
    assert trees.converge(CONCERN, complete, trees.desired()).status == "clean"
    assert install in complete.calls
    assert INSTALL not in complete.calls


def test_B1_a_kernel_without_headers_that_will_not_boot_is_no_target(make_host):
    old = "5.10.0-8-amd64"
    host = make_host({**trees.virgin(), **trees.kernel(old, headers=False)}, trees.tools())
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"


def test_B2_missing_headers_of_the_next_kernel_are_named(make_host):
    host = make_host({**trees.virgin(), **trees.kernel(NEWER, headers=False)}, trees.tools())
    state, difference = inspect(host)
    assert f"package linux-headers-{NEWER}" in whats(difference)
    with pytest.raises(ConcernError, match=f"linux-headers-{NEWER}"):
        CONCERN.apply(host, trees.desired(), state, difference)
    assert INSTALL not in host.calls


def test_B2_dangling_headers_are_missing_headers(make_host):
    files = trees.virgin()
    del files[f"/lib/modules/{KERNEL}/build/Makefile"]
    files[f"/lib/modules/{KERNEL}/build"] = Link("/usr/src/gone")
    assert f"package linux-headers-{KERNEL}" in whats(inspect(make_host(files, trees.tools()))[1])


def test_B4_the_kernels_own_compiler_builds_and_is_asked_for(make_host):
    files = trees.virgin()
    del files["/usr/bin/gcc-12"]
    files["/usr/bin/gcc-11"] = ""
    assert "package gcc-12" in whats(inspect(make_host(files, trees.tools()))[1])


def test_C1_a_noexec_tmpdir_is_found_before_the_installer_runs(make_host):
    host = make_host(trees.virgin(), trees.tools() | {trees.PROBE: (126, "", "Permission denied")})
    with pytest.raises(ConcernError, match="nvidia_driver_tmpdir"):
        trees.converge(CONCERN, host, trees.desired())
    assert INSTALL not in host.calls
    assert trees.PROBE[0] not in host.tree()


def test_C1_what_a_killed_installer_had_unpacked_is_removed_from_our_own_directory_only(make_host):
    remove = ("rm", "-rf", "--", f"{trees.TMPDIR}/selfgz4711")
    left_over = {f"{trees.TMPDIR}/selfgz4711/nvidia-installer": "", "/tmp/selfgz12/cuda-installer": ""}
    host = make_host(trees.virgin(**left_over), trees.tools() | {remove: trees.takes(remove[-1])})
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert host.calls.index(remove) < host.calls.index(INSTALL)
    runfile.prepare_tmpdir(
        make_host(trees.virgin(**left_over), {("/tmp/exec-probe",): (0, "")}), {"tmpdir": "/tmp"}, trees.RUNFILE
    )


def test_C2_too_little_space_is_found_before_the_installer_runs(make_host, monkeypatch):
    host = make_host(trees.virgin(), trees.tools())
    monkeypatch.setattr(host, "free_bytes", lambda _path: 10)
    with pytest.raises(ConcernError, match="MiB free"):
        trees.converge(CONCERN, host, trees.desired())
    assert INSTALL not in host.calls


def test_C3_a_runfile_with_another_sha256_is_never_run(make_host):
    host = make_host(trees.virgin(), trees.tools())
    wanted = trees.desired(runfile_sha256="0" * 64)
    with pytest.raises(ConcernError, match="nvidia_driver_runfile_sha256"):
        trees.converge(CONCERN, host, wanted)
    assert trees.CHECK not in host.calls


def test_C3_the_runfiles_own_check_comes_before_its_run(make_host):
    host = make_host(trees.virgin(), trees.tools() | {trees.CHECK: (1, "", "Error in MD5 checksums")})
    with pytest.raises(ConcernError, match="integrity check"):
        trees.converge(CONCERN, host, trees.desired())
    assert INSTALL not in host.calls


@pytest.mark.parametrize(
    "text",
    [
        f"{trees.SHA256}  NVIDIA-Linux-x86_64-{VERSION}.run\n",
        f"{'1' * 64}  other.run\n{trees.SHA256} *NVIDIA-Linux-x86_64-{VERSION}.run\n",
        f"{trees.SHA256}\n",
    ],
)
def test_a_checksum_file_gives_the_sha256(make_host, text):
    host = make_host(trees.virgin(**{f"/var/lib/gpufleet/runfiles/{VERSION}.sha256sum": text}), trees.tools())
    state, _difference = inspect(host, runfile_sha256=None, runfile_checksum="https://mirror/sums")
    assert state["runfile"]["expected_sha256"] == trees.SHA256


def test_C4_a_damaged_runfile_on_the_host_is_due_again(make_host):
    host = make_host(trees.virgin(**{trees.RUNFILE: b"half"}), trees.tools())
    state, difference = inspect(host)
    assert trees.RUNFILE in whats(difference)
    assert CONCERN.returns(state, trees.desired())["runfile_due"] is True


def test_the_proof_of_the_runfile_is_remembered_and_falls_with_the_file(complete):
    record = json.loads(complete.tree()["/var/lib/gpufleet/driver/runfile.json"])
    assert record[trees.RUNFILE]["sha256"] == trees.SHA256
    complete.put({trees.RUNFILE: b"#!/bin/sh\n# a changed one"})
    assert inspect(complete)[0]["runfile"]["sha256"] != trees.SHA256


def test_C8_rc_0_without_a_module_is_a_failure_with_both_logs(make_host):
    tree = {
        f"{trees.LIBRARIES}/libnvidia-ml.so.{VERSION}": "",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": "",
        f"/var/lib/dkms/nvidia/{VERSION}/source": Link("/usr/src/nvidia"),
        f"/var/lib/dkms/nvidia/{VERSION}/build/make.log": "gcc: error: unrecognized command-line option '-fx'\n",
        "/usr/src/nvidia/dkms.conf": "",
        "/var/log/nvidia-installer.log": "-> done\n",
    }
    build = ("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", KERNEL)
    remove = ("dkms", "remove", "-m", "nvidia", "-v", VERSION, "--all")
    host = make_host(
        trees.virgin(),
        trees.tools() | trees.removes_rest() | {INSTALL: does(tree), build: (10, "", "Error!"), remove: (0, "")},
    )
    with pytest.raises(ConcernError, match="the compiler is not the one") as error:
        trees.converge(CONCERN, host, trees.desired())
    assert error.value.details["cause"] == "compiler"
    assert error.value.details["make_log"]
    assert error.value.details["installer_log"] == ["-> done"]
    assert remove in host.calls


def test_C8_rc_0_of_dkms_without_a_module_is_a_failure_too(make_host):
    half = {path: entry for path, entry in trees.on_disk().items() if KERNEL not in path}
    host = make_host(
        trees.virgin(),
        trees.tools()
        | {
            INSTALL: does(half),
            ("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", KERNEL): (0, ""),
            **trees.removes_rest(),
        },
    )
    with pytest.raises(ConcernError, match=f"ended without an error, but module for {KERNEL}: DKMS has not"):
        trees.converge(CONCERN, host, trees.desired())
    assert ("modprobe", "nvidia") not in host.calls


def test_N7_a_failed_first_build_leaves_the_host_as_before(make_host):
    uninstall = ("/usr/bin/nvidia-uninstall", "--silent", "--ui=none")
    log = {
        "/var/log/nvidia-installer.log": "ERROR: Unable to find the kernel source tree\n",
        "/usr/bin/nvidia-uninstall": "",
    }
    host = make_host(
        {**trees.virgin(**NOUVEAU), "/etc/modprobe.d/gpufleet-nouveau.conf": "blacklist nouveau\n"},
        trees.tools() | {INSTALL: does(log, rc=1, err="failed"), uninstall: (0, "")},
    )
    with pytest.raises(ConcernError) as error:
        trees.converge(CONCERN, host, trees.desired())
    assert "headers" in str(error.value)
    assert "The host is as before" in str(error.value)
    assert uninstall in host.calls
    assert "/etc/modprobe.d/gpufleet-nouveau.conf" not in host.tree()
    assert "/etc/modules-load.d/gpufleet-nvidia.conf" not in host.tree()


def test_N6_a_failed_upgrade_loads_the_old_driver_again_when_nothing_of_it_was_touched(make_host):
    host = upgradable(make_host)
    host.commands[INSTALL] = (1, "", "failed")
    host.commands[("modprobe", "nvidia")] = does(trees.loaded(OLDER))
    with pytest.raises(ConcernError, match=f"Driver {OLDER} had not been replaced yet, and is loaded"):
        trees.converge(CONCERN, host, trees.desired())
    assert host.calls.index(("rmmod", "nvidia")) < host.calls.index(INSTALL) < host.calls.index(("modprobe", "nvidia"))
    assert not [call for call in host.calls if "uninstall" in call[0] or call[:2] == ("dkms", "remove")]


def test_D6_packages_that_own_the_driver_are_named_and_refused(make_host):
    status = "Package: libnvidia-compute-535\nStatus: install ok installed\nVersion: 535\nArchitecture: amd64\n"
    listing = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01\n"
    host = make_host(
        trees.virgin(
            **{"/var/lib/dpkg/status": status, "/var/lib/dpkg/info/libnvidia-compute-535:amd64.list": listing}
        ),
        trees.tools(),
    )
    with pytest.raises(ConcernError, match="libnvidia-compute-535"):
        trees.converge(CONCERN, host, trees.desired())
    assert INSTALL not in host.calls


def upgradable(make_host, extra_files=(), **commands):
    """A host with an older driver of the runfile kind loaded; the upgrade loads the new one."""
    host = make_host(
        {**trees.virgin(), **trees.on_disk(OLDER), **trees.loaded(OLDER), **trees.devices(), **dict(extra_files)},
        trees.tools()
        | {
            ("modprobe", "nvidia_uvm"): (0, ""),
        }
        | UNLOADS,
    )

    host.put({"/sys/module/nvidia/refcnt": "1\n"})
    return host


def test_D1_an_unused_older_driver_is_unloaded_in_order_then_replaced(make_host):
    host = upgradable(make_host)
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    order = [
        host.calls.index(call)
        for call in (("rmmod", "nvidia_uvm"), ("rmmod", "nvidia"), INSTALL, ("modprobe", "nvidia"))
    ]
    assert order == sorted(order)


def test_D2_who_uses_the_driver_is_named_and_nothing_is_touched(make_host):
    host = upgradable(make_host, {**trees.user_of(4711), **trees.user_of(5, "app", "/docker/" + "ab12" * 16)})
    with pytest.raises(ConcernError) as error:
        trees.converge(CONCERN, host, trees.desired())
    assert "python3 (pid 4711, unit train.service)" in str(error.value)
    assert "container ab12ab12ab12" in str(error.value)
    assert "nvidia_driver_replace_in_use" in str(error.value)
    assert not [call for call in host.calls if call[0] in ("rmmod", "systemd-run", "kill")]


def test_D2_when_allowed_a_driver_in_use_is_replaced_on_disk_and_waits_for_the_reboot(make_host):
    host = upgradable(make_host, trees.user_of(4711))
    host.commands[trees.installer("--allow-installation-with-running-driver", environment=("CC=/usr/bin/gcc-12",))] = (
        trees.installs()
    )
    difference = trees.converge(CONCERN, host, trees.desired(replace_in_use=True))
    assert difference.status == "pending"
    assert "pid 4711" in difference.pending[0]["why"]
    assert not [call for call in host.calls if call[0] == "rmmod"]


def test_D2_the_drivers_own_daemon_is_stopped_for_the_upgrade_and_started_again(make_host):
    daemon = trees.user_of(300, "nvidia-persistenced", "/system.slice/nvidia-persistenced.service")
    host = upgradable(make_host, daemon)
    host.commands[("systemctl", "stop", "nvidia-persistenced")] = trees.takes("/proc/300")
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    stop, start = ("systemctl", "stop", "nvidia-persistenced"), ("systemctl", "restart", "nvidia-persistenced.service")
    assert host.calls.index(stop) < host.calls.index(INSTALL) < host.calls.index(start)


@pytest.mark.parametrize(
    "groups",
    [
        "0::/system.slice/nvidia-persistenced.service\n",
        "9:name=systemd:/x/system.slice/nvidia-persistenced.service\n8:pids:/x\n0::/x\n",
        "1:name=systemd:/system.slice/nvidia-persistenced.service/sub\n0::/\n",
    ],
)
def test_D2_the_unit_is_found_in_every_kind_of_control_groups(make_host, groups):
    host = make_host({**trees.loaded(), **trees.user_of(300, "nvidia-persiste"), "/proc/300/cgroup": groups})
    users = unload.read(host)
    assert unload.daemons(users) == ["nvidia-persistenced"]
    assert unload.holders(users) == []


def test_D3_a_module_that_stays_brings_the_others_back(make_host):
    host = upgradable(make_host)
    host.commands[("rmmod", "nvidia")] = (1, "", "rmmod: ERROR: Module nvidia is in use")
    host.commands[("modprobe", "nvidia_uvm")] = does({"/sys/module/nvidia_uvm/refcnt": "0\n"})
    host.commands[trees.installer("--allow-installation-with-running-driver", environment=("CC=/usr/bin/gcc-12",))] = (
        trees.installs()
    )
    state, difference = inspect(host)
    CONCERN.apply(host, trees.desired(), state, difference)
    assert ("modprobe", "nvidia_uvm") in host.calls
    assert host.exists("/sys/module/nvidia_uvm")


def test_D5_the_order_follows_the_holders(make_host):
    host = upgradable(
        make_host, {"/sys/module/nvidia_peermem/refcnt": "0\n", "/sys/module/nvidia/holders/nvidia_peermem": Dir()}
    )
    host.put({"/sys/module/nvidia/refcnt": "2\n"})
    gone = trees.takes("/sys/module/nvidia_peermem", "/sys/module/nvidia/holders/nvidia_peermem")
    host.commands[("rmmod", "nvidia_peermem")] = gone
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert host.calls.index(("rmmod", "nvidia_peermem")) < host.calls.index(("rmmod", "nvidia"))


def test_D5_a_module_of_somebody_else_is_named(make_host):
    host = upgradable(make_host, {"/sys/module/nvidia/holders/gdrdrv": Dir()})
    with pytest.raises(ConcernError, match="kernel module gdrdrv"):
        trees.converge(CONCERN, host, trees.desired())


def test_D12_a_module_of_another_version_on_disk_is_a_difference(complete):
    complete.put(trees.module(KERNEL, OLDER))
    _state, difference = inspect(complete)
    assert whats(difference)[f"module for {KERNEL}"]["before"] == OLDER


def test_N2_the_firmware_must_have_the_modules_version(complete):
    trees.takes(f"/lib/firmware/nvidia/{VERSION}")(complete)
    complete.put({f"/lib/firmware/nvidia/{OLDER}/gsp_ga10x.bin": ""})
    assert whats(inspect(complete)[1])["GPU firmware"]["before"] == OLDER


def test_M16_a_new_library_over_the_old_module_is_loaded_or_waits_for_the_reboot_and_goes_on_after_it(complete):
    complete.put({**trees.loaded(OLDER), "/sys/module/nvidia/refcnt": "1\n", **trees.user_of(4711)})
    _state, difference = inspect(complete)
    assert (difference.status, difference.pending[0]["what"]) == ("pending", "loaded driver")
    trees.takes("/proc/4711")(complete)
    complete.commands.update(UNLOADS)
    assert inspect(complete)[1].status == "differs"
    assert trees.converge(CONCERN, complete, trees.desired()).status == "clean"
    assert INSTALL not in complete.calls
    complete.put({**trees.loaded(OLDER), **trees.user_of(4711)})
    complete.put({**trees.loaded(), "/proc/4711/fd/3": ""})  # after the reboot
    assert inspect(complete)[1].status == "clean"


def test_P12_a_running_installer_is_waited_for_and_then_the_host_is_judged(make_host):
    host = make_host(trees.virgin(), trees.tools())
    host.commands[trees.MAIN_PID] = [(0, "4242\n")] + [(0, "0\n")] * 9
    host.commands[("tail", "--pid=4242", "-f", "/dev/null")] = does(trees.on_disk())
    host.put({journal.PATH: json.dumps({"phase": "install", "version": VERSION, "previous": None, "stopped": []})})
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert INSTALL not in host.calls


def test_P12_a_wait_has_an_end(make_host):
    host = make_host(trees.virgin(), trees.tools())
    host.commands[trees.MAIN_PID] = (0, "4242\n")
    host.commands[("tail", "--pid=4242", "-f", "/dev/null")] = (124, "")
    with pytest.raises(ConcernError, match="nvidia_driver_installer_timeout"):
        trees.converge(CONCERN, host, trees.desired())


def test_P12_without_systemd_a_lock_keeps_a_second_installer_out(make_host):
    files = trees.virgin()
    del files["/run/systemd/system"]
    plain = INSTALL[INSTALL.index("--") + 1 :]
    lock = (
        "setsid",
        "--wait",
        "flock",
        "--nonblock",
        "--conflict-exit-code",
        "75",
        "/run/gpufleet-nvidia-installer.lock",
        "timeout",
        "--kill-after=20",
        "3600",
    )
    host = make_host(files, {**trees.tools(), (*lock, *plain): (75, "")})
    with pytest.raises(ConcernError, match="another run"):
        trees.converge(CONCERN, host, trees.desired())


@pytest.mark.parametrize("phase", [phase for phase in journal.PHASES if phase != "done"])
def test_N7_a_run_that_dies_in_any_phase_is_completed_by_the_next(make_host, monkeypatch, phase):
    host = make_host(trees.virgin(), trees.tools())
    enter = journal.enter

    def dies(host, record, entered, **notes):
        result = enter(host, record, entered, **notes)
        if entered == phase:
            raise KeyboardInterrupt(phase)
        return result

    monkeypatch.setattr(journal, "enter", dies)
    with pytest.raises(KeyboardInterrupt):
        trees.converge(CONCERN, host, trees.desired())
    assert journal.interrupted(journal.read(host)) == phase
    monkeypatch.setattr(journal, "enter", enter)
    host.commands.update(trees.tools())
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert journal.read(host)["phase"] == "done"


def test_N7_an_installer_that_died_at_work_runs_again_though_its_files_look_complete(make_host):
    record = {"phase": "install", "version": VERSION, "previous": None, "stopped": []}
    half = {**trees.on_disk(), "/var/log/nvidia-installer.log": "-> Installing\n"}
    host = make_host({**trees.virgin(), **half, journal.PATH: json.dumps(record)}, trees.tools())
    assert "installation" in whats(inspect(host)[1])
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert INSTALL in host.calls


def test_P16_daemons_that_a_dead_run_had_stopped_are_started_again(make_host):
    record = {"phase": "install", "version": VERSION, "previous": OLDER, "stopped": ["nvidia-dcgm"]}
    host = make_host({**trees.virgin(), journal.PATH: json.dumps(record)}, trees.tools())
    host.commands[("systemctl", "is-active", "--quiet", "nvidia-dcgm.service")] = (3, "")
    host.commands[("systemctl", "start", "nvidia-dcgm")] = (0, "")
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert ("systemctl", "start", "nvidia-dcgm") in host.calls


def test_P18_a_host_without_gpus_is_clean_and_says_so(make_host):
    files = {path: text for path, text in trees.virgin(runfile=False).items() if "/pci/" not in path}
    host = make_host(files, trees.tools())
    state, difference = inspect(host)
    assert difference.status == "clean"
    assert CONCERN.returns(state, trees.desired())["outcome"] == "no_gpu"


def test_B15_gpus_of_virtual_machines_are_left_alone(make_host):
    host = make_host(
        trees.virgin(**{"/sys/bus/pci/devices/0000:1b:00.0/driver": Link("/sys/bus/pci/drivers/vfio-pci")}),
        trees.tools(),
    )
    state, difference = inspect(host)
    assert difference.status == "clean"
    assert CONCERN.returns(state, trees.desired())["outcome"] == "passthrough"


def test_B8_a_rejected_signature_is_told_and_the_host_put_back(make_host):
    host = make_host(
        trees.virgin(),
        trees.tools() | {("modprobe", "nvidia"): (1, "", "could not insert 'nvidia': Key was rejected by service")},
    )
    host.commands.update(trees.removes_rest())
    host.commands.update({("systemctl", "disable", "--now", "--no-reload", unit): (0, "") for unit in units()})
    with pytest.raises(ConcernError, match="mokutil") as error:
        trees.converge(CONCERN, host, trees.desired())
    assert error.value.details["cause"] == "unsigned"


def units():
    return ("gpufleet-nvidia-devices.service", "nvidia-persistenced.service")


def test_B11_an_architecture_without_a_runfile_is_refused(make_host):
    host = make_host(trees.virgin(**{"/bin/sh": trees.ELF_X86_64[:18] + b"\xf3\x00"}), trees.tools())
    with pytest.raises(ConcernError, match="architecture"):
        trees.converge(CONCERN, host, trees.desired())


def test_module_parameters_are_written_and_read_back_from_the_loaded_module(complete):
    wanted = trees.desired(module_parameters={"NVreg_EnableStreamMemOPs": True})
    difference = trees.converge(CONCERN, complete, wanted)
    assert "options nvidia NVreg_EnableStreamMemOPs=1\n" in complete.tree()["/etc/modprobe.d/gpufleet-nvidia.conf"]
    assert difference.status == "pending"
    complete.put({"/proc/driver/nvidia/params": "EnableStreamMemOPs: 1\n"})
    assert CONCERN.inspect(complete, wanted)[1].status == "clean"
    assert ("systemctl", "daemon-reload") not in complete.calls


@pytest.mark.parametrize(
    "path",
    [
        "/etc/modules-load.d/gpufleet-nvidia.conf",
        "/etc/systemd/system/gpufleet-nvidia-devices.service",
        "/etc/systemd/system/nvidia-persistenced.service",
        "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service",
        "/dev/nvidia-uvm",
        f"/usr/src/nvidia-{VERSION}/dkms.conf",
        trees.RUNFILE,
    ],
)
def test_what_is_undone_by_hand_is_a_difference(complete, path):
    complete.remove(path)
    _state, difference = inspect(complete)
    assert difference.status == "differs"
    assert path.rsplit("/", 1)[1] in " ".join(whats(difference))
    if path != trees.RUNFILE:  # the role's fetch tasks bring that one
        # as systemd does it: starting a one-shot unit that is active makes nothing
        complete.commands[("systemctl", "start", "gpufleet-nvidia-devices.service")] = (0, "")
        complete.commands.update(UNLOADS)
        assert trees.converge(CONCERN, complete, trees.desired()).status == "clean"


def test_a_stopped_daemon_is_a_difference_and_started(complete):
    complete.commands[trees.ACTIVE] = [(3, ""), (0, ""), (0, "")]
    assert "nvidia-persistenced.service" in whats(inspect(complete)[1])


def test_persistence_switched_off_removes_what_is_ours_only(complete):
    off = ("systemctl", "disable", "--now", "--no-reload", "nvidia-persistenced.service")
    complete.commands[off] = lambda host: (
        host.remove("/etc/systemd/system/multi-user.target.wants/" + off[-1]) and 0,
        "",
    )
    difference = trees.converge(CONCERN, complete, trees.desired(persistence=False))
    assert difference.status == "clean"
    assert "/etc/systemd/system/nvidia-persistenced.service" not in complete.tree()


@pytest.mark.parametrize(
    "entry",
    [
        "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n",
        "",
        Link("/dev/null"),
        Link("/opt/site/persistenced.service"),
    ],
    ids=["unit", "empty", "mask", "link"],
)
def test_a_unit_of_somebody_else_is_told_in_the_plan_and_never_overwritten(make_host, entry):
    host = make_host(trees.virgin(**{boot.PERSISTENCED_FILE: entry}), trees.tools())
    before = host.tree()
    state, difference = inspect(host)
    assert whats(difference)[boot.PERSISTENCED_FILE]["action"] == f"Refuse to replace {boot.PERSISTENCED_FILE}"
    assert any("nvidia_driver_persistence" in reason for reason in CONCERN.returns(state, trees.desired())["refusals"])
    with pytest.raises(ConcernError, match="nvidia_driver_persistence.*Move it away"):
        CONCERN.apply(host, trees.desired(), state, difference)
    assert host.tree() == before
    assert INSTALL not in host.calls


def test_P17_without_persistence_nothing_of_the_daemon_is_made(make_host):
    host = make_host(trees.virgin(), trees.tools())
    assert trees.converge(CONCERN, host, trees.desired(persistence=False)).status == "clean"
    assert not [call for call in host.calls if "nvidia-persistenced" in " ".join(call) and call != trees.ACTIVE]
    assert not [path for path in host.tree() if "persistenced" in path]


def test_persistence_switched_off_disables_a_unit_of_others_and_keeps_its_file(complete):
    unit = "/etc/systemd/system/nvidia-persistenced.service"
    complete.put({unit: "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n"})
    off = ("systemctl", "disable", "--now", "--no-reload", "nvidia-persistenced.service")
    complete.commands[off] = lambda host: (
        host.remove("/etc/systemd/system/multi-user.target.wants/" + off[-1]) and 0,
        "",
    )
    assert trees.converge(CONCERN, complete, trees.desired(persistence=False)).status == "clean"
    assert unit in complete.tree()


# -- what a failure says and leaves ---------------------------------------------------------------------------------

UNINSTALL = ("/usr/bin/nvidia-uninstall", "--silent", "--ui=none")
BLOCK = {"/etc/modprobe.d/gpufleet-nouveau.conf": "blacklist nouveau\n"}
DAEMON = trees.user_of(300, "dcgm", "/system.slice/nvidia-dcgm.service")
DCGM_ACTIVE = ("systemctl", "is-active", "--quiet", "nvidia-dcgm.service")


def with_dcgm(make_host, start=(0, "")):
    host = upgradable(make_host, DAEMON)
    host.commands[("systemctl", "stop", "nvidia-dcgm")] = trees.takes("/proc/300")
    host.commands[DCGM_ACTIVE] = (3, "")
    host.commands[("systemctl", "start", "nvidia-dcgm")] = start
    return host


HALF = {"/usr/bin/nvidia-uninstall": "", f"{trees.LIBRARIES}/libnvidia-ml.so.{VERSION}": ""}


def test_N7_a_withdrawal_that_failed_is_not_told_as_done_and_goes_on_at_the_next_run(make_host):
    host = make_host(
        {**trees.virgin(), **BLOCK},
        trees.tools() | {INSTALL: does(HALF, rc=1, err="failed"), UNINSTALL: (1, "", "cannot remove")},
    )
    with pytest.raises(ConcernError, match="The host is NOT as before") as error:
        trees.converge(CONCERN, host, trees.desired())
    assert "The host is as before" not in str(error.value)
    assert journal.interrupted(journal.read(host)) == "withdraw"
    host.commands.update(trees.tools())
    assert "installation" in whats(inspect(host)[1])
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"


def test_N7_what_the_uninstaller_leaves_is_removed_too(make_host):
    host = make_host(
        {**trees.virgin(), **BLOCK},
        trees.tools() | {INSTALL: does(HALF, rc=1, err="failed"), UNINSTALL: (0, "")},
    )
    with pytest.raises(ConcernError, match="The host is as before"):
        trees.converge(CONCERN, host, trees.desired())
    assert not [path for path in host.tree() if "libnvidia" in path]
    assert journal.read(host)["phase"] == "done"


def test_N7_a_unit_that_cannot_be_disabled_is_named(make_host):
    host = make_host(
        trees.virgin(),
        trees.tools()
        | {("modprobe", "nvidia"): (1, "", "No such device")}
        | {("systemctl", "disable", "--now", "--no-reload", unit): (1, "", "Access denied") for unit in units()},
    )
    host.commands.update(trees.removes_rest())
    with pytest.raises(ConcernError, match="NOT as before.*Access denied"):
        trees.converge(CONCERN, host, trees.desired())


def test_N7_a_host_without_driver_is_unblocked_when_the_driver_is_refused(make_host):
    files = {**trees.virgin(), **BLOCK}
    del files["/usr/sbin/dkms"]
    host = make_host(files, trees.tools())
    with pytest.raises(ConcernError, match="dkms[^$]*The block on nouveau was withdrawn"):
        trees.converge(CONCERN, host, trees.desired())
    assert "/etc/modprobe.d/gpufleet-nouveau.conf" not in host.tree()


def test_N7_a_runfile_that_cannot_be_used_leaves_no_block_on_nouveau(make_host):
    host = make_host({**trees.virgin(), **BLOCK}, trees.tools() | {trees.PROBE: (126, "", "Permission denied")})
    with pytest.raises(ConcernError, match="nvidia_driver_tmpdir[^$]*The host is as before"):
        trees.converge(CONCERN, host, trees.desired())
    assert "/etc/modprobe.d/gpufleet-nouveau.conf" not in host.tree()


def test_a_working_driver_is_never_taken_off_because_of_an_old_record(complete):
    """An earlier run ended in the middle, the driver works since: a module that does not build removes nothing."""
    complete.put({journal.PATH: json.dumps({"phase": "load", "version": VERSION, "previous": None, "stopped": []})})
    complete.put(trees.kernel(NEWER))
    complete.commands[("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", NEWER)] = (10, "", "Error!")
    with pytest.raises(ConcernError, match="nothing of it was removed"):
        trees.converge(CONCERN, complete, trees.desired())
    assert not [call for call in complete.calls if "uninstall" in call[0] or call[:2] == ("dkms", "remove")]


def test_D2_daemons_come_back_when_the_installation_fails(make_host):
    host = with_dcgm(make_host)
    host.commands[INSTALL] = (1, "", "failed")
    host.commands[("modprobe", "nvidia")] = does(trees.loaded(OLDER))
    with pytest.raises(ConcernError, match=f"Driver {OLDER} had not been replaced yet"):
        trees.converge(CONCERN, host, trees.desired())
    assert host.calls.index(("modprobe", "nvidia")) < host.calls.index(("systemctl", "start", "nvidia-dcgm"))


def test_D2_a_daemon_that_does_not_start_again_is_named_and_kept_in_the_journal(make_host):
    host = with_dcgm(make_host, start=(1, "", "wrong version"))
    with pytest.raises(ConcernError, match="does not start again: 'systemctl start nvidia-dcgm'"):
        trees.converge(CONCERN, host, trees.desired())
    assert "nvidia-dcgm" in whats(inspect(host)[1])
    host.commands[("systemctl", "start", "nvidia-dcgm")] = does({"/run/dcgm": ""})
    host.commands[DCGM_ACTIVE] = lambda host: (0 if host.exists("/run/dcgm") else 3, "")
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"


@pytest.mark.parametrize("phase", ["install", "build", "configure", "load"])
def test_P16_the_journal_names_the_stopped_daemons_in_every_phase(make_host, monkeypatch, phase):
    host = with_dcgm(make_host)
    enter, seen = journal.enter, {}

    def noted(host, record, entered, **notes):
        enter(host, record, entered, **notes)
        seen[entered] = journal.read(host)["stopped"]

    monkeypatch.setattr(journal, "enter", noted)
    host.commands[DCGM_ACTIVE] = (3, "")
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    assert seen[phase] == ["nvidia-dcgm"]


def test_D3_a_module_that_does_not_come_back_is_named(make_host):
    host = upgradable(make_host)
    host.commands[("rmmod", "nvidia")] = (1, "", "in use")
    host.commands[("modprobe", "nvidia_uvm")] = (1, "", "no memory")
    assert "no memory" in unload.unload(host, unload.read(host))


def test_P12_an_installer_that_outlives_its_waiting_client_is_left_at_work(make_host):
    host = make_host(trees.virgin(), trees.tools() | {INSTALL: (124, "", "stopped")})
    host.commands[trees.MAIN_PID] = [(0, "0\n"), (0, "4242\n")]
    with pytest.raises(ConcernError, match="the installer goes on"):
        trees.converge(CONCERN, host, trees.desired())
    assert journal.interrupted(journal.read(host)) == "install"


# -- compiler, images -----------------------------------------------------------------------------------------------


def test_B6_a_missing_compiler_is_no_obstacle_when_the_mismatch_is_ignored(make_host):
    files = trees.virgin()
    del files["/usr/bin/gcc-12"]
    host = make_host(files, {**trees.tools(), trees.installer("--no-cc-version-check"): does(trees.on_disk())})
    assert inspect(host)[0]["missing_packages"] == ["gcc-12"]
    assert trees.converge(CONCERN, host, trees.desired(ignore_compiler_mismatch=True)).status == "clean"
    host.remove("/usr/bin/gcc")
    assert inspect(host, ignore_compiler_mismatch=True)[0]["missing_packages"] == ["gcc-12"]


def test_B6_dkms_ignores_the_mismatch_too(complete):
    complete.put(trees.kernel(NEWER, compiler="gcc-14 (Debian 14.2.0) 14.2.0"))
    build = ("dkms", "install", "-m", "nvidia", "-v", VERSION, "-k", NEWER)
    complete.commands[build] = does(trees.module(NEWER))
    assert trees.converge(CONCERN, complete, trees.desired(ignore_compiler_mismatch=True)).status == "clean"
    assert complete.environments[complete.calls.index(build)] == {"IGNORE_CC_MISMATCH": "1"}


def test_D12_an_image_that_carries_the_old_module_is_rebuilt_in_the_same_run(make_host):
    host = upgradable(make_host)
    image = f"/boot/initrd.img-{KERNEL}"
    listing = (0, f"usr/lib/modules/{KERNEL}/updates/dkms/nvidia.ko\n")
    host.put({image: "old", "/usr/sbin/mkinitramfs": ""})
    os.utime(host.path(image), (1, 1))
    for name in host.glob(f"/lib/modules/{KERNEL}/updates/dkms/*"):
        os.utime(host.path(name), (1, 1))
    host.commands[("lsinitramfs", image)] = listing
    host.commands[("ln", "-f", image, image + ".gpufleet-previous")] = (0, "")
    host.commands[("update-initramfs", "-u", "-k", KERNEL)] = does({image: "new"})
    assert not [what for what in whats(inspect(host)[1]) if what == image]
    assert trees.converge(CONCERN, host, trees.desired()).status == "clean"
    calls = host.calls
    assert calls.index(INSTALL) < calls.index(("update-initramfs", "-u", "-k", KERNEL))


@pytest.mark.parametrize(("machine", "arch"), [(b"\x3e\x00", "x86_64"), (b"\xb7\x00", "aarch64")])
def test_B11_the_runfiles_name_has_the_hosts_architecture(make_host, machine, arch):
    host = make_host(trees.virgin(**{"/bin/sh": trees.ELF_X86_64[:18] + machine}), trees.tools())
    assert inspect(host)[0]["runfile"]["name"] == f"NVIDIA-Linux-{arch}-{VERSION}.run"
