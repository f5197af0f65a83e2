# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the version set on a host: which are there, which are in the way, and changing them in one step.

With apt, the files of what is installed and of what it replaced stay in :data:`DIRECTORY`, as the runfiles do: the way
back asks no repository, which may have dropped the version meanwhile.
"""

import json
import os
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf, _packages
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import version_set

#: Names of the packages that were installed here, so that no other is ever removed.
RECORD = "/var/lib/gpufleet/driver/fabric.json"
#: Package files, under apt's own names.
DIRECTORY = "/var/lib/gpufleet/packages"
INSTALL_TIMEOUT = 1800
#: What may not change along with the set: a second driver, or the container toolkit.
_RELATED = re.compile(r"nvidia|cuda|libnv")
_CHANGE = re.compile(r"^(?:Inst|Remv|Purg) (\S+)", re.MULTILINE)
_APT = (
    *("apt-get", "install", "--yes", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"),
    *("-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Options::=--force-confold"),
    *("-o", "Dir::Cache::archives=" + DIRECTORY, "-o", "APT::Keep-Downloaded-Packages=true"),
)


def read(host, manager, parts):
    """What the host has of each part, and for one that does not fit, what its repositories have.

    :param parts: from :func:`version_set.resolve`.
    :returns: the parts with more keys: ``installed`` and ``offer``, ``[name, version]`` or None; ``fits``; ``known``
        (False: what the repositories have cannot be told); ``offered``, versions; ``others``, name -> version of the
        same software of another branch, which has to go; ``lost``, name -> version of what has to go and could not be
        had again: it is neither kept here nor in a repository.
    """
    found = []
    for part in parts:
        installed = _installed(host, part["names"])
        good = installed is not None and version_set.fits(part, installed[1])
        found.append(dict(part, installed=installed, fits=good, offer=None, known=True, offered=[], others={}, lost={}))
    lacking = [part for part in found if not part["fits"]]
    offered = _offered(host, manager, lacking) if lacking else {}
    for part in lacking:
        choice = version_set.choose(part, offered or {})
        part["known"] = offered is not None
        part["offer"] = list(choice) if choice else None
        part["offered"] = [version for name in part["names"] for version in (offered or {}).get(name, [])]
        part["others"] = _others(host, part["names"], choice)
        going = leaving(part).items() if part["known"] else ()
        part["lost"] = {name: version for name, version in going if version not in offered.get(name, ())}
    return found


def _offered(host, manager, lacking):
    """What can be had, as :func:`version_set.offers` answers: from the repositories, and from the files kept here.

    The repositories are not asked where all of it is kept: a way back works without them.
    """
    here = {name: list(files) for name, files in kept(host).items()}
    going = {name: version for part in lacking for name, version in _present(host, part["names"]).items()}
    enough = all(version_set.choose(part, here) for part in lacking)
    if enough and all(version in here.get(name, ()) for name, version in going.items()):
        return here
    names = [name for part in lacking for name in part["names"]]
    found = version_set.offers(host, manager, names + sorted(set(going) - set(names)))
    if found is None:
        return here if enough else None
    return {name: found.get(name, []) + here.get(name, []) for name in {**found, **here}}


def leaving(part):
    """name -> version of what a change takes away for this part: another branch's package, or another version's."""
    present = dict([part["installed"]]) if part["installed"] else {}
    return {**present, **part["others"]}


def kept(host):
    """name -> {version: path} of the package files on this host."""
    found: dict = {}
    for path in host.glob(DIRECTORY + "/*_*.deb"):
        name, version = os.path.basename(path).split("_")[:2]
        found.setdefault(name, {})[version.replace("%3a", ":")] = path  # apt spells an epoch's colon so
    return found


def keep(host, packages):
    """Fetch the files of installed packages (name -> version) that are not kept yet, before they are replaced.

    :raises ConcernError: when one cannot be had; nothing was changed then.
    """
    due = _not_kept(host, packages)
    if not due:
        return
    host.makedirs(DIRECTORY + "/partial")
    answer = host.run([*_APT, "--reinstall", "--download-only", *_words(due)], timeout=INSTALL_TIMEOUT, changes=True)
    left = _not_kept(host, due)
    if not answer.ok or left:
        raise ConcernError(
            "nvidia_driver: %s cannot be kept for the way back: %s" % (" ".join(_words(left or due)), answer.summary())
        )


def _not_kept(host, packages):
    here = kept(host)
    return {name: version for name, version in packages.items() if version not in here.get(name, ())}


def _words(packages):
    return [_pinned(name, packages[name], "=") for name in sorted(packages)]


def prune(host, needed):
    """Remove the kept files of all but these packages: ``needed`` is a list of dicts name -> version."""
    for name, files in kept(host).items():
        for version, path in files.items():
            if version not in {packages.get(name) for packages in needed}:
                host.remove(path)


def _installed(host, names):
    packages = _packages.installed(host)
    return next(
        ([name, packages[name]["version"]] for name in names if packages.get(name, {}).get("status") == "installed"),
        None,
    )


def _others(host, names, choice):
    """Installed packages of the same software under another branch's name."""
    present = _present(host, names)
    return {name: present[name] for name in present if not choice or name != choice[0]}


def _present(host, names):
    """Installed packages of this software, of whatever branch: name -> version."""
    base = re.sub(r"-\d+$", "", names[0])
    same = re.compile(r"(%s|%s)(-\d+)?" % (re.escape(base), re.escape(version_set.RPM_NAMES.get(base, base))))
    return {
        name: package["version"] for name, package in sorted(_packages.installed(host).items()) if same.fullmatch(name)
    }


def has(host, base):
    """True when a package of this software is on the host, of whatever branch."""
    return bool(_present(host, [base]))


def change(host, manager, wanted, unwanted):
    """Install ``wanted`` (name -> full version, None for the newest) and remove ``unwanted`` (names), in one step.

    :raises ConcernError: when that is not possible, or (apt) when it would touch a driver's packages too.
    """
    if manager == "dnf":
        steps = [("install", [_pinned(name, wanted[name], "-") for name in sorted(wanted)]), ("remove", unwanted)]
        commands = [[_dnf.command(host), "--assumeyes", action] + names for action, names in steps if names]
    else:
        here = kept(host)
        words = [here.get(name, {}).get(wanted[name]) or _pinned(name, wanted[name], "=") for name in sorted(wanted)]
        words += [name + "-" for name in unwanted]
        _simulate(host, words, set(wanted) | set(unwanted))
        host.makedirs(DIRECTORY + "/partial")
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
