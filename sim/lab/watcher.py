# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a host again when it reboots: a container ends with its process 1.

One small process a host, started by `up`. It sleeps until the host's process 1 ends; a host that was switched off or
removed is left alone.
"""

import fcntl
import os
import select
import time
from pathlib import Path

from sim.lab import cache, hosts
from sim.lab.process import LabError, call, say

#: How runc reports a process 1 that ended by reboot(2) inside its own namespace: killed by SIGHUP.
REBOOTED = 129
ATTEMPTS = 5
#: Where podman keeps the network namespaces of its containers.
NAMESPACES = Path("/run/netns")


def watch(name: str) -> None:
    """Until the host is switched off or removed; a second watcher of the same host ends at once."""
    with (cache.CACHE / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        _watch(name, f"gpufleet-lab-{name}")


def _watch(name: str, container: str) -> None:
    while True:
        state = _inspect(container)
        if state is None:
            return
        status, process, code, address = state
        if status == "running":
            _ended(int(process))
        elif status in ("exited", "stopped") and int(code) == REBOOTED:
            say(f"{name} reboots")
            _silence(container, address)  # before the start, so that nobody talks to the boot before
            _start(container)
            _silence(container, address)  # and after it, because a start that fails leaves one behind too
        elif status in ("exited", "created"):
            say(f"{name} was switched off ({code})")
            return
        time.sleep(0.2)


def _start(container: str) -> None:
    """Start the host again. Its network interface ended with it, which podman takes for a failure the first time."""
    for _ in range(ATTEMPTS):
        if hosts.podman("start", container, check=False).returncode == 0:
            return
        time.sleep(0.3)
    raise LabError(f"{container} does not start again; see `podman start {container}`")


def _silence(container: str, address: str) -> None:
    """Remove every network namespace but the container's own that answers for its address; podman leaves some."""
    own = call(["podman", "inspect", "--type=container", "--format={{.NetworkSettings.SandboxKey}}", container])
    for path in NAMESPACES.glob("netns-*"):
        shown = call(["nsenter", f"--net={path}", "ip", "-4", "-oneline", "address", "show"], check=False)
        if f" {address}/" in shown.stdout and str(path) != own.stdout.strip():
            call(["umount", "--lazy", str(path)], check=False)
            call(["rm", "--force", str(path)], check=False)


def _inspect(container: str) -> list[str] | None:
    """Status, process id, exit code and address; None when there is no such container."""
    form = (
        "{{.State.Status}} {{.State.Pid}} {{.State.ExitCode}} "
        + f'{{{{index .Config.Labels "{hosts.LABEL}.address"}}}}'
    )
    done = call(["podman", "inspect", "--type=container", f"--format={form}", container], check=False)
    return done.stdout.split() if done.returncode == 0 else None


def _ended(process: int) -> None:
    """Block until `process` is gone."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)
