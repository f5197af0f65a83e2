# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The concern ``version_lock``: driver set, container toolkit and kernel stay at the versions that work together.

What is locked is computed from what is installed; how, is the package manager's matter: see :mod:`_backend` for the
interface between the two and :mod:`_move` for the way to another version.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _packages, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, ConcernError, Difference
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates, _move, _record
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._apt import Apt
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._dnf import Dnf

#: What ``_packages.manager`` answers -> the backend.
BACKENDS = {"apt": Apt(), "dnf": Dnf()}
_PACKAGE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_+.-]+$")
#: A version of dpkg or rpm, written out: no wildcard, no relation.
_VERSION = re.compile(r"^[0-9A-Za-z][0-9A-Za-z.+~^:_-]*$")


def backend_of(host):
    """The host's :class:`_backend.Backend`, or None for a package manager that has none."""
    return BACKENDS.get(_packages.manager(host))


class VersionLock(Concern):
    """The lock is there (``present``), not there (``absent``) or not our business (``unmanaged``)."""

    name = "version_lock"
    options = {
        "state": {"type": "str", "choices": ["present", "absent", "unmanaged"], "default": "present"},
        "kernel": {"type": "bool", "default": True},
        "driver_source": {"type": "str", "choices": ["runfile", "packages"], "default": "runfile"},
        "extra_packages": {"type": "list", "elements": "str", "default": []},
        "versions": {"type": "dict", "default": {}},
        "wait_timeout": {"type": "int", "default": 300},
    }

    def validate(self, desired):
        if desired["wait_timeout"] < 0:
            raise self.invalid("wait_timeout", f"{desired['wait_timeout']} is negative", "Give seconds, 0 or more.")
        for option in ("extra_packages", "versions"):
            for name in desired[option]:
                if not _PACKAGE_NAME.match(name):
                    raise self.invalid(
                        option,
                        f"{name!r} is not a package name",
                        "Write whole names, without wildcard, version or architecture.",
                    )
        for name, version in desired["versions"].items():
            if not isinstance(version, str) or not _VERSION.match(version):
                raise self.invalid(
                    "versions",
                    f"{version!r} is not a version of {name}",
                    "Write one whole version in quotes, as the repository spells it, without wildcard.",
                )
        if desired["versions"] and desired["state"] == "absent":
            raise self.invalid("versions", "there is no lock to move", "Set version_lock_state to present.")

    def read(self, host, desired):
        state = {"manager": _packages.manager(host), "locked": [], "lock": None, "record": _record.read(host)}
        backend = backend_of(host)
        if backend is not None:
            packages = backend.packages(host)
            state["locked"] = locked_set(backend, packages, desired["kernel"], desired["extra_packages"])
            state["lock"] = backend.read(host)
        return state

    def assess(self, state, desired):
        difference = Difference()
        wanted = desired["state"] == "present"
        backend = BACKENDS.get(state["manager"])
        if backend is None:
            if wanted:
                why = "locks are not supported on a host with " + (state["manager"] or "no known package manager")
                action = "Stop: set version_lock_state to unmanaged for this host"
                difference.add("package manager", state["manager"], " or ".join(sorted(BACKENDS)), why, action)
            return difference
        journal = state["record"]["lifted"]
        if journal:
            names = ", ".join(sorted(journal["versions"]))
            why = "the lock was lifted by a run that did not end"
            difference.add("lock of " + names, "lifted", "in force", why, f"Lock {names} again")
        rows = wanted_rows(backend, state["locked"], desired) if wanted else None
        for row in _moves(state["locked"], desired):
            self._assess_move(row, difference)
        backend.assess(state["lock"], rows, desired["driver_source"] == "runfile", state["record"]["held"], difference)
        for problem in _problems(backend, state, desired):
            difference.add(
                problem["what"], problem["before"], problem["after"], problem["why"], "Stop: " + problem["remedy"]
            )
        return difference

    def _assess_move(self, row, difference):
        if row["before"] == row["version"]:
            why, before = "its installation was cut off", row["before"] + ", not configured"
        else:
            why, before = "version_lock_versions names it", row["before"] or "not installed"
        action = "Lift the lock of {name}, install {version}, lock it again".format(**row)
        difference.add("version of " + row["name"], before, row["version"], why, action)

    def apply(self, host, desired, state, difference):
        backend = backend_of(host)
        if backend is None:
            raise ConcernError("version_lock: nothing was changed: " + difference.items[0]["why"])
        problems = ["{what}: {why}. {remedy}".format(**row) for row in _problems(backend, state, desired)]
        if problems:
            raise ConcernError("version_lock: nothing was changed: " + " ".join(problems), conflicts=problems)
        backend.wait(host, desired["wait_timeout"])
        if _move.recover(host, backend):
            state = self.read(host, desired)
        if desired["state"] == "absent":
            backend.unlock(host, state["lock"], state["record"]["held"])
            _record.forget(host)
            return
        # What is installed is locked first, so that a move that fails leaves it locked.
        ours = self._lock(host, desired, state)
        moves = {row["name"]: row["version"] for row in _moves(state["locked"], desired)}
        if moves:
            _move.move(host, backend, moves, state["locked"])
            host.forget()
            state = self.read(host, desired)
            ours = self._lock(host, desired, state)
        proof = backend.prove(host, state["locked"], desired["driver_source"] == "runfile")
        _record.update(host, held=sorted(ours.intersection(row["name"] for row in state["locked"])), proof=proof)

    def _lock(self, host, desired, state):
        """Lock what is installed; the names that are ours afterwards, those just released included."""
        backend, rows, refuse = backend_of(host), state["locked"], desired["driver_source"] == "runfile"
        needed = Difference()
        backend.assess(state["lock"], rows, refuse, state["record"]["held"], needed)
        if not needed.changed:
            return set(state["record"]["held"])
        # The record comes first: whatever cuts this run off, a lock of ours is known as ours.
        ours = set(state["record"]["held"]).union(backend.missing(state["lock"], rows))
        _record.update(host, held=sorted(ours), proof=[])
        backend.lock(host, state["lock"], rows, refuse, state["record"]["held"])
        return ours

    def prove(self, host, desired):
        """Ask the package manager itself, in simulations, whether the lock holds now."""
        if desired["state"] != "present":
            return []
        state = self.read(host, desired)
        backend = backend_of(host)
        if backend is None:
            evidence = "no simulation for a host with " + (state["manager"] or "no known package manager")
            return [
                _verify.check("version_lock_proof", "not_measured", evidence, "Set version_lock_state to unmanaged.")
            ]
        try:
            transcript = backend.prove(host, state["locked"], desired["driver_source"] == "runfile")
        except ConcernError as error:
            if "proof" in error.details:
                remedy = "Run the version_lock role; it names a stanza or package that is in its way."
                return [_verify.check("version_lock_proof", "fail", str(error), remedy)]
            remedy = "Mend what the package manager complains about, then verify again."
            return [_verify.check("version_lock_proof", "not_measured", str(error), remedy)]
        evidence = "; ".join("{command}: {result}".format(**step) for step in transcript)
        return [_verify.check("version_lock_proof", "pass", evidence)]

    def returns(self, state, desired):
        return {"locked": [_public(row) for row in state["locked"]], "proof": state["record"]["proof"]}


def _public(row):
    return {key: row[key] for key in ("name", "version", "group")}


def locked_set(backend, packages, kernel, extra):
    """The rows to lock, from what is installed (:meth:`_backend.Backend.packages`), sorted by group and name."""
    rows = [dict(package, group=backend.group(package["name"], kernel, extra)) for package in packages]
    return sorted((row for row in rows if row["group"]), key=lambda row: (row["group"], row["name"], row["version"]))


def _moves(locked, desired):
    """Packages of ``version_lock_versions`` that are not wholly at that version: ``[{name, version, before}]``."""
    whole = {(row["name"], row["version"]) for row in locked if not row["broken"]}
    before = {row["name"]: row["version"] for row in locked}
    return [
        {"name": name, "version": version, "before": before.get(name)}
        for name, version in sorted(desired["versions"].items())
        if (name, version) not in whole
    ]


def wanted_rows(backend, locked, desired):
    """The rows as they are after the moves."""
    moves = {row["name"]: row["version"] for row in _moves(locked, desired)}
    packages = [row for row in locked if row["name"] not in moves]
    packages += [{"name": name, "version": version, "broken": False} for name, version in moves.items()]
    return locked_set(backend, packages, desired["kernel"], desired["extra_packages"])


def _problems(backend, state, desired):
    """What only an operator can settle: list of ``{what, before, after, why, remedy}``."""
    if desired["state"] != "present":
        return []
    found = [
        dict(row, what="pin of " + row["name"], after="ours", remedy=backend.conflict_remedy())
        for row in backend.conflicts(state["lock"], state["locked"])
    ]
    for name, version in sorted(desired["versions"].items()):
        group = backend.group(name, desired["kernel"], desired["extra_packages"])
        problem = {"what": "version_lock_versions", "before": name, "after": version}
        if group is None:
            why = f"{name} is not a package that this role locks"
            found.append(dict(problem, why=why, remedy="Add it to version_lock_extra_packages, or leave it out."))
        elif group == "driver" and _candidates.is_driver(name) and desired["driver_source"] == "runfile":
            why = f"{name} would bring a second driver in beside the runfile's"
            found.append(dict(problem, why=why, remedy="Leave it out, or set version_lock_driver_source to packages."))
    return found
