# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a host again when it reboots: a container ends with its process 1.

One small process a host, started by `up`. It sleeps until the host's process 1 ends; a host that was switched off or
removed is left alone.
"""

import os
import select
import time

from sim.lab import hosts
from sim.lab.process import call, say

#: How runc reports a process 1 that ended by reboot(2) inside its own namespace: killed by SIGHUP.
REBOOTED = 129


def watch(name: str) -> None:
    container = f"gpufleet-lab-{name}"
    while True:
        state = _inspect(container)
        if state is None:
            return
        status, process, code = state
        if status == "running":
            _ended(int(process))
        elif status in ("exited", "stopped") and int(code) == REBOOTED:
            say(f"{name} reboots")
            hosts.podman("start", container)
        elif status == "exited":
            say(f"{name} was switched off ({code})")
            return
        time.sleep(0.2)


def _inspect(container: str) -> list[str] | None:
    form = "--format={{.State.Status}} {{.State.Pid}} {{.State.ExitCode}}"
    done = call(["podman", "inspect", "--type=container", form, container], check=False)
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
