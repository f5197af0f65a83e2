# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The concern ``version_lock``: driver set, container toolkit and kernel stay at the versions that work together.

What is locked is computed from what is installed. A lock is two things, because each has a way around it: a dpkg hold
(which aptitude may lift) and an apt preference (which dpkg does not know).
"""

import json
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt, _packages, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, ConcernError, Difference
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates, _preferences, _proof

#: Which holds are ours, so that only those are lifted again; and the last proof, for the reader.
RECORD = "/var/lib/gpufleet/version_lock.json"
_PACKAGE_NAME = re.compile(r"^[a-z0-9][a-z0-9+.-]+$")


class VersionLock(Concern):
    """The lock is there (``present``), not there (``absent``) or not our business (``unmanaged``)."""

    name = "version_lock"
    options = {
        "state": {"type": "str", "choices": ["present", "absent", "unmanaged"], "default": "present"},
        "kernel": {"type": "bool", "default": True},
        "driver_source": {"type": "str", "choices": ["runfile", "packages"], "default": "runfile"},
        "extra_packages": {"type": "list", "elements": "str", "default": []},
        "wait_timeout": {"type": "int", "default": 300},
    }

    def validate(self, desired):
        if desired["wait_timeout"] < 0:
            raise self.invalid("wait_timeout", f"{desired['wait_timeout']} is negative", "Give seconds, 0 or more.")
        for name in desired["extra_packages"]:
            if not _PACKAGE_NAME.match(name):
                raise self.invalid(
                    "extra_packages",
                    f"{name!r} is not a package name",
                    "Write whole names, without wildcard, version or architecture.",
                )

    def read(self, host, desired):
        manager = _packages.manager(host)
        state = {
            "manager": manager,
            "locked": [],
            "held": [],
            "file": None,
            "foreign": [],
            "record": _read_record(host),
        }
        if manager != "apt":
            return state
        packages = by_apt_name(_packages.installed(host))
        state["locked"] = locked_set(packages, desired["kernel"], desired["extra_packages"])
        state["held"] = sorted(name for name, package in packages.items() if package["hold"])
        state["file"] = host.read_text(_preferences.PATH)
        state["foreign"] = _preferences.foreign(host)
        return state

    def assess(self, state, desired):
        difference = Difference()
        wanted = desired["state"] == "present"
        if state["manager"] != "apt":
            if wanted:
                why = "locks are not supported yet on a host with " + (state["manager"] or "no known package manager")
                action = "Stop: set version_lock_state to unmanaged for this host"
                difference.add("package manager", state["manager"], "apt", why, action)
            return difference
        text = self._wanted_text(state, desired)
        if state["file"] != text:
            before, after = _summary(state["file"]), _summary(text)
            why = "the installed packages ask for it" if wanted else "no lock is wanted"
            action = ("Write " if wanted else "Remove ") + _preferences.PATH
            difference.add(_preferences.PATH, before, after, why, action)
        unheld, stale = _holds(state, wanted)
        if unheld:
            names = ", ".join(unheld)
            difference.add("dpkg holds", "missing: " + names, "held", "an upgrade would move them", "Hold " + names)
        if stale:
            names = ", ".join(stale)
            difference.add("dpkg holds", "ours: " + names, "released", "they are locked no more", "Release " + names)
        for conflict in _conflicts(state) if wanted else []:
            action = "Stop: move the stanza to a file that sorts after " + _preferences.PATH
            difference.add("pin of " + conflict["name"], conflict["pin"], "ours", _read_first(conflict), action)
        return difference

    def apply(self, host, desired, state, difference):
        if state["manager"] != "apt":
            raise ConcernError("version_lock: nothing was changed: " + difference.items[0]["why"])
        if desired["state"] == "present":
            self._refuse_conflicts(state)
        _apt.wait_until_free(host, desired["wait_timeout"], "version_lock_wait_timeout")
        unheld, stale = _holds(state, desired["state"] == "present")
        if desired["state"] == "absent":
            host.remove(_preferences.PATH)
            _mark(host, "unhold", stale)
            host.remove(RECORD)
            return
        # The record comes first: whatever cuts this run off, a hold of ours is known as ours.
        ours = set(state["record"]["held"]).union(unheld)
        _write_record(host, ours, [])
        _write_preferences(host, self._wanted_text(state, desired), state)
        _mark(host, "hold", unheld)
        _mark(host, "unhold", stale)
        proof = _proof.prove(host, state["locked"], desired["driver_source"] == "runfile")
        _write_record(host, ours.intersection(row["name"] for row in state["locked"]), proof)

    def prove(self, host, desired):
        """Ask apt itself, in simulations, whether the lock holds now."""
        if desired["state"] != "present":
            return []
        state = self.read(host, desired)
        if state["manager"] != "apt":
            evidence = "no simulation for a host with " + (state["manager"] or "no known package manager")
            return [
                _verify.check("version_lock_proof", "not_measured", evidence, "Set version_lock_state to unmanaged.")
            ]
        try:
            transcript = _proof.prove(host, state["locked"], desired["driver_source"] == "runfile")
        except ConcernError as error:
            if "proof" in error.details:
                remedy = "Run the version_lock role; it names a stanza or package that is in its way."
                return [_verify.check("version_lock_proof", "fail", str(error), remedy)]
            remedy = "Mend what apt complains about, then verify again."
            return [_verify.check("version_lock_proof", "not_measured", str(error), remedy)]
        evidence = "; ".join("{command}: {result}".format(**step) for step in transcript)
        return [_verify.check("version_lock_proof", "pass", evidence)]

    def returns(self, state, desired):
        return {"locked": state["locked"], "proof": state["record"]["proof"]}

    def _wanted_text(self, state, desired):
        """Our preferences file as it should be, or None when there should be none."""
        if desired["state"] != "present":
            return None
        return _preferences.render(state["locked"], desired["driver_source"] == "runfile")

    def _refuse_conflicts(self, state):
        problems = ["{name}: {why}".format(why=_read_first(row), **row) for row in _conflicts(state)]
        if problems:
            raise ConcernError(
                "version_lock: nothing was changed: {}. Move such a stanza to a file that sorts after {}, or remove"
                " it.".format("; ".join(problems), _preferences.PATH),
                conflicts=problems,
            )


def _conflicts(state):
    return _preferences.conflicts(state["foreign"], state["locked"])


def _read_first(conflict):
    return "{source} pins it to '{pin}' and apt reads that before our file".format(**conflict)


def _holds(state, wanted):
    """(names to hold, holds of ours to release)."""
    names = [row["name"] for row in state["locked"]] if wanted else []
    unheld = [name for name in names if name not in state["held"]]
    return unheld, [name for name in state["record"]["held"] if name in state["held"] and name not in names]


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


def locked_set(packages, kernel, extra):
    """The packages to lock, from what is installed.

    :param packages: what :func:`by_apt_name` returns: name -> ``{version, arch, status, hold}``.
    :returns: list of ``{name, version, group}``, sorted by group and name.
    """
    groups = {name: _candidates.group(name.split(":")[0], kernel, extra) for name in packages}
    rows = [
        {"name": name, "version": packages[name]["version"], "group": group} for name, group in groups.items() if group
    ]
    return sorted(rows, key=lambda row: (row["group"], row["name"]))


def _summary(text):
    """A preferences text in one short line."""
    if text is None:
        return "absent"
    versions = re.findall(r"^Package: (\S+)\nPin: version (\S+)$", text, re.MULTILINE)
    return "pins " + (", ".join("{}={}".format(*pair) for pair in versions) or "no version")


def _write_preferences(host, text, state):
    """Write our file; when apt does not accept it, put back what was there. apt is never left broken."""
    if text == state["file"]:
        return
    host.write(_preferences.PATH, text)
    try:
        _proof.policy(host, [row["name"] for row in state["locked"]])
    except ConcernError:
        if state["file"] is None:
            host.remove(_preferences.PATH)
        else:
            host.write(_preferences.PATH, state["file"])
        raise


def _mark(host, action, names):
    """Hold or release packages, by their explicit names."""
    if not names:
        return
    result = host.run(["apt-mark", action] + names, timeout=60, changes=True)
    if not result.ok:
        raise ConcernError(f"version_lock: {result.summary()}")


def _read_record(host):
    try:
        return dict({"held": [], "proof": []}, **json.loads(host.read_text(RECORD) or "{}"))
    except ValueError:
        return {"held": [], "proof": []}


def _write_record(host, held, proof):
    host.write(RECORD, json.dumps({"held": sorted(held), "proof": proof}, indent=2, sort_keys=True) + "\n")
