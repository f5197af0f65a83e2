# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root images of simulated hosts: made with mmdebstrap, kept in podman under a tag that hashes what defines them.

No mirror of an EL distribution is needed: a host with rpm and dnf is a Debian root that got them from Debian's archive,
lost apt and dpkg, and has the packages of sim/packages/rpm.yml in its rpm database.
"""

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.lab import apt
from sim.lab.process import LabError, call, say
from sim.packages import rpm

SOURCE = Path(__file__).parent / "image"
RPM_SOURCE = Path(__file__).parent / "image_rpm"
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


@dataclass(frozen=True)
class RpmImage:
    """A host whose packages are rpms, made from the Debian image `base`. `tool`: dnf4 or dnf5."""

    name: str
    base: str
    tool: str


IMAGES: dict[str, Image | RpmImage] = {
    "debian12": Image("debian12", "bookworm", r"6\.1\.0-.*"),
    "debian13": Image("debian13", "trixie", r"6\.12\..*"),
    "dnf4": RpmImage("dnf4", "debian12", "dnf4"),
    "dnf5": RpmImage("dnf5", "debian13", "dnf5"),
}


def tag(image: Image | RpmImage) -> str:
    """The podman name of the image; any change of its ingredients gives another one."""
    if isinstance(image, RpmImage):
        digest = hashlib.sha256(f"{image}{tag(IMAGES[image.base])}{rpm.start(rpm.packages())}".encode())
        sources = RPM_SOURCE
    else:
        digest = hashlib.sha256(f"{image}{PACKAGES}".encode())
        sources = SOURCE
    for path in sorted(p for p in sources.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(sources)} {path.stat().st_mode & 0o777:o}\n".encode())
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
    if isinstance(image, RpmImage):
        rpm.build()  # such a host reads the mirror's repository for all its life
    if not exists(full):
        say(f"building image {full} (a few minutes, once)")
        if isinstance(image, RpmImage):
            _build_rpm(image, full)
        else:
            _build(image, full)
    return full


def _build_rpm(image: RpmImage, full: str) -> None:
    """Run image_rpm/setup.sh in a container of the base image, and keep what it left."""
    container = f"gpufleet-lab-build-{image.name}"
    call(["podman", "rm", "--force", "--ignore", container])
    call(
        [
            *("podman", "--runtime", "runc", "run", f"--name={container}", "--network=host"),
            *("--ulimit=nofile=10000:10000", "--ulimit=nproc=20000:20000"),
            *(f"--volume={RPM_SOURCE / 'setup.sh'}:/setup.sh:ro", f"--volume={RPM_SOURCE / 'root'}:/lab-root:ro"),
            *(f"--volume={rpm.DEFAULT / 'start'}:/packages:ro", ensure(image.base), "sh", "/setup.sh", image.tool),
        ],
        timeout=1800,
    )
    call(["podman", "commit", "--quiet", container, full], timeout=600)
    call(["podman", "rm", container])


def _build(image: Image, full: str) -> None:
    if shutil.which("mmdebstrap") is None:
        raise LabError("mmdebstrap is not installed; run `make bootstrap` (or: apt-get install mmdebstrap)")
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
