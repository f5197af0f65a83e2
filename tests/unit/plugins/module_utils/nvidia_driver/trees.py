# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A literal GPU host for the tests of nvidia_driver, and what the tools on it do to its files."""

import hashlib
import os
import shutil

from tests.unit.hosts import Dir, Link

KERNEL = "6.1.0-28-amd64"
NEWER = "6.1.0-29-amd64"
VERSION = "580.65.06"
OLDER = "570.172.08"
RUNFILE = f"/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{VERSION}.run"
CONTENT = b"#!/bin/sh\n# a runfile\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
ELF_X86_64 = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00"
#: Where a version has a tree of its own.
PLACES = ("/lib/firmware/nvidia/", "/usr/src/nvidia-", "/var/lib/dkms/nvidia/")
TMPDIR = "/var/lib/gpufleet/tmp"

ACTIVE = ("systemctl", "is-active", "--quiet", "nvidia-persistenced.service")
MAIN_PID = ("systemctl", "show", "--property=MainPID", "--value", "gpufleet-nvidia-installer.service")
CHECK = ("/bin/sh", RUNFILE, "--check")
PROBE = (f"{TMPDIR}/exec-probe",)
ENABLE = ("systemctl", "enable", "--no-reload")
USERADD = (
    "useradd",
    "--system",
    "--no-create-home",
    "--home-dir",
    "/",
    "--shell",
    "/usr/sbin/nologin",
    "nvidia-persistenced",
)


def desired(**changes):
    """A complete desired document."""
    return {
        "state": "present",
        "version": VERSION,
        "runfile_sha256": SHA256,
        "runfile_checksum": None,
        "kernel_module_type": "auto",
        "installer_arguments": [],
        "installer_timeout": 3600,
        "tmpdir": TMPDIR,
        "module_parameters": {},
        "persistence": True,
        "fabric_manager": "auto",
        "display": "refuse",
        "replace_in_use": False,
        "wait_for_idle": 0,
        "ignore_compiler_mismatch": False,
        **changes,
    }


def gpu(address="0000:1b:00.0", device="0x2330"):
    """The sysfs files of one GPU."""
    base = f"/sys/bus/pci/devices/{address}"
    return {f"{base}/vendor": "0x10de\n", f"{base}/device": f"{device}\n", f"{base}/class": "0x030200\n"}


def kernel(release, headers=True, compiler="gcc-12 (Debian 12.2.0-14) 12.2.0"):
    files = {
        f"/lib/modules/{release}/kernel": Dir(),
        f"/boot/vmlinuz-{release}": "",
        f"/boot/config-{release}": f'CONFIG_CC_VERSION_TEXT="{compiler}"\n',
    }
    if headers:
        files[f"/lib/modules/{release}/build/Makefile"] = ""
    return files


def virgin(runfile=True, **extra):
    """A Debian host with one GPU, one kernel, the build tools, and the runfile already fetched."""
    return {
        **gpu(),
        **kernel(KERNEL),
        "/proc/sys/kernel/osrelease": KERNEL + "\n",
        "/proc/cmdline": "quiet\n",
        "/bin/sh": ELF_X86_64,
        "/usr/sbin/dkms": "",
        "/usr/bin/make": "",
        "/usr/bin/gcc-12": "",
        "/usr/bin/gcc": "",
        "/var/lib/dpkg/status": "",
        "/etc/passwd": "root:x:0:0::/root:/bin/bash\n",
        "/run/systemd/system": Dir(),
        **({RUNFILE: CONTENT} if runfile else {}),
        **extra,
    }


def module(release, version=VERSION, flavour="open"):
    licence = b"Dual MIT/GPL" if flavour == "open" else b"NVIDIA"
    text = b"\x7fELF\0version=" + version.encode() + b"\0license=" + licence + b"\0"
    base = f"/var/lib/dkms/nvidia/{version}"
    return {
        f"/lib/modules/{release}/updates/dkms/nvidia.ko": text,
        f"{base}/{release}/x86_64/module/nvidia.ko": text,
        f"/var/lib/dkms/nvidia/kernel-{release}-x86_64": Link(f"{version}/{release}/x86_64"),
    }


def on_disk(version=VERSION, kernels=(KERNEL,), flavour="open"):
    """What the installer and DKMS leave."""
    files = {
        f"{LIBRARIES}/libnvidia-ml.so.{version}": "",
        f"{LIBRARIES}/libnvidia-ml.so.1": Link(f"libnvidia-ml.so.{version}"),
        f"/usr/src/nvidia-{version}/dkms.conf": "",
        f"/var/lib/dkms/nvidia/{version}/source": Link(f"/usr/src/nvidia-{version}"),
        f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin": "",
        "/var/log/nvidia-installer.log": f"Installation of the NVIDIA driver (version: {version}) is now complete.\n",
    }
    for release in kernels:
        files.update(module(release, version, flavour))
    return files


def loaded(version=VERSION, flavour="open", references=0):
    """What the kernel shows of a loaded driver."""
    name = "Open Kernel Module for x86_64" if flavour == "open" else "x86_64 Kernel Module"
    return {
        "/sys/module/nvidia/version": version + "\n",
        "/sys/module/nvidia/refcnt": f"{references + 1}\n",
        "/sys/module/nvidia/holders/nvidia_uvm": Dir(),
        "/sys/module/nvidia_uvm/refcnt": "0\n",
        "/sys/module/nvidia_uvm/holders": Dir(),
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX {name}  {version}  Release Build\n",
        "/proc/driver/nvidia/params": "EnableStreamMemOPs: 0\n",
    }


def devices(count=1):
    return dict.fromkeys(["/dev/nvidiactl", "/dev/nvidia-uvm"] + [f"/dev/nvidia{n}" for n in range(count)], "")


def user_of(pid, command="python3", cgroup="/system.slice/train.service"):
    """A process that has a GPU open."""
    return {
        f"/proc/{pid}/fd/3": Link("/dev/nvidia0"),
        f"/proc/{pid}/comm": command + "\n",
        f"/proc/{pid}/cgroup": f"0::{cgroup}\n",
    }


def does(*trees, rc=0, out="", err=""):
    """A recorded command that adds files to the host."""

    def act(host):
        for tree in trees:
            host.put(tree)
        return rc, out, err

    return act


def takes(*paths, rc=0):
    """A recorded command that removes trees from the host."""

    def act(host):
        for path in paths:
            shutil.rmtree(host.path(path), ignore_errors=True)
        host.forget()
        return rc, ""

    return act


def installs(version=VERSION, **kind):
    """The installer as it succeeds: what any other version had left to it is gone."""

    def act(host):
        for pattern in (f"{LIBRARIES}/libnvidia-ml.so.*.*", *(f"{place}[0-9]*" for place in PLACES)):
            for path in host.glob(pattern):
                if not path.endswith(version):
                    real = host.path(path)
                    shutil.rmtree(real) if os.path.isdir(real) else os.unlink(real)
        host.put(on_disk(version, **kind))
        return 0, ""

    return act


def removes(*paths):
    """A recorded rm -rf of these paths, with its effect."""
    return {("rm", "-rf", "--", *paths): takes(*paths)}


def removes_rest(version=VERSION):
    """What takes a version away that no uninstaller removes: dkms, then what is left of its trees."""
    trees = (f"/lib/firmware/nvidia/{version}", f"/usr/src/nvidia-{version}", f"/var/lib/dkms/nvidia/{version}")
    return {
        ("dkms", "remove", "-m", "nvidia", "-v", version, "--all"): (0, ""),
        **removes(*trees),
        **removes(trees[0], trees[2]),
    }


def installer(*arguments, flavour="open", environment=(), runfile=RUNFILE):
    """The argv of the detached installer."""
    settings = sorted(("TMPDIR=" + TMPDIR, *environment))
    return (
        "systemd-run",
        "--unit=gpufleet-nvidia-installer.service",
        "--wait",
        "--collect",
        "--quiet",
        "--property=RuntimeMaxSec=3600",
        "--property=TimeoutStopSec=20",
        *(f"--setenv={setting}" for setting in settings),
        "--",
        "/bin/sh",
        runfile,
        "--silent",
        "--ui=none",
        "--no-opengl-files",
        "--dkms",
        "--no-nouveau-check",
        f"--tmpdir={TMPDIR}",
        f"--kernel-module-type={flavour}",
        "--skip-module-load",
        *arguments,
    )


def tools(**changes):
    """What a whole successful installation runs, with its effects."""
    return {
        ACTIVE: (0, ""),
        MAIN_PID: (0, "0\n"),
        CHECK: (0, ""),
        PROBE: (0, ""),
        installer(environment=("CC=/usr/bin/gcc-12",)): installs(),
        USERADD: does({"/etc/passwd": "nvidia-persistenced:x:999:999::/:/usr/sbin/nologin\n"}),
        ("systemctl", "daemon-reload"): (0, ""),
        **{
            (*ENABLE, unit): enables(unit)
            for unit in ("gpufleet-nvidia-devices.service", "nvidia-persistenced.service")
        },
        ("modprobe", "nvidia"): does(loaded()),
        ("modprobe", "nvidia-uvm"): (0, ""),
        ("systemctl", "restart", "gpufleet-nvidia-devices.service"): does(devices()),
        ("systemctl", "restart", "nvidia-persistenced.service"): (0, ""),
        ("systemctl", "start", "gpufleet-nvidia-devices.service"): does(devices()),
        ("systemctl", "start", "nvidia-persistenced.service"): (0, ""),
        **changes,
    }


def enables(unit):
    return does({f"/etc/systemd/system/multi-user.target.wants/{unit}": Link(f"/etc/systemd/system/{unit}")})


def converge(concern, host, wanted):
    """What the module does: inspect, apply, inspect again; returns the second difference."""
    _state, difference = concern.inspect(host, wanted)
    state = _state
    if difference.changed:
        concern.apply(host, wanted, state, difference)
        host.forget()
        state, difference = concern.inspect(host, wanted)
    return difference
