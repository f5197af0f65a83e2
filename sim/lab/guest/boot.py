#!/usr/bin/python3
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Process 1 of a simulated host until systemd takes over: boot loader, kernel, initramfs and udev in one."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import bootloader
import modules
import view

#: Parts of the real /sys that a host needs: its own network, its own control groups, the processors.
KEPT = ("class/net", "devices/virtual/net", "devices/system/cpu", "fs/cgroup")


def mount(*argv):
    subprocess.run(["mount", *map(str, argv)], check=True)


def over(path, text):
    """Lay `text` over one file of /proc."""
    source = view.VIEW / "files" / path.strip("/").replace("/", "-")
    view.write(source, text)
    mount("--bind", source, path)


def kernel():
    """Release and command line of the kernel that starts."""
    entry = bootloader.start()
    if entry:
        return entry.release, entry.command_line
    releases = sorted((path.name for path in Path("/lib/modules").iterdir()), key=_version)
    return releases[-1], "BOOT_IMAGE=/boot/vmlinuz-" + releases[-1]


def _version(release):
    return [int(part) for part in re.findall(r"\d+", release)]


def mount_view(release, command_line):
    """Put the view in the place of the real kernel's files; what is not in it cannot be reached any more."""
    for part in KEPT:
        target = view.SYS / part
        target.mkdir(parents=True, exist_ok=True)
        mount("--rbind", f"/sys/{part}", target)
    mount("--rbind", view.SYS, "/sys")
    mount("-o", "remount,bind,ro", "/sys")
    mount("--bind", view.DRIVER, "/proc/driver")
    over("/proc/cmdline", command_line + "\n")
    over("/proc/sys/kernel/osrelease", release + "\n")
    over("/proc/version", f"Linux version {release} (lab) (gcc) #1 SMP\n")
    if os.path.exists("/proc/modules"):
        over("/proc/modules", "")


def initramfs_steps(release):
    """How the initramfs loads nouveau, as `modprobe --show-depends` tells it; empty when it has none or blocks it."""
    image = f"/boot/initrd.img-{release}"
    if not os.path.exists(image):
        return []
    listing = subprocess.run(["lsinitramfs", image], capture_output=True, text=True, check=False).stdout
    if not re.search(r"/nouveau\.ko", listing):
        return []
    scratch = tempfile.mkdtemp(dir="/run")
    try:
        subprocess.run(["unmkinitramfs", image, f"{scratch}/root"], check=True, capture_output=True)
        folders = [path for path in Path(scratch).rglob("modprobe.d") if path.is_dir()]
        arguments = [word for folder in folders for word in ("-C", str(folder))] or ["-C", "/dev/null"]
        question = ["modprobe", *arguments, "-S", release, "--use-blacklist", "--show-depends", "nouveau"]
        return modules.kmod(*question).splitlines()
    finally:
        shutil.rmtree(scratch)


def coldplug(release):
    """What udev would load for the devices of this machine, early (initramfs) and late."""
    words = Path("/proc/cmdline").read_text().split()
    denied = {name for word in words if word.startswith("module_blacklist=") for name in word[17:].split(",")}
    if view.machine()["gpus"]:
        if "nouveau" not in denied and "nomodeset" not in words:
            if "rd.driver.blacklist=nouveau" not in words:
                attempt(modules.follow, initramfs_steps(release))
            attempt(modules.load, ["nouveau"], [], True)
        if "nvidia" not in denied and list(Path(f"/lib/modules/{release}/updates/dkms").glob("nvidia.ko*")):
            attempt(modules.load, ["nvidia"], [], True)
    listed = [path for folder in ("/etc", "/usr/lib") for path in sorted(Path(folder, "modules-load.d").glob("*.conf"))]
    for path in listed:
        lines = [line.strip() for line in path.read_text().splitlines()]
        for line in lines:
            if line and line[0] not in "#;":
                attempt(modules.load, [line], [], False)


def attempt(action, *arguments):
    """Load as the boot does: a refusal is a line on the console, not the end."""
    try:
        action(*arguments)
    except modules.Refused as refusal:
        print(refusal, file=sys.stderr, flush=True)


def main():
    os.environ.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if os.path.exists(modules.CONTROL):
        subprocess.run([modules.CONTROL, "boot"], check=True, stdout=subprocess.DEVNULL)
    view.write(Path("/run/gpufleet-sim/boot_id"), f"{uuid.uuid4()}\n")
    release, command_line = kernel()
    view.build(view.machine())
    view.refresh()
    mount_view(release, command_line)
    coldplug(release)
    view.refresh()
    os.execv("/sbin/init", ["/sbin/init"])


if __name__ == "__main__":
    main()
