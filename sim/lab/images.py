# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root images of simulated hosts: made with mmdebstrap, kept in podman under a tag that hashes what defines them."""

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.lab import apt
from sim.lab.process import LabError, call, say

SOURCE = Path(__file__).parent / "image"
REPOSITORY = "localhost/gpufleet-lab"

PACKAGES = (
    "apt-utils,ca-certificates,cron,dbus,gpg,grub-common,grub2-common,gzip,initramfs-tools,iproute2,iputils-ping,kmod,less,"
    "needrestart,openssh-server,pciutils,procps,python3,python3-apt,sudo,systemd,systemd-sysv,udev,unattended-upgrades,"
    "xz-utils,zstd"
)


@dataclass(frozen=True)
class Image:
    """One Debian release: `kernels` is the pattern of the kernel releases to choose the two newest from."""

    name: str
    suite: str
    kernels: str


IMAGES = {
    "debian12": Image("debian12", "bookworm", r"6\.1\.0-.*"),
    "debian13": Image("debian13", "trixie", r"6\.12\..*"),
}


def tag(image: Image) -> str:
    """The podman name of the image; any change of its ingredients gives another one."""
    digest = hashlib.sha256(f"{image}{PACKAGES}".encode())
    for path in sorted(p for p in SOURCE.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(SOURCE)} {path.stat().st_mode & 0o777:o}\n".encode())
        digest.update(path.read_bytes())
    return f"{REPOSITORY}:{image.name}-{digest.hexdigest()[:12]}"


def exists(name: str) -> bool:
    return call(["podman", "image", "exists", name], check=False).returncode == 0


def ensure(name: str) -> str:
    """The tag of image `name`, built now if this machine does not hold it yet (a few minutes, needs the apt mirror).

    Any other image of this machine is taken as it is: a copy of a host, for example, to start ten like it.
    """
    if name not in IMAGES:
        if not exists(name):
            raise LabError(f"no image {name!r}; choose one of: {', '.join(IMAGES)}")
        return name
    image = IMAGES[name]
    full = tag(image)
    if not exists(full):
        _build(image, full)
    return full


def _build(image: Image, full: str) -> None:
    if shutil.which("mmdebstrap") is None:
        raise LabError("mmdebstrap is not installed; run `make bootstrap` (or: apt-get install mmdebstrap)")
    say(f"building image {full} (a few minutes, once)")
    with tempfile.TemporaryDirectory(prefix="gpufleet-lab-") as scratch:
        archive = Path(scratch) / "root.tar"
        sources = Path(scratch) / "sources.list"
        sources.write_text(apt.sources(image.suite))
        pattern = Path(scratch) / "kernel-pattern"
        pattern.write_text(image.kernels + "\n")
        shared = "usr/local/share/gpufleet-lab"
        call(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={PACKAGES}",
                f'--customize-hook=mkdir -p "$1/{shared}"',
                f"--customize-hook=copy-in {SOURCE}/root/. /",
                f"--customize-hook=copy-in {SOURCE}/grub-probe {SOURCE}/nouveau.c {pattern} /{shared}",
                f"--customize-hook=copy-in {SOURCE}/setup.sh /tmp",
                '--customize-hook=chroot "$1" sh /tmp/setup.sh',
                '--customize-hook=rm "$1/tmp/setup.sh" "$1/etc/machine-id"; : > "$1/etc/machine-id"',
                # A host key in an image would be the same on every host: each makes its own at first boot.
                '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*',
                image.suite,
                str(archive),
                str(sources),
            ],
            timeout=1800,
        )
        call(["podman", "import", "--quiet", str(archive), full], timeout=600)
