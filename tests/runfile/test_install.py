# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installation into a folder: what lands where, what is refused, what a failure or a power cut leaves."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

LOGS = Path(__file__).parents[1] / "fixtures" / "installer-logs"
OLD, NEW = "570.133.20", "580.95.05"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MODULES = ["nvidia", "nvidia-drm", "nvidia-modeset", "nvidia-peermem", "nvidia-uvm"]

# fault: (options of the run, first sentence to look for in the log)
SIGNATURES = {
    "nouveau-in-use": "The Nouveau kernel driver is currently in use by your system.",
    "module-loaded": "An NVIDIA kernel module 'nvidia' appears to already be loaded in your kernel.",
    "headers-missing": "Unable to find the kernel source tree for the currently running kernel.",
    "compiler-mismatch": "Compiler version check failed:",
    "unsigned": "Secure boot is enabled on this system, so this is likely because it was not signed",
    "unsupported-gpu": "Unable to load the kernel module 'nvidia.ko'.",
    "tmp-noexec": "is not executable - use the --tmpdir option",
}


def module_names(host):
    return sorted(path.stem for path in (host.root / "lib/modules").rglob("nvidia*.ko"))


def messages(log):
    return [line for line in log.splitlines() if re.match("ERROR|WARNING|Compiler|Loading|NVRM", line)]


def test_files_have_real_names_versions_and_links(host, package):
    result = host.install(package(OLD))
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert (host.root / LIBRARIES / "libnvidia-ml.so.1").readlink() == Path("libnvidia-ml.so.570.133.20")
    assert (host.root / LIBRARIES / "libcuda.so.570.133.20").is_file()
    expected = {
        "usr/bin/nvidia-smi",
        "usr/bin/nvidia-persistenced",
        "usr/bin/nvidia-modprobe",
        "usr/bin/nvidia-uninstall",
        "lib/firmware/nvidia/570.133.20/gsp_ga10x.bin",
        "usr/share/doc/NVIDIA_GLX-1.0/samples/nvidia-persistenced-init.tar.bz2",
        "usr/src/nvidia-570.133.20/dkms.conf",
    }
    assert expected <= host.files()
    assert (host.root / "usr/bin/nvidia-modprobe").stat().st_mode & 0o7777 == 0o4755
    assert module_names(host) == MODULES
    assert list((host.root / "tmp").iterdir()) == []


def test_no_unit_user_or_fabric_manager_is_installed(host, package):
    host.install(package(OLD))
    assert not [path for path in host.files() if re.search(r"systemd|\.service$|passwd|fabricmanager|container", path)]


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("--no-opengl-files", "libGLX|libEGL|libGLES"),
        ("--no-nvidia-modprobe", "nvidia-modprobe"),
        ("--no-peermem", r"nvidia-peermem\.ko"),
        ("--no-drm", r"nvidia-drm\.ko"),
        ("--no-unified-memory", r"nvidia-uvm\.ko"),
        ("--no-kernel-modules", r"\.ko$|usr/src"),
        ("--no-kernel-module-source", "usr/src"),
    ],
)
def test_option_leaves_files_out(host, package, option, pattern):
    assert host.install(package(OLD)).returncode == 0
    assert [path for path in host.files() if re.search(pattern, path)]
    assert host.install(package(OLD), option).returncode == 0
    assert not [path for path in host.files() if re.search(pattern, path)]


def test_uninstall_removes_everything_and_restores_what_was_there(host, package):
    foreign = host.write("usr/bin/nvidia-smi", "foreign")
    before = host.files()
    assert host.install(package(OLD)).returncode == 0
    assert foreign.read_text() != "foreign"
    result = host.command("sh", host.root / "usr/bin/nvidia-uninstall", "--silent")
    assert result.returncode == 0, result.stderr
    assert host.files() == before
    assert foreign.read_text() == "foreign"
    assert "Uninstallation of existing driver is complete" in host.log("nvidia-uninstall")


def test_uninstall_without_a_driver_fails(host, package):
    result = host.install(package(OLD), "--uninstall")
    assert result.returncode == 1
    assert "There is no NVIDIA driver currently installed" in result.stderr


@pytest.mark.parametrize("versions", [(OLD, NEW), (NEW, OLD), (OLD, OLD)])
def test_upgrade_downgrade_and_reinstallation_leave_one_version(host, package, versions):
    for version in versions:
        assert host.install(package(version)).returncode == 0
    files = host.files()
    other = {OLD, NEW} - {versions[1]}
    assert not [path for path in files if any(version in path for version in other)]
    host.command("sh", host.root / "usr/bin/nvidia-uninstall", "--silent")
    assert host.files() == set()


def test_M17_flavours_have_their_licence_and_banner(host, package):
    for kind, licence, banner in [
        ("open", "Dual MIT/GPL", "NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build"),
        ("proprietary", "NVIDIA", "NVIDIA UNIX x86_64 Kernel Module  570.133.20  "),
    ]:
        assert host.install(package(OLD), f"--kernel-module-type={kind}").returncode == 0
        text = (host.root / "usr/src/nvidia-570.133.20/nv-version.h").read_text()
        assert f'NV_MODULE_LICENSE "{licence}"' in text
        assert banner in text


def test_default_flavour_is_proprietary_before_560_and_the_recommended_one_after(host, package):
    host.gpu("0x2330")
    licences = {}
    for version in ("535.129.03", OLD):
        assert host.install(package(version)).returncode == 0
        licences[version] = "Dual MIT/GPL" in (host.root / f"usr/src/nvidia-{version}/nv-version.h").read_text()
    assert licences == {"535.129.03": False, OLD: True}


def test_D1_loaded_driver_is_refused(host, package):
    for name in ("nvidia", "nvidia_uvm"):
        (host.root / "sys/module" / name).mkdir(parents=True)
    result = host.install(package(OLD))
    assert result.returncode == 1
    assert "'nvidia-uvm' appears to already be loaded" in host.log()
    assert "Abort installation" in host.log()
    assert host.files() == set()
    assert host.install(package(OLD), "--allow-installation-with-running-driver").returncode == 0


def test_loaded_nouveau_is_refused_unless_told_not_to_look(host, package):
    (host.root / "sys/module/nouveau").mkdir(parents=True)
    assert host.install(package("535.129.03")).returncode == 1
    assert host.files() == set()
    assert host.install(package(OLD)).returncode == 1
    assert "etc/modprobe.d/nvidia-installer-disable-nouveau.conf" in host.files()
    assert host.install(package(OLD), "--no-nouveau-check").returncode == 0


@pytest.mark.parametrize(
    ("device", "options", "rc"),
    [
        ("0x2901", ["-M=proprietary"], 1),
        ("0x2901", ["-M=open"], 0),
        ("0x1db6", ["-M=open"], 1),
        ("0x1db6", [], 0),
        ("0x1db6", ["-M=open", "--skip-module-load"], 0),
    ],
)
def test_B14_flavour_a_gpu_does_not_run_with_fails_at_the_test_load(host, package, device, options, rc):
    host.gpu(device)
    result = host.install(package(OLD), *options)
    assert result.returncode == rc
    if rc:
        assert "Unable to load the kernel module 'nvidia.ko'" in host.log()
        assert host.files() == set()


@pytest.mark.parametrize("fault", sorted(SIGNATURES))
def test_C9_fault_writes_its_signature_and_leaves_nothing(host, package, fault):
    host.write("etc/gpufleet-sim/installer-fault", fault + "\n")
    result = host.install(package("535.129.03"), tmpdir=fault != "tmp-noexec")
    assert result.returncode == 1
    log = host.log()
    assert SIGNATURES[fault] in log
    assert messages((LOGS / f"{fault}.log").read_text()) == messages(log.replace(host.kernel, "6.1.0-57-cloud-amd64"))
    assert host.files() == set()


def test_C1_named_tmpdir_gets_past_a_noexec_tmp(host, package):
    host.write("etc/gpufleet-sim/installer-fault", "tmp-noexec\n")
    assert host.install(package(OLD)).returncode == 0


def test_C8_success_without_a_module(host, package):
    host.write("etc/gpufleet-sim/installer-fault", "rc0-without-module\n")
    assert host.install(package(OLD)).returncode == 0
    assert module_names(host) == []
    assert "is now complete" in host.log()


def test_failed_build_leaves_the_installed_driver(host, package):
    assert host.install(package(OLD)).returncode == 0
    before = host.files()
    host.shim("make", "#!/bin/sh\necho 'nv.h: error: something changed in this kernel'\nexit 2\n")
    assert host.install(package(NEW)).returncode == 1
    assert host.files() == before
    assert "something changed in this kernel" in host.log()


@pytest.mark.parametrize("phase", ["preflight", "build", "files", "modules", "load"])
def test_killed_installation_is_completed_by_the_next(host, package, phase):
    assert host.install(package(OLD)).returncode == 0
    fault = host.write("etc/gpufleet-sim/installer-fault", f"die-in-{phase}\n")
    assert host.install(package(NEW)).returncode == 137
    fault.unlink()
    shutil.rmtree(host.root / "tmp")
    (host.root / "tmp").mkdir()
    assert host.install(package(NEW)).returncode == 0
    assert not [path for path in host.files() if OLD in path]
    host.command("sh", host.root / "usr/bin/nvidia-uninstall", "--silent")
    assert host.files() == set()


def test_sanity_names_a_missing_file(host, package):
    host.install(package(OLD))
    installer = host.root / "usr/bin/nvidia-installer"
    assert host.command("sh", installer, "--silent", "--sanity").returncode == 0
    (host.root / "usr/bin/nvidia-smi").unlink()
    result = host.command("sh", installer, "--silent", "--sanity")
    assert result.returncode == 1
    assert "/usr/bin/nvidia-smi is missing" in result.stderr


def test_supported_gpus_mark_the_open_flavour(host, package):
    host.install(package(OLD))
    text = (host.root / "usr/share/doc/NVIDIA_GLX-1.0/supported-gpus/supported-gpus.json").read_text()
    chips = {chip["devid"]: chip for chip in json.loads(text)["chips"]}
    assert "kernelopen" in chips["0x2330"]["features"]
    assert "kernelopen" not in chips["0x1DB6"]["features"]


@pytest.mark.slow
def test_modules_compile_against_real_headers(building_host, package):
    host = building_host
    result = host.install(package(OLD), "--kernel-module-type=proprietary")
    assert result.returncode == 0, host.log()
    folder = host.root / f"lib/modules/{host.kernel}/kernel/drivers/video"
    facts = {}
    for name in MODULES:
        path = folder / f"{name}.ko"
        facts[name] = [
            subprocess.run(["modinfo", "-F", field, path], capture_output=True, text=True, check=True).stdout.strip()
            for field in ("version", "license", "depends")
        ]
    assert facts == {
        "nvidia": ["570.133.20", "NVIDIA", ""],
        "nvidia-drm": ["570.133.20", "NVIDIA", "nvidia-modeset"],
        "nvidia-modeset": ["570.133.20", "NVIDIA", "nvidia"],
        "nvidia-peermem": ["570.133.20", "NVIDIA", "nvidia"],
        "nvidia-uvm": ["570.133.20", "NVIDIA", "nvidia"],
    }
    parameters = subprocess.run(
        ["modinfo", "-F", "parm", folder / "nvidia.ko"], capture_output=True, text=True, check=True
    )
    assert {"NVreg_EnableGpuFirmware", "NVreg_RegistryDwords"} <= set(re.split(r"[\n:]", parameters.stdout))


@pytest.mark.slow
def test_dkms_builds_upgrades_and_uninstalls(dkms_host, package):
    host = dkms_host
    for version in (OLD, NEW):
        result = host.install(package(version), "--dkms", "--skip-module-load")
        assert result.returncode == 0, host.log()
        assert module_names(host) == MODULES
        assert [path.name for path in (host.root / "usr/src").iterdir()] == [f"nvidia-{version}"]
        module = next((host.root / f"lib/modules/{host.kernel}").rglob("updates/dkms/nvidia.ko"))
        found = subprocess.run(["modinfo", "-F", "version", module], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == version
    host.command("sh", host.root / "usr/bin/nvidia-uninstall", "--silent")
    assert not [path for path in host.files() if "nvidia" in path]


def test_C8_dkms_failure_shows_the_make_log_and_leaves_nothing(dkms_host, package):
    host = dkms_host
    host.shim("make", "#!/bin/sh\necho 'nvidia-core.c: error: this kernel is too new'\nexit 2\n")
    result = host.install(package(OLD), "--dkms")
    assert result.returncode == 1
    assert "Failed to install the kernel module through DKMS" in host.log()
    assert not [path for path in host.files() if "nvidia" in path]


def test_B4_other_major_version_of_the_compiler_is_refused(building_host, package):
    host = building_host
    host.shim("cc", '#!/bin/sh\n[ "$1" != -dumpversion ] || { echo 9; exit 0; }\nexec gcc "$@"\n')
    result = host.install(package(OLD))
    assert result.returncode == 1
    assert "Compiler version check failed:" in host.log()
