# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab hosts on which changes are killed: two images made once, a fresh host of one of them for each row."""

import os
import subprocess
import sys
from pathlib import Path

from sim.lab import mirror

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build/kills"
MACHINE = "l40s-pcie-2"
NAME = "kills"
OLD, NEW = "570.133.20", "570.158.01"
IMAGES = {"fresh": "localhost/gpufleet-kills-fresh", "upgrade": "localhost/gpufleet-kills-upgrade"}
#: Where every Python of a Debian host looks; a .pth file there is read when Python starts.
SITE = "/usr/lib/python3/dist-packages"
#: What a host tells of its driver, one "key value" a line.
LOOK = r"""
sed -n 's/.*  \([0-9.]*\)  .*/loaded \1/p' /proc/driver/nvidia/version 2>/dev/null
ls /usr/lib/x86_64-linux-gnu | sed -n 's/^libnvidia-ml.so.\([0-9]*[.].*\)/library \1/p'
ls /lib/firmware/nvidia 2>/dev/null | sed -n 's/^\([0-9].*\)/firmware \1/p'
ls /usr/src | sed -n 's/^nvidia-\([0-9].*\)/source \1/p'
dkms status 2>/dev/null | sed -n 's/^nvidia.\([0-9.]*\),.*: installed$/dkms \1/p' | sort -u
sed -n 's/.*"phase": "\(.*\)".*/phase \1/p' /var/lib/gpufleet/driver/journal.json 2>/dev/null
[ ! -d /sys/module/nouveau ] || echo rival nouveau
for unit in nvidia-persistenced; do echo "$unit $(systemctl is-active $unit)"; done
"""


def lab(*arguments, check=True):
    return subprocess.run(
        [sys.executable, "-m", "sim.lab", *arguments], cwd=ROOT, capture_output=True, text=True, check=check
    )


def podman(*arguments, check=True):
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=check).stdout


def up(image):
    """A fresh host of this image."""
    lab("down", NAME)
    lab("up", f"{NAME}={MACHINE}@{image}", "--inventory", str(BUILD / "inventory.yml"))
    mirror.start()


def sh(script):
    """Run a script as root on the host; what it printed."""
    return podman("exec", f"gpufleet-lab-{NAME}", "sh", "-c", script, check=False)


def run(version, log, *arguments, timeout=1800):
    """One run of Ansible towards this driver; its exit code."""
    runfile = f"{mirror.URL}/{version}/NVIDIA-Linux-x86_64-{version}.run"
    argv = [Path(sys.executable).parent / "ansible-playbook", "-i", BUILD / "inventory.yml", HERE / "change.yml"]
    values = {
        "gpu_reboot": "auto",
        "nvidia_driver_version": version,
        "nvidia_driver_runfile_base_url": mirror.URL,
        "nvidia_driver_runfile_checksum": f"{runfile}.sha256sum",
    }
    argv += [word for name, value in values.items() for word in ("-e", f"{name}={value}")]
    environment = dict(os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    with log.open("a") as stream:
        done = subprocess.run(
            [*map(str, argv), *arguments],
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=stream,
            timeout=timeout,
            check=False,
        )
    return done.returncode


def images(changes):
    """Make the images of these changes that are missing: without a driver but with all it needs; with the old one."""
    log = BUILD / "images.log"
    for version in (OLD, NEW):
        build = [sys.executable, "-m", "sim.runfile", "build", "--version", version]
        subprocess.run([*build, "--output", f".cache/mirror/{version}"], cwd=ROOT, check=True, capture_output=True)
    present = podman("images", "--format", "{{.Repository}}").split()
    if IMAGES["fresh"] not in present and ("fresh" in changes or IMAGES["upgrade"] not in present):
        up("debian12")
        must(run(NEW, log, "-e", "driver_tasks=fetch"), log)
        lab("reboot", NAME)  # nouveau is blocked; from here on it is gone
        keep(IMAGES["fresh"])
    if "upgrade" in changes and IMAGES["upgrade"] not in present:
        up(IMAGES["fresh"])
        must(run(OLD, log), log)
        keep(IMAGES["upgrade"])


def keep(image):
    """Make an image of the host. Read from inside, because outside every file belongs to a shifted user."""
    tar = ["podman", "exec", f"gpufleet-lab-{NAME}", "tar", "--one-file-system", "-C", "/", "-cf", "-", "."]
    with subprocess.Popen(tar, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reading:
        subprocess.run(
            ["podman", "import", "--quiet", "-", image], stdin=reading.stdout, check=True, capture_output=True
        )


def must(code, log):
    if code:
        raise SystemExit(f"a host for the kills cannot be made: see {log}")


def set_trap(phase, kill):
    sh(f"cat >{SITE}/gpufleet_trap.py <<'EOF'\n{(HERE / 'trap.py').read_text()}\nEOF")
    sh(f"echo 'import gpufleet_trap' >{SITE}/gpufleet_trap.pth; echo '{phase} {kill}' >/etc/gpufleet-sim/kill")


def set_fault(phase):
    sh(f"echo die-in-{phase}@{NEW} >/etc/gpufleet-sim/installer-fault")


def disarm():
    """Remove what :func:`set_trap` and :func:`set_fault` put there; True when the kill had been carried out."""
    lab("up", NAME, check=False)  # after a reboot: wait until it answers
    waiting = sh("cat /etc/gpufleet-sim/kill 2>/dev/null")
    sh(f"rm -f {SITE}/gpufleet_trap.* /etc/gpufleet-sim/kill /etc/gpufleet-sim/installer-fault")
    return not waiting


def look():
    """dict of what is there -> sorted list of its versions."""
    found: dict[str, list[str]] = {}
    for line in sh(LOOK).splitlines():
        key, _space, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found
