# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP server for the hosts: serves .cache/mirror on the lab's bridge address and nowhere else."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from sim.lab import cache, network
from sim.lab.process import LabError, say

PORT = 8077
URL = f"http://{network.GATEWAY}:{PORT}"
PID_FILE = cache.CACHE / "mirror.pid"


def start() -> None:
    """Start the server unless it answers already. Needs a running host: the bridge has its address only then."""
    if _answers():
        if not _is_ours(_recorded()):
            raise LabError(
                f"the mirror of another checkout serves at {URL}, whose packages are signed with another key: "
                f"end it there with `make clean`"
            )
        say(f"mirror serves {cache.MIRROR} at {URL}")
        return
    network.ensure()
    cache.MIRROR.mkdir(parents=True, exist_ok=True)
    PID_FILE.parent.mkdir(parents=True, exist_ok=True)
    argv = ["-m", "http.server", str(PORT), "--bind", str(network.GATEWAY), "--directory", str(cache.MIRROR)]
    with (cache.CACHE / "mirror.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    PID_FILE.write_text(f"{process.pid}\n")
    for _ in range(50):
        if _answers():
            say(f"mirror serves {cache.MIRROR} at {URL}")
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    PID_FILE.unlink()
    raise LabError(f"the mirror cannot listen on {URL}: start a host first (`up`), or see {cache.CACHE / 'mirror.log'}")


def stop() -> None:
    """End the server that `start` started."""
    process = _recorded()
    PID_FILE.unlink(missing_ok=True)
    if process and _is_ours(process):
        os.kill(process, signal.SIGTERM)
        say("mirror stopped")


def _recorded() -> int | None:
    return int(PID_FILE.read_text()) if PID_FILE.exists() else None


def _is_ours(process: int | None) -> bool:
    """A process id is used again after a restart of the machine: only our own server may be ended."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as stream:
            words = stream.read().split(b"\0")
    except FileNotFoundError:
        return False
    return b"http.server" in words and str(cache.MIRROR).encode() in words


def _answers() -> bool:
    try:
        with urllib.request.urlopen(URL, timeout=2):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False
