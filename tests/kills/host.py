# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab hosts on which changes are killed: two images made once, a fresh host of one of them for each row."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sim.lab import images, mirror

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build/kills"
MACHINE = "l40s-pcie-2"
BASE = "debian12"
OLD, NEW = "570.133.20", "570.158.01"
#: Where every Python of a Debian host looks; a .pth file there is read when Python starts.
SITE = "/usr/lib/python3/dist-packages"
#: What a host tells of its driver, one "key value" a line.
LOOK = r"""
sed -n 's/.*  \([0-9.]*\)  .*/loaded \1/p' /proc/driver/nvidia/version 2>/dev/null
ls /usr/lib/x86_64-linux-gnu | sed -n 's/^libnvidia-ml.so.\([0-9]*[.].*\)/library \1/p'
ls /lib/firmware/nvidia 2>/dev/null | sed -n 's/^\([0-9].*\)/firmware \1/p'
ls /usr/src | sed -n 's/^nvidia-\([0-9].*\)/source \1/p'
ls /var/lib/dkms/nvidia 2>/dev/null | sed -n 's/^\([0-9].*\)/dkms \1/p'
for kernel in $(ls -d /lib/modules/*/kernel | cut -d/ -f4); do
    echo "installed $(readlink "/var/lib/dkms/nvidia/kernel-$kernel-$(arch)" | cut -d/ -f1)"
    echo "modules $(modinfo -k "$kernel" -F version nvidia 2>/dev/null)"
done | sort -u
sed -n 's/.*"phase": "\(.*\)".*/phase \1/p' /var/lib/gpufleet/driver/journal.json 2>/dev/null
[ ! -d /sys/module/nouveau ] || echo rival nouveau
for unit in nvidia-persistenced; do echo "$unit $(systemctl is-active $unit)"; done
"""
#: Two hosts that come up at the same time would both start the mirror.
STARTING = threading.Lock()


class Lost(Exception):
    """A host that does not come back."""


def lab(*arguments, check=True):
    return subprocess.run(
        [sys.executable, "-m", "sim.lab", *arguments], cwd=ROOT, capture_output=True, text=True, check=check
    )


def podman(*arguments, check=True):
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=check).stdout


@dataclass(frozen=True)
class KillHost:
    """One host of the lab, taken anew for each row."""

    name: str

    @property
    def inventory(self):
        return BUILD / f"{self.name}.yml"

    def up(self, image):
        """A fresh host of this image."""
        self.down()
        lab("up", f"{self.name}={MACHINE}@{image}", "--inventory", str(self.inventory))
        with STARTING:
            mirror.start()

    def down(self):
        lab("down", self.name)

    def sh(self, script):
        """Run a script as root on the host; what it printed."""
        return podman("exec", f"gpufleet-lab-{self.name}", "sh", "-c", script, check=False)

    def sha256(self, version):
        """The checksum of the runfile that its image has brought along."""
        return self.sh(f"sha256sum /var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{version}.run").split()[0]

    def run(self, version, log, *arguments, sha256=None, timeout=900):
        """One run of Ansible towards this driver; its exit code. Without ``sha256`` it fetches the runfile."""
        runfile = f"{mirror.URL}/{version}/NVIDIA-Linux-x86_64-{version}.run"
        argv = [Path(sys.executable).parent / "ansible-playbook", "-i", self.inventory, HERE / "change.yml"]
        values = {
            "gpu_reboot": "auto",
            "nvidia_driver_version": version,
            "nvidia_driver_runfile_base_url": mirror.URL,
            f"nvidia_driver_runfile_{'sha256' if sha256 else 'checksum'}": sha256 or f"{runfile}.sha256sum",
        }
        argv += [word for name, value in values.items() for word in ("-e", f"{name}={value}")]
        environment = dict(os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
        with log.open("a") as stream:
            done = subprocess.run(
                [*map(str, argv), *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                timeout=timeout,
                check=False,
            )
        return done.returncode

    def keep(self, image):
        """Make an image of the host. Read from inside, because outside every file belongs to a shifted user."""
        tar = ["podman", "exec", f"gpufleet-lab-{self.name}", "tar", "--one-file-system", "-C", "/", "-cf", "-", "."]
        with subprocess.Popen(tar, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reading:
            subprocess.run(
                ["podman", "import", "--quiet", "-", image], stdin=reading.stdout, check=True, capture_output=True
            )

    def set_trap(self, phase, kill):
        self.sh(f"cat >{SITE}/gpufleet_trap.py <<'EOF'\n{(HERE / 'trap.py').read_text()}\nEOF")
        self.sh(f"echo 'import gpufleet_trap' >{SITE}/gpufleet_trap.pth; echo '{phase} {kill}' >/etc/gpufleet-sim/kill")

    def set_fault(self, phase):
        self.sh(f"echo die-in-{phase}@{NEW} >/etc/gpufleet-sim/installer-fault")

    def disarm(self):
        """Remove what :meth:`set_trap` and :meth:`set_fault` put there; True when the kill had been carried out."""
        self.wait()
        waiting = self.sh("cat /etc/gpufleet-sim/kill 2>/dev/null")
        self.sh(f"rm -f {SITE}/gpufleet_trap.* /etc/gpufleet-sim/kill /etc/gpufleet-sim/installer-fault")
        return not waiting

    def wait(self):
        """Until the host answers: it may be on its way through a reboot."""
        deadline = time.monotonic() + 180
        while lab("ssh", self.name, "true", check=False).returncode:
            if time.monotonic() > deadline:
                raise Lost(f"{self.name} does not answer any more")
            time.sleep(1)

    def look(self):
        """dict of what is there -> sorted list of its versions."""
        found: dict[str, list[str]] = {}
        for line in self.sh(LOOK).splitlines():
            key, _space, value = line.partition(" ")
            found.setdefault(key, []).append(value)
        return found


def image(change):
    """The name of the image with which this change begins; another one when what it is made of is another."""
    digest = hashlib.sha256(f"{images.tag(images.IMAGES[BASE])} {MACHINE} {OLD} {NEW} fetched".encode())
    for path in sorted(path for path in (ROOT / "sim/runfile").rglob("*") if path.suffix != ".pyc" and path.is_file()):
        digest.update(path.read_bytes())
    return f"localhost/gpufleet-kills:{change}-{digest.hexdigest()[:12]}"


def make_images(host, changes):
    """The images of these changes that are missing: without a driver but with all it needs; with the old one. The new
    one's runfile is on both: fetching it would take longer than what the rows are about."""
    log = BUILD / "images.log"
    for version in (OLD, NEW):
        build = [sys.executable, "-m", "sim.runfile", "build", "--version", version]
        subprocess.run([*build, "--output", f".cache/mirror/{version}"], cwd=ROOT, check=True, capture_output=True)
    due = {change for change in changes if not images.exists(image(change))}
    if due and not images.exists(image("fresh")):
        host.up(BASE)
        must(host.run(NEW, log, "-e", "driver_tasks=fetch"), log)
        lab("reboot", host.name)  # nouveau is blocked; from here on it is gone
        host.keep(image("fresh"))
    if "upgrade" in due:
        host.up(image("fresh"))
        must(host.run(OLD, log), log)
        must(host.run(NEW, log, "-e", "driver_tasks=fetch"), log)
        host.keep(image("upgrade"))


def must(code, log):
    if code:
        raise SystemExit(f"a host for the kills cannot be made: see {log}")
