# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the version set on a host: which are there, which are in the way, and changing them in one step."""

import json
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf, _packages
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import version_set

#: Names of the packages that were installed here, so that no other is ever removed.
RECORD = "/var/lib/gpufleet/driver/fabric.json"
INSTALL_TIMEOUT = 1800
#: What may not change along with the set: a second driver, or the container toolkit.
_RELATED = re.compile(r"nvidia|cuda|libnv")
_CHANGE = re.compile(r"^(?:Inst|Remv|Purg) (\S+)", re.MULTILINE)
_APT = (
    *("apt-get", "install", "--yes", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"),
    *("-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Options::=--force-confold"),
)


def read(host, manager, parts):
    """What the host has of each part, and for one that does not fit, what its repositories have.

    :param parts: from :func:`version_set.resolve`.
    :returns: the parts with more keys: ``installed`` and ``offer``, ``[name, version]`` or None; ``fits``; ``known``
        (False: what the repositories have cannot be told); ``offered``, versions; ``others``, name -> version of the
        same software of another branch, which has to go.
    """
    found = []
    for part in parts:
        installed = _installed(host, part["names"])
        good = installed is not None and version_set.fits(part, installed[1])
        found.append(dict(part, installed=installed, fits=good, offer=None, known=True, offered=[], others={}))
    lacking = [part for part in found if not part["fits"]]
    if lacking:
        offered = version_set.offers(host, manager, [name for part in lacking for name in part["names"]])
        for part in lacking:
            choice = version_set.choose(part, offered or {})
            part["known"] = offered is not None
            part["offer"] = list(choice) if choice else None
            part["offered"] = [version for name in part["names"] for version in (offered or {}).get(name, [])]
            part["others"] = _others(host, part["names"], choice)
    return found


def _installed(host, names):
    packages = _packages.installed(host)
    return next(
        ([name, packages[name]["version"]] for name in names if packages.get(name, {}).get("status") == "installed"),
        None,
    )


def _others(host, names, choice):
    """Installed packages of the same software under another branch's name."""
    base = re.sub(r"-\d+$", "", names[0])
    same = re.compile(r"(%s|%s)(-\d+)?" % (re.escape(base), re.escape(version_set.RPM_NAMES.get(base, base))))
    return {
        name: package["version"]
        for name, package in sorted(_packages.installed(host).items())
        if same.fullmatch(name) and (not choice or name != choice[0])
    }


def has(host, base):
    """True when a package of this software is on the host, of whatever branch."""
    return bool(_others(host, [base], None))


def change(host, manager, wanted, unwanted):
    """Install ``wanted`` (name -> full version, None for the newest) and remove ``unwanted`` (names), in one step.

    :raises ConcernError: when that is not possible, or (apt) when it would touch a driver's packages too.
    """
    if manager == "dnf":
        steps = [("install", [_pinned(name, wanted[name], "-") for name in sorted(wanted)]), ("remove", unwanted)]
        commands = [[_dnf.command(host), "--assumeyes", action] + names for action, names in steps if names]
    else:
        words = [_pinned(name, wanted[name], "=") for name in sorted(wanted)] + [name + "-" for name in unwanted]
        _simulate(host, words, set(wanted) | set(unwanted))
        commands = [list(_APT) + words]
    for argv in commands:
        answer = host.run(argv, timeout=INSTALL_TIMEOUT, changes=True)
        if not answer.ok:
            raise ConcernError("nvidia_driver: %s" % answer.summary())


def _pinned(name, version, sign):
    return name + sign + version if version else name


def _simulate(host, words, expected):
    argv = [_APT[0], "--simulate", *_APT[1:], *words]
    answer = host.run(argv, timeout=300)
    if not answer.ok:
        raise ConcernError("nvidia_driver: the version set cannot be installed: %s" % answer.summary())
    also = sorted({name for name in _CHANGE.findall(answer.out) if _RELATED.search(name)} - expected)
    if also:
        raise ConcernError(
            "nvidia_driver: installing %s would also change %s, which would mix with the runfile's driver. Use a "
            "repository whose packages do not depend on a driver" % (" ".join(words), ", ".join(also))
        )


def remembered(host):
    """Names of the packages that this role installed."""
    try:
        names = json.loads(host.read_text(RECORD) or "[]")
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def remember(host, names):
    """Note names before they are installed, so that a run that is cut off leaves none unknown."""
    known = remembered(host)
    added = [name for name in names if name not in known and name not in _packages.installed(host)]
    if added:
        host.write(RECORD, json.dumps(sorted(known + added)) + "\n")
