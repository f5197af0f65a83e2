# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""unattended-upgrades in the mode ``security``: it stays on, and leaves the driver set and the kernel alone.

Its Package-Blacklist holds Python regular expressions which it matches at the beginning of a package's name, so each
of ours is anchored at both ends. The rules are those of ``version_lock``: they also cover what is not installed yet,
such as the next kernel. What is upgraded at all (the origins) is the distribution's and the operator's choice.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates

PACKAGE = "unattended-upgrades"
PROGRAM = "/usr/bin/unattended-upgrade"
BLACKLIST = "Unattended-Upgrade::Package-Blacklist"
#: Fetching what would be upgraded is part of the dry run.
DRY_RUN_TIMEOUT = 1800
_ENTRY = re.compile("^" + BLACKLIST + ':: "(.*)";$', re.MULTILINE)
_UPGRADED = re.compile(r"^Packages that will be upgraded:(.*)$", re.MULTILINE)


def blacklist(excluded=()):
    """The regular expressions, anchored; ``excluded``: the operator's own names."""
    rules = [
        "|".join(re.escape(name) for name in _candidates.TOOLKIT),
        _candidates.FABRIC.pattern,
        _candidates.KERNEL.pattern,
        _candidates.DRIVER.pattern,
        "libnvidia-.+",
    ]
    return [f"^({rule})$" for rule in rules] + [f"^{re.escape(name)}$" for name in sorted(set(excluded))]


def excludes(name, excluded=()):
    """Whether a package is left alone, by the way in which unattended-upgrades itself decides."""
    return any(re.match(pattern, name) for pattern in blacklist(excluded))


def read(host):
    return {"installed": host.exists(PROGRAM)}


def assess(state, difference):
    if not state["installed"]:
        difference.add(PACKAGE, "absent", "installed", "it is what installs security updates", f"Install {PACKAGE}")


def install(host, state):
    if state["installed"]:
        return
    # The lists may be months old where updates were off; whether that worked shows in the installation.
    host.run(["apt-get", "-o", "DPkg::Lock::Timeout=300", "update"], timeout=600, changes=True)
    argv = ["apt-get", "-y", "--no-remove", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "install"]
    result = host.run(argv + [PACKAGE], timeout=1800, changes=True)
    if not result.ok:
        raise ConcernError(
            f"auto_updates: {result.summary()}. Give the host a repository that has {PACKAGE}, or set"
            " auto_updates_state to disabled."
        )


def missing(dump, excluded):
    """Our expressions that ``apt-config dump`` does not show."""
    found = set(_ENTRY.findall(dump))
    return [f"{BLACKLIST} {pattern}" for pattern in blacklist(excluded) if pattern not in found]


def prove(host, excluded):
    """Let unattended-upgrade itself say what it would do: one sentence.

    :raises ConcernError: when it would touch the set; ``details["proof"]`` names the packages.
    """
    result = host.run(["unattended-upgrade", "--dry-run", "--debug"], timeout=DRY_RUN_TIMEOUT)
    if not result.ok:
        raise ConcernError(f"auto_updates: the exclusion is set but cannot be proven: {result.summary()}")
    names = [name for line in _UPGRADED.findall(result.out + result.err) for name in line.split()]
    touched = sorted(name for name in names if excludes(name, excluded))
    if touched:
        words = ", ".join(touched)
        raise ConcernError(f"auto_updates: unattended-upgrade would still upgrade {words}", proof=touched)
    return f"unattended-upgrade --dry-run: {len(names)} packages to upgrade, none of the set"
