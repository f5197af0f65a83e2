# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disks of the virtual machine as they leave the factory, kept under a name that hashes what defines them."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from sim import machine
from sim.lab import apt, cache
from sim.lab.process import LabError, call, say

SOURCE = Path(__file__).parent
CACHE = cache.ROOT / ".cache" / "vm"
KEY = CACHE / "id_ed25519"
HOST_KEY = CACHE / "host-keys" / "vm"
SUITE, KERNELS = "bookworm", r"6\.1\.0-.*"
MACHINE = "l40s-pcie-2"
#: What grub-probe's stand-in tells while the image is made is true on the machine that starts from it.
ROOT_UUID = "6f1c2a52-0000-4000-8000-000000000001"
PACKAGES = (
    "apt-utils,ca-certificates,cron,dbus,e2fsprogs,gpg,grub-efi-amd64-bin,grub2-common,initramfs-tools,iproute2,kmod,less,"
    "needrestart,openssh-server,pciutils,procps,python3,python3-apt,sudo,systemd,systemd-sysv,udev,unattended-upgrades,"
    "xz-utils,zstd"
)
#: Sizes of the two disks, sparse: / and /var are file systems of their own, as on many servers.
ROOT_SIZE, VAR_SIZE = "8G", "8G"
TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "qemu-img": "qemu-utils"}


def ensure() -> Path:
    """The folder with root.raw, var.raw and grub.efi, made now if it is not there yet (minutes, needs the mirror)."""
    folder = CACHE / f"debian12-{_digest()}"
    if not folder.exists():
        _build(folder)
    return folder


def _digest() -> str:
    digest = hashlib.sha256(f"{SUITE}{KERNELS}{PACKAGES}{ROOT_SIZE}{VAR_SIZE}{_machine_files()}".encode())
    for path in sorted(p for p in SOURCE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")):
        digest.update(f"{path.relative_to(SOURCE)} {path.stat().st_mode & 0o777:o}\n".encode())
        digest.update(path.read_bytes())
    digest.update(cache.key(KEY).read_bytes())
    return digest.hexdigest()[:12]


def _machine_files() -> dict[str, str]:
    """path -> text: which machine this is, for the NVML library and for the PCI functions."""
    hardware = machine.load(MACHINE)
    words = []
    for gpu in hardware["gpus"]:
        link = gpu["link"]
        words.append(
            f"{gpu['upstream']['pci'][5:]}/{gpu['pci'][5:]}/{gpu.get('vendor', '0x10de')[2:]}:{gpu['device_id'][2:]}"
            f"/{gpu['subsystem_vendor'][2:]}:{gpu['subsystem_device'][2:]}/{gpu['class'][2:]}"
            f"/{link['gen']}x{link['width']}/{link['max_gen']}x{link['max_width']}"
        )
    return {
        "etc/gpufleet-sim/machine.json": json.dumps(hardware, indent=1),
        "etc/gpufleet-sim/machine.flat": machine.flatten(hardware),
        "etc/modprobe.d/gpufleet-pcibus.conf": f"options gpufleet-pcibus devices={','.join(words)}\n",
    }


def _build(folder: Path) -> None:
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise LabError(f"{tool} is missing; `tools/bootstrap tools/system-packages-vm.txt` installs {package}")
    say(f"building the disks of the virtual machine, {folder.name} (minutes, once)")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as scratch:
        work = Path(scratch)
        root, overlay, share = work / "root", work / "overlay", work / "share"
        shutil.copytree(SOURCE / "root", overlay)
        for name, text in _machine_files().items():
            (overlay / name).parent.mkdir(parents=True, exist_ok=True)
            (overlay / name).write_text(text)
        cache.key(HOST_KEY)
        (overlay / "etc/ssh").mkdir()
        for name, path in {"": HOST_KEY, ".pub": HOST_KEY.with_suffix(".pub")}.items():
            shutil.copy(path, overlay / f"etc/ssh/ssh_host_ed25519_key{name}")
        shutil.copytree(SOURCE / "pcibus", share / "pcibus")
        shutil.copy(SOURCE / "grub-start.cfg", share)
        shutil.copy(SOURCE / "grub-probe", share)
        shutil.copy(KEY.with_suffix(".pub"), share / "authorized_keys")
        (share / "kernel-pattern").write_text(KERNELS + "\n")
        (work / "sources.list").write_text(apt.sources(SUITE))
        call(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                "--format=directory",
                f"--include={PACKAGES}",
                '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*',
                f"--customize-hook=copy-in {overlay}/. /",
                '--customize-hook=mkdir -p "$1/usr/local/share/gpufleet-vm"',
                f"--customize-hook=copy-in {share}/. /usr/local/share/gpufleet-vm",
                f"--customize-hook=copy-in {SOURCE}/setup.sh /tmp",
                '--customize-hook=chroot "$1" sh /tmp/setup.sh',
                '--customize-hook=rm "$1/tmp/setup.sh" "$1/etc/machine-id"; : > "$1/etc/machine-id"',
                '--customize-hook=echo vm > "$1/etc/hostname"',
                SUITE,
                str(root),
                str(work / "sources.list"),
            ],
            timeout=1800,
        )
        disks = work / "disks"
        disks.mkdir()
        shutil.move(root / "boot" / "gpufleet-grub.efi", disks / "grub.efi")
        _disk(root / "var", disks / "var.raw", VAR_SIZE, "gpufleet-var")
        shutil.rmtree(root / "var")
        (root / "var").mkdir()
        _disk(root, disks / "root.raw", ROOT_SIZE, "gpufleet-root", ROOT_UUID)
        disks.rename(folder)


def _disk(content: Path, disk: Path, size: str, label: str, uuid: str = "random") -> None:
    """A file system with this content on a whole disk."""
    call(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-L", label, "-U", uuid, "-d", str(content), str(disk), size], timeout=600
    )
