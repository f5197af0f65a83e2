# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf-automatic in the mode ``security``: it stays on, and leaves the driver set and the kernel alone.

Its service is told by a drop-in to read a file of ours; the package's ``automatic.conf`` stays as it is, and so do the
excludes of ``dnf.conf``, to which those in ``[base]`` are added. Names of rpms carry no version, so the patterns
also cover the next kernel. dnf4 only: dnf5's automatic updates know one file, which is the operator's.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates, _dnf_candidates
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._dnf import Dnf

PACKAGE = "dnf-automatic"
TIMERS = ("dnf-automatic.timer",)
PROGRAM = "/usr/bin/dnf-automatic"
CONF = "/etc/dnf/gpufleet-automatic.conf"
DROPIN = "/etc/systemd/system/dnf-automatic.service.d/zz-gpufleet.conf"
HEADER = "# Managed by gpufleet.metal (role auto_updates): changes made here are overwritten.\n"
DROPIN_TEXT = HEADER + f"[Service]\nExecStart=\nExecStart={PROGRAM} {CONF} --timer\n"
#: Fetching the repositories' indexes is part of the dry run.
DRY_RUN_TIMEOUT = 600
#: The set, as patterns that dnf's excludepkgs knows; what brings a driver is refused as version_lock refuses it.
PATTERNS = (
    _candidates.TOOLKIT
    + ("nvidia-fabric*manager*", "libnvsdm*", "nvlsm", "nvidia-imex*", "libnvidia-*")
    + ("kernel", "kernel-core", "kernel-modules*", "kernel-devel*", "kernel-uki-virt*", "kernel-debug*")
    + ("kernel-rt*", "kernel-64k*", "kernel-uek*", "kernel-lt*", "kernel-ml*", "kernel-longterm*")
    + tuple(pattern for pattern in _dnf_candidates.REFUSED if not pattern.startswith("libnvidia-"))
)
_ROW = re.compile(r"^ (\S+)")


def conf(excluded):
    """The text of our file; ``excluded``: the operator's own names."""
    return (
        HEADER
        + "[commands]\nupgrade_type = security\ndownload_updates = yes\napply_updates = yes\nrandom_sleep = 0\n"
        + "[emitters]\nemit_via = stdio\n"
        + "[base]\nexcludepkgs = "
        + ",".join(PATTERNS + tuple(sorted(set(excluded))))
        + "\n"
    )


def read(host):
    """``{dnf: 4|5, installed: bool, conf: str|None, dropin: str|None}``."""
    return {
        "dnf": _dnf.version(host),
        "installed": host.exists(PROGRAM),
        "conf": host.read_text(CONF),
        "dropin": host.read_text(DROPIN),
    }


def assess(state, excluded, difference):
    if not state["installed"]:
        difference.add(PACKAGE, "absent", "installed", "it is what installs security updates", f"Install {PACKAGE}")
    for path, key, text in ((CONF, "conf", conf(excluded)), (DROPIN, "dropin", DROPIN_TEXT)):
        if state[key] != text:
            before = "absent" if state[key] is None else "edited"
            difference.add(path, before, "present", "security updates would move the driver set", f"Write {path}")


def assess_removed(state, difference):
    """For every other mode: nothing of ours may be left."""
    for path, key in ((CONF, "conf"), (DROPIN, "dropin")):
        if state[key] is not None:
            difference.add(path, "present", "absent", "it is for the mode security only", f"Remove {path}")


def write(host, state, excluded):
    for path, text in ((CONF, conf(excluded)), (DROPIN, DROPIN_TEXT)):
        if host.read_text(path) != text:
            host.write(path, text)
    if not state["installed"]:
        result = host.run([_dnf.command(host), "-y", "install", PACKAGE], timeout=1800, changes=True)
        if not result.ok:
            raise ConcernError(
                f"auto_updates: {result.summary()}. Give the host a repository that has {PACKAGE}, or set"
                " auto_updates_state to disabled."
            )


def remove(host):
    host.remove(CONF)
    host.remove(DROPIN)


def touches(name, excluded=()):
    """Whether a package belongs to the set."""
    return name in excluded or _candidates.is_driver(name) or Dnf().group(name, True, ()) is not None


def prove(host, excluded):
    """Let dnf-automatic itself say what it would do: one sentence.

    :raises ConcernError: when it would touch the set; ``details["proof"]`` names the packages.
    """
    argv = [PROGRAM, CONF, "--no-downloadupdates", "--no-installupdates"]
    result = host.run(argv, timeout=DRY_RUN_TIMEOUT)
    if not result.ok:
        raise ConcernError(f"auto_updates: the exclusion is set but cannot be proven: {result.summary()}")
    rows = [match.group(1) for match in map(_ROW.match, result.out.splitlines()) if match]
    names = [name for name in rows if name != "Package"]
    touched = sorted(name for name in names if touches(name, excluded))
    if touched:
        words = ", ".join(touched)
        raise ConcernError(f"auto_updates: dnf-automatic would still upgrade {words}", proof=touched)
    return f"dnf-automatic: {len(names)} packages to upgrade, none of the set"
