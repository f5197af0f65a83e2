# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end states of builtin.yml in pyinfra."""

import json
import os
from pathlib import Path

from pyinfra import host
from pyinfra.facts.files import File, FindFiles
from pyinfra.facts.server import Command
from pyinfra.operations import apt, files, server, systemd

STATES = json.loads(Path(os.environ["BENCH_STATES"]).read_text(encoding="utf-8"))
FOLDER = STATES["bench_files"]


def require(holds: bool, what: str) -> None:
    """pyinfra has no assertion of its own."""
    if not holds:
        raise SystemExit(f"{host.name}: {what} does not hold")


for path in [
    *STATES["bench_update_files"],
    STATES["bench_nouveau_file"],
    *STATES["bench_boot_files"],
    STATES["bench_pins"],
]:
    files.put(name=path, src=FOLDER + path, dest=path, mode="644")
for unit in STATES["bench_masked"]:
    files.link(name=f"mask {unit}", path=f"/etc/systemd/system/{unit}", target="/dev/null")
require('Unattended-Upgrade "0"' in host.get_fact(Command, "apt-config dump APT::Periodic"), "updates are off")
for image in host.get_fact(FindFiles, "/boot", fname="initrd.img-*"):
    require(STATES["bench_nouveau_file"][1:] in host.get_fact(Command, f"lsinitramfs {image}"), f"block in {image}")
apt.packages(name="build packages", packages=STATES["bench_packages"])
files.download(
    name="runfile", src=STATES["bench_runfile_url"], dest=STATES["bench_runfile"], sha256sum=STATES["bench_sha256"]
)
require(STATES["bench_version"] in host.get_fact(Command, "cat /proc/driver/nvidia/version"), "the loaded driver")
for path in STATES["bench_driver_files"]:
    require(host.get_fact(Command, f"test -e {path} && echo yes") == "yes", path)
for kernel in STATES["bench_kernels"]:
    version = host.get_fact(Command, f"modinfo -F version -k {kernel} nvidia")
    require(version == STATES["bench_version"], f"the module of {kernel}")
dkms = host.get_fact(Command, "dkms status -m nvidia")
require(dkms.count("installed") == len(STATES["bench_kernels"]), "DKMS")
server.user(
    name="daemon's user",
    user="nvidia-persistenced",
    system=True,
    home="/",
    ensure_home=False,  # it would give / to the user
    shell="/usr/sbin/nologin",
)
for service in STATES["bench_services"]:
    systemd.service(name=service, service=service, running=True, enabled=True)
for path in STATES["bench_devices"]:
    require(host.get_fact(File, path) is not None or host.get_fact(Command, f"ls {path}"), path)
held = host.get_fact(Command, "apt-mark showhold").split()
for package in STATES["bench_held"]:
    if package not in held:
        server.shell(name=f"hold {package}", commands=[f"apt-mark hold {package}"])
require(len(host.get_fact(Command, "nvidia-smi -L").splitlines()) == STATES["bench_gpu_count"], "the GPUs")
