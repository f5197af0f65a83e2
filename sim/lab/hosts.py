# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts as podman containers: create, start, look at, remove.

Isolation, in the order it counts: a user namespace (root inside is nobody outside, so the kernel refuses module
loading, /sys writes, sysrq and raw I/O whatever the host tries), no `--privileged`, no devices of the machine, and the
capabilities below, which act inside the namespaces only. tests/lab proves it.
"""

import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sim import machine
from sim.lab import cache, images, mirror, network
from sim.lab.process import LabError, call, say
from sim.packages import apt

LABEL = "gpufleet-lab"
#: What systemd, sudo, apt and nested containers need; SYS_BOOT lets `systemctl reboot` end this container's processes.
CAPABILITIES = "AUDIT_WRITE,MKNOD,NET_ADMIN,NET_RAW,SYS_ADMIN,SYS_BOOT,SYS_CHROOT,SYS_PTRACE"
#: Root inside is this user outside; 65536 ids, like a container made by an ordinary user.
USER_RANGE = "0:1000000:65536"
GUEST = Path(__file__).parent / "guest"
LIBRARY = "usr/local/lib/gpufleet-sim"
BOOT_DEADLINE = 180.0  # three seconds when the machine is idle


@dataclass(frozen=True)
class Host:
    """A host of the lab. `machine` names a description in sim/machines or a file; `address` is fixed for its life."""

    name: str
    machine: str
    address: str
    image: str = "debian12"

    @property
    def container(self) -> str:
        return f"gpufleet-lab-{self.name}"


def podman(*arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    argv = ["podman", "--runtime", "runc", "--hooks-dir", str(cache.hooks()), *arguments]
    return call(argv, check=check, timeout=timeout)


def listed() -> dict[str, dict[str, str]]:
    """All hosts of the lab on this machine: name -> {state, machine, address, image}."""
    rows = json.loads(call(["podman", "ps", "--all", f"--filter=label={LABEL}", "--format=json"]).stdout or "[]")
    hosts = {}
    for row in rows:
        labels = row["Labels"]
        hosts[labels[LABEL]] = {
            "state": row["State"],
            "machine": labels[f"{LABEL}.machine"],
            "address": labels[f"{LABEL}.address"],
            "image": labels[f"{LABEL}.image"],
        }
    return hosts


def create(hosts: list[Host]) -> None:
    """Make the containers of `hosts` that are not there yet, and pin all host keys. Call it under `cache.locked()`."""
    present = listed()
    for host in hosts:
        now = present.get(host.name)
        if now and (now["machine"], now["address"], now["image"]) != (host.machine, host.address, host.image):
            raise LabError(f"{host.name} exists as {now}; run `down {host.name}` first")
        if now and not _public_key(host.name).exists():
            raise LabError(f"{host.name} was started from another checkout; run `down {host.name}` first")
    images_by_name = {name: images.ensure(name) for name in sorted({host.image for host in hosts})}
    network.ensure()
    cache.key(cache.KEY)
    new = [host for host in hosts if host.name not in present]
    for host in new:
        cache.key(cache.HOST_KEYS / host.name)
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda host: _create(host, images_by_name[host.image]), new))
    known_hosts()


def up(hosts: list[Host]) -> None:
    """Start `hosts` in parallel, those that run already are left alone; returns when SSH answers on all."""
    present = listed()
    stopped = [host for host in hosts if present[host.name]["state"] != "running"]
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda host: podman("start", host.container), stopped))
        list(pool.map(watch, hosts))
        list(pool.map(wait, hosts))


def _create(host: Host, image: str) -> None:
    labels = {LABEL: host.name, f"{LABEL}.machine": host.machine, f"{LABEL}.address": host.address}
    labels[f"{LABEL}.image"] = host.image
    podman(
        "create",
        f"--name={host.container}",
        f"--hostname={host.name}",
        *(f"--label={key}={value}" for key, value in labels.items()),
        f"--annotation={LABEL}={host.name}",
        f"--network={network.NAME}",
        f"--ip={host.address}",
        "--systemd=always",
        f"--uidmap={USER_RANGE}",
        f"--gidmap={USER_RANGE}",
        f"--cap-add={CAPABILITIES}",
        "--security-opt=apparmor=unconfined",
        "--ulimit=nofile=10000:10000",
        "--ulimit=nproc=20000:20000",
        "--stop-timeout=10",
        image,
        f"/{LIBRARY}/boot.py",
    )
    done = subprocess.run(
        ["podman", "cp", "-", f"{host.container}:/"], input=_files(host), capture_output=True, check=False
    )
    if done.returncode:
        raise LabError(f"cannot copy the files of {host.name}: {done.stderr.decode().strip()}")


def _files(host: Host) -> bytes:
    """A tar archive of what makes an image this host: its hardware, its keys, the tools that pretend."""
    hardware = machine.load(host.machine)
    host_key = cache.HOST_KEYS / host.name
    control = Path(machine.__file__).with_name("control.py")
    files: dict[str, tuple[bytes, int]] = {
        "etc/gpufleet-sim/machine.json": (json.dumps(hardware, indent=1).encode(), 0o644),
        "etc/gpufleet-sim/machine.flat": (machine.flatten(hardware).encode(), 0o644),
        "etc/ssh/ssh_host_ed25519_key": (host_key.read_bytes(), 0o600),
        # podman makes every file root's, so the key cannot lie in the users' homes.
        "etc/ssh/lab_authorized_keys": (cache.KEY.with_suffix(".pub").read_bytes(), 0o644),
        "etc/ssh/sshd_config.d/lab.conf": (
            b"AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/lab_authorized_keys\n",
            0o644,
        ),
        "etc/ssh/ssh_host_ed25519_key.pub": (host_key.with_suffix(".pub").read_bytes(), 0o644),
    }
    if (
        isinstance(images.IMAGES.get(host.image), images.Image)
        and hardware.get("nvlink", {}).get("topology") == "switch"
    ):
        files.update(_vendor_repository())
    for path in [*GUEST.iterdir(), *([control] if control.exists() else [])]:
        if path.is_file():
            files[f"{LIBRARY}/{path.name}"] = (path.read_bytes(), 0o755)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, int(time.time())
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def _vendor_repository() -> dict[str, tuple[bytes, int]]:
    """What the owner of a machine with NVSwitches has set up: the repository with the fabric manager."""
    key = "etc/apt/keyrings/gpufleet-lab-vendor.asc"
    line = f"deb [signed-by=/{key}] {mirror.URL}/apt fabric main\n"
    return {
        key: ((apt.build() / "key.asc").read_bytes(), 0o644),
        "etc/apt/sources.list.d/gpufleet-lab-vendor.list": (line.encode(), 0o644),
    }


def _public_key(name: str) -> Path:
    return cache.HOST_KEYS / f"{name}.pub"


def known_hosts() -> None:
    """Pin the host keys of every host that this checkout started; another checkout on this machine has its own."""
    lines = []
    for name, row in sorted(listed().items()):
        if _public_key(name).exists():
            public = _public_key(name).read_text().split()
            lines.append(f"{row['address']} {public[0]} {public[1]}\n")
    draft = cache.KNOWN_HOSTS.with_suffix(".new")
    draft.write_text("".join(lines))
    draft.replace(cache.KNOWN_HOSTS)


def watch(host: Host) -> None:
    """Start the process that starts the host again whenever it reboots, unless it is there already."""
    log = (cache.CACHE / f"{host.name}.log").open("a")
    subprocess.Popen(
        [sys.executable, "-m", "sim.lab", "watch", host.name],
        cwd=cache.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def wait(host: Host) -> None:
    """Until SSH answers on the host."""
    deadline = time.monotonic() + BOOT_DEADLINE
    while time.monotonic() < deadline:
        if call(ssh(host.address, "true"), check=False).returncode == 0:
            say(f"{host.name} ({host.machine}, {host.image}) answers at {host.address}")
            return
        time.sleep(0.5)
    raise LabError(f"{host.name} did not answer SSH within {BOOT_DEADLINE:.0f} s; see `podman logs {host.container}`")


def ssh(address: str, *command: str, user: str = "admin") -> list[str]:
    """The ssh command line to a host of the lab."""
    options = [f"UserKnownHostsFile={cache.KNOWN_HOSTS}", "StrictHostKeyChecking=yes"]
    options += ["ConnectTimeout=3", "LogLevel=ERROR"]
    flags = [word for option in options for word in ("-o", option)]
    return ["ssh", "-i", str(cache.KEY), *flags, f"{user}@{address}", *command]


def reboot(name: str, row: dict[str, str]) -> None:
    """Restart a host from the inside and wait until SSH answers after the next boot."""
    container = f"gpufleet-lab-{name}"
    before = _boot_id(container)
    podman("exec", container, "systemctl", "reboot", check=False)
    deadline = time.monotonic() + BOOT_DEADLINE
    while time.monotonic() < deadline and _boot_id(container) in ("", before):
        time.sleep(0.3)
    wait(Host(name, row["machine"], row["address"], row["image"]))


def _boot_id(container: str) -> str:
    return podman("exec", container, "cat", "/run/gpufleet-sim/boot_id", check=False).stdout.strip()


def down(names: Iterable[str] = ()) -> None:
    """Remove the named hosts, or all; nothing without the label of the lab is ever touched."""
    present = listed()
    wanted = list(names) or list(present)
    for name in wanted:
        if name not in present:
            say(f"{name} is not there")
            continue
        _remove(f"gpufleet-lab-{name}")
        say(f"{name} removed")
    if not listed():
        network.remove()


def _remove(container: str) -> None:
    """Once more when podman lost the race with its own clean-up process, which unmounts the same folders."""
    arguments = ("rm", "--force", "--ignore", "--time=0", container)
    if podman(*arguments, check=False).returncode != 0:
        time.sleep(1)
        podman(*arguments)
