# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten hosts that match site.yml: one is made to match, the others are started from its image."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
WORK = ROOT / "build" / "bench"
MACHINE = "hgx-h100-8"
HOSTS = [f"bench-{number:02}" for number in range(10)]
IMAGE = "localhost/gpufleet-lab:bench"
VERSION = "580.95.05"
UPDATE_FILES = [
    "/etc/apt/apt.conf.d/99zz-gpufleet-auto-updates",
    "/etc/needrestart/conf.d/zz-gpufleet-auto-updates.conf",
]
NOUVEAU_FILE = "/etc/modprobe.d/gpufleet-nouveau.conf"
BOOT_FILES = [
    "/etc/modules-load.d/gpufleet-nvidia.conf",
    "/etc/systemd/system/gpufleet-nvidia-devices.service",
    "/etc/systemd/system/nvidia-persistenced.service",
]
PINS = "/etc/apt/preferences.d/00-gpufleet-version-lock"
RUNFILE = f"/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{VERSION}.run"


def call(*command: str) -> str:
    """Run a command from the repository's root; what it printed. Its failure ends the bench."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def lab(*arguments: str) -> str:
    return call(sys.executable, "-m", "sim.lab", *arguments)


def start() -> Path:
    """Bring the hosts up; the inventory's path. ``states.json`` beside it says what a host that matches holds."""
    inventory = WORK / "hosts.yml"
    (WORK / "group_vars").mkdir(parents=True, exist_ok=True)
    wanted = yaml.safe_load((ROOT / "inventories/lab/group_vars/gpu.yml").read_text(encoding="utf-8"))
    (WORK / "group_vars" / "gpu.yml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    stop()
    call("make", "--silent", "-C", "sim/nvml")
    call(sys.executable, "-m", "sim.runfile", "build", "--version", VERSION, "--output", f".cache/mirror/{VERSION}")
    first = HOSTS[0]
    lab("up", f"{first}={MACHINE}", "--inventory", str(inventory))
    lab("mirror", "start")
    reports = f"gpu_report_directory={WORK}"
    call(str(BIN / "ansible-playbook"), "-i", str(inventory), "playbooks/site.yml", "-e", reports)
    copy(first)
    lab("down", first)
    lab("up", *(f"{name}={MACHINE}" for name in HOSTS), "--image", IMAGE, "--inventory", str(inventory))
    # the new addresses are the only difference: each must match site.yml before anything is measured
    call(str(BIN / "ansible-playbook"), "-i", str(inventory), "playbooks/site.yml", "-e", reports)
    (WORK / "states.json").write_text(json.dumps(states(first, wanted), indent=2), encoding="utf-8")
    return inventory


def copy(name: str) -> None:
    """Make the host's file system an image. (A commit would keep the ids of the host's user namespace.)"""
    archive = WORK / "host.tar"
    with archive.open("wb") as stream:
        pack = ["tar", "--create", "--one-file-system", "--directory=/", "."]
        subprocess.run(["podman", "exec", f"gpufleet-lab-{name}", *pack], stdout=stream, check=True)
    call("podman", "import", "--quiet", str(archive), IMAGE)
    archive.unlink()


def states(name: str, wanted: dict[str, str]) -> dict[str, object]:
    """The end states that builtin.yml and pyinfra_deploy.py reach, read off a host that matches site.yml."""

    def read(*command: str) -> str:
        return call("podman", "exec", f"gpufleet-lab-{name}", *command)

    files = WORK / "files"
    for path in [*UPDATE_FILES, NOUVEAU_FILE, *BOOT_FILES, PINS]:
        copy = files / path.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(read("cat", path), encoding="utf-8")
    library = read("sh", "-c", f"ls /usr/lib/*/libnvidia-ml.so.{VERSION}").strip()
    masked = read("find", "/etc/systemd/system", "-maxdepth", "1", "-lname", "/dev/null", "-printf", "%f\\n")
    return {
        "bench_files": str(files),
        "bench_update_files": UPDATE_FILES,
        "bench_nouveau_file": NOUVEAU_FILE,
        "bench_boot_files": BOOT_FILES,
        "bench_pins": PINS,
        "bench_masked": masked.split(),
        "bench_packages": ["dkms", "make"],
        "bench_runfile": RUNFILE,
        "bench_runfile_url": f"{wanted['lab_mirror']}/{VERSION}/{Path(RUNFILE).name}",
        "bench_sha256": read("sha256sum", RUNFILE).split()[0],
        "bench_version": VERSION,
        "bench_driver_files": [library, f"/lib/firmware/nvidia/{VERSION}"],
        "bench_kernels": [path.split("/")[3] for path in read("sh", "-c", "ls -d /lib/modules/*/updates/dkms").split()],
        "bench_services": ["gpufleet-nvidia-devices.service", "nvidia-persistenced.service"],
        "bench_devices": ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"],
        "bench_held": read("apt-mark", "showhold").split(),
        "bench_gpu_count": 8,
    }


def stop() -> None:
    """Remove the bench's own hosts and image."""
    lab("down", *HOSTS)
    subprocess.run(["podman", "rmi", "--force", IMAGE], capture_output=True, check=False)
