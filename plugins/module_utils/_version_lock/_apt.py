# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock on a Debian or Ubuntu host: a dpkg hold and a stanza in our preferences file, because each has a way around
it: aptitude may lift a hold, and dpkg does not know preferences.

A lock here is ``{held: [str], file: str|None, foreign: [stanza]}``; names of a foreign architecture are ``name:arch``.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt, _packages
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _apt_proof, _preferences
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._backend import Backend

#: Seconds for one transaction. A kernel with a driver build for it takes minutes; ending dpkg early breaks the host.
INSTALL_TIMEOUT = 7200
#: Seconds that apt waits for dpkg's lock, beyond our own waiting: somebody may have been faster.
LOCK_TIMEOUT = 300
_MADISON = re.compile(r"^\s*(\S+)\s*\|\s*(\S+)\s*\|", re.MULTILINE)


class Apt(Backend):
    def packages(self, host):
        return [
            {"name": name, "version": package["version"], "broken": package["status"] != "installed"}
            for name, package in by_apt_name(_packages.installed(host)).items()
        ]

    def read(self, host):
        packages = by_apt_name(_packages.installed(host))
        return {
            "held": sorted(name for name, package in packages.items() if package["hold"]),
            "file": host.read_text(_preferences.PATH),
            "foreign": _preferences.foreign(host),
        }

    def assess(self, lock, rows, refuse_drivers, ours, difference):
        text = _wanted_text(rows, refuse_drivers)
        if lock["file"] != text:
            why = "no lock is wanted" if rows is None else "the installed packages ask for it"
            action = ("Remove " if rows is None else "Write ") + _preferences.PATH
            difference.add(_preferences.PATH, _summary(lock["file"]), _summary(text), why, action)
        unheld, stale = self.missing(lock, rows or []), _stale(lock, rows or [], ours)
        if unheld:
            names = ", ".join(unheld)
            difference.add("dpkg holds", "missing: " + names, "held", "an upgrade would move them", "Hold " + names)
        if stale:
            names = ", ".join(stale)
            difference.add("dpkg holds", "ours: " + names, "released", "they are locked no more", "Release " + names)

    def conflicts(self, lock, rows):
        return [
            {
                "name": row["name"],
                "before": row["pin"],
                "why": "{source} pins it to '{pin}' and apt reads that before our file".format(**row),
            }
            for row in _preferences.conflicts(lock["foreign"], rows)
        ]

    def conflict_remedy(self):
        return f"Move such a stanza to a file that sorts after {_preferences.PATH}, or remove it."

    def wait(self, host, seconds):
        _apt.wait_until_free(host, seconds, "version_lock_wait_timeout")

    def missing(self, lock, rows):
        return [row["name"] for row in rows if row["name"] not in lock["held"]]

    def lock(self, host, lock, rows, refuse_drivers, ours):
        _write_preferences(host, _wanted_text(rows, refuse_drivers), lock["file"])
        _mark(host, "hold", self.missing(lock, rows))
        _mark(host, "unhold", _stale(lock, rows, ours))

    def unlock(self, host, lock, ours):
        host.remove(_preferences.PATH)
        _mark(host, "unhold", _stale(lock, [], ours))

    def prove(self, host, rows, refuse_drivers):
        return _apt_proof.prove(host, rows, refuse_drivers)

    def unoffered(self, host, versions):
        result = host.run(["apt-cache", "madison"] + sorted(versions), timeout=120)
        if not result.ok:
            raise ConcernError(f"version_lock: {result.summary()}")
        known = set(_MADISON.findall(result.out))
        return sorted(name for name, version in versions.items() if (name.split(":")[0], version) not in known)

    def refresh(self, host):
        # A repository that has nothing to do with the move may be away: what counts is what is offered afterwards.
        host.run(["apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT}", "update"], timeout=600, changes=True)

    def lift(self, host, lock, names):
        if lock["file"] is not None:
            _write_preferences(host, _preferences.without(lock["file"], names), lock["file"])
        _mark(host, "unhold", [name for name in names if name in lock["held"]])

    def relock(self, host, lock, names):
        packages = by_apt_name(_packages.installed(host))
        if lock["file"] is not None:
            versions = {name: packages[name]["version"] for name in names if name in packages}
            _write_preferences(host, _preferences.repinned(lock["file"], versions), host.read_text(_preferences.PATH))
        held = [name for name in names if name in lock["held"] and name in packages and not packages[name]["hold"]]
        _mark(host, "hold", held)

    def install(self, host, versions, simulate=False):
        argv = ["apt-get", "-y", "--no-remove", "--no-install-recommends"]
        argv += ["--allow-change-held-packages", "--allow-downgrades"]
        if simulate:
            argv += ["-s", "-o", "Debug::NoLocking=true"]
        else:
            # A changed configuration file is kept, without a question that nobody would answer.
            argv += ["-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT}"]
            argv += ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
        argv += ["install"] + [f"{name}={versions[name]}" for name in sorted(versions)]
        return host.run(argv, timeout=300 if simulate else INSTALL_TIMEOUT, changes=not simulate)

    def blockers(self, result, names):
        words = set(re.findall(r"[a-z0-9][a-z0-9+.:-]+", result.out + result.err))
        return [name for name in names if name in words]


def by_apt_name(packages):
    """The installed packages under the names that apt-mark and apt need: ``name:arch`` when foreign."""
    native = {packages[name]["arch"] for name in ("dpkg", "apt") if name in packages}.union({"all"})
    if native == {"all"}:
        native.update(package["arch"] for package in packages.values())
    named = {}
    for key, package in packages.items():
        name = key.split(":")[0]
        named[name if package["arch"] in native else name + ":" + package["arch"]] = package
    return named


def _stale(lock, rows, ours):
    """Holds of ours on what shall not be locked any more."""
    names = [row["name"] for row in rows]
    return [name for name in ours if name in lock["held"] and name not in names]


def _wanted_text(rows, refuse_drivers):
    """Our preferences file as it should be, or None when there should be none."""
    return None if rows is None else _preferences.render(rows, refuse_drivers)


def _summary(text):
    """A preferences text in one short line."""
    if text is None:
        return "absent"
    versions = re.findall(r"^Package: (\S+)\nPin: version (\S+)$", text, re.MULTILINE)
    return "pins " + (", ".join("{}={}".format(*pair) for pair in versions) or "no version")


def _write_preferences(host, text, before):
    """Write our file; when apt does not accept it, put back what was there. apt is never left broken."""
    if text == before:
        return
    host.write(_preferences.PATH, text)
    try:
        _apt_proof.policy(host, [])
    except ConcernError:
        if before is None:
            host.remove(_preferences.PATH)
        else:
            host.write(_preferences.PATH, before)
        raise


def _mark(host, action, names):
    """Hold or release packages, by their explicit names."""
    if not names:
        return
    result = host.run(["apt-mark", action] + names, timeout=60, changes=True)
    if not result.ok:
        raise ConcernError(f"version_lock: {result.summary()}")
