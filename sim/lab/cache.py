# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the lab keeps its things on the controller: one folder, made on first use, `make clean` may drop it."""

import fcntl
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.lab.process import call

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "lab"
KEY = CACHE / "id_ed25519"
KNOWN_HOSTS = CACHE / "known_hosts"
HOOKS = CACHE / "hooks"
HOST_KEYS = CACHE / "host-keys"
MIRROR = ROOT / ".cache" / "mirror"


@contextmanager
def locked() -> Iterator[None]:
    """One process at a time: choosing addresses, building images, pinning host keys, removing the network."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def key(path: Path) -> Path:
    """An SSH key pair at `path`; returns the public half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpufleet-lab", "-f", str(path)])
    return path.with_suffix(".pub")


def hooks() -> Path:
    """The folder of OCI hooks that podman is told to use."""
    HOOKS.mkdir(parents=True, exist_ok=True)
    hook = {
        "version": "1.0.0",
        "hook": {"path": sys.executable, "args": ["python3", "-I", str(Path(__file__).with_name("cgroup_hook.py"))]},
        "when": {"annotations": {"^gpufleet-lab$": ".*"}},
        "stages": ["createRuntime"],
    }
    (HOOKS / "gpufleet-lab.json").write_text(json.dumps(hook, indent=1))
    return HOOKS
