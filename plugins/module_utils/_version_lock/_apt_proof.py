# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the lock holds: apt itself is asked, in simulations that change nothing."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._candidates import is_driver

#: Packages that people install on a GPU host and that may pull a driver or a kernel in. Only those that the host's
#: repositories know are tried.
LIKELY_OFFENDERS = (
    "nvtop",
    "nvidia-opencl-dev",
    "nvidia-cuda-toolkit",
    "nvidia-smi",
    "nvidia-driver",
    "cuda",
    "cuda-drivers",
    "linux-image-amd64",
    "linux-generic",
)
_STEP = re.compile(r"^(Inst|Remv) (\S+)", re.MULTILINE)
_POLICY = re.compile(r"^(\S+):\n  Installed: (.*)\n  Candidate: (.*)$", re.MULTILINE)


def policy(host, names):
    """What apt would take: name -> ``(installed, candidate)``; names that apt does not know are missing.

    :raises ConcernError: when apt does not accept its preferences.
    """
    result = host.run(["apt-cache", "policy"] + list(names), timeout=120)
    if not result.ok:
        raise ConcernError(f"version_lock: {result.summary()}")
    return {name: (installed, candidate) for name, installed, candidate in _POLICY.findall(result.out)}


def prove(host, locked, refuse_drivers):
    """Ask apt for its candidates, simulate a full upgrade and the installation of likely offenders.

    :param locked: list of ``{name, version, group}``.
    :returns: the transcript: list of ``{command, result}``.
    :raises ConcernError: when one of them would touch the set; the transcript is in its details.
    """
    versions = {row["name"]: row["version"] for row in locked}
    known = policy(host, list(versions) + [name for name in LIKELY_OFFENDERS if name not in versions])
    moving = sorted(name for name in versions if known.get(name, (None, versions[name]))[1] != versions[name])
    transcript = [_entry(f"apt-cache policy, {len(versions)} locked packages", moving)]
    broken = [f"{name} would become {known[name][1]}" for name in moving]
    commands = [["dist-upgrade"]] + [
        ["install", name] for name in LIKELY_OFFENDERS if name in known and name not in versions
    ]
    for command in commands:
        argv = ["apt-get", "-s", "-y", "-o", "Debug::NoLocking=true"] + command
        result = host.run(argv, timeout=180)
        if not result.ok and command == ["dist-upgrade"]:
            raise ConcernError(f"version_lock: the lock is set but cannot be proven: {result.summary()}")
        touched = sorted(
            {
                name
                for step, name in _STEP.findall(result.out)
                if name in versions or (refuse_drivers and step == "Inst" and is_driver(name))
            }
        )
        transcript.append(_entry(" ".join(["apt-get", "-s"] + command), touched, refused=not result.ok))
        broken += ["'apt-get {}' would touch {}".format(" ".join(command), name) for name in touched]
    if broken:
        raise ConcernError("version_lock: the lock does not hold: {}".format("; ".join(broken)), proof=transcript)
    return transcript


def _entry(command, touched, refused=False):
    if touched:
        return {"command": command, "result": "touches " + ", ".join(touched)}
    return {"command": command, "result": "apt refuses" if refused else "touches nothing of the set"}
