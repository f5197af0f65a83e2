# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring locked packages to named versions: lift exactly their locks, one transaction, lock again whatever happens.

For every role that installs packages of the set: ``move(host, backend_of(host), {"nvlsm": "2025.03.1-1"})``. It
works with and without a lock on the host, and leaves everything that it does not name as it was.

The journal (``lifted`` in the record) is on disk before the lift and gone after the locks are back:
``{versions: {name: str}, before: {name: str|None}, lock: what Backend.read returned}``.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _record


def installed(backend, host, names):
    """name -> installed version, None for a package that is not installed."""
    found = {row["name"]: row["version"] for row in backend.packages(host)}
    return {name: found.get(name) for name in names}


def recover(host, backend):
    """Lock again what a run had lifted that did not end; its journal says what. True when there was one."""
    journal = _record.read(host)["lifted"]
    if journal:
        backend.relock(host, journal["lock"], sorted(journal["versions"]))
        _record.update(host, lifted=None)
    return bool(journal)


def move(host, backend, versions, locked=(), variable="version_lock_versions"):
    """Install exactly ``versions`` (name -> version) in one transaction, over the locks of these packages only.

    :param backend: the host's ``_backend.Backend``; the caller has waited for running package operations.
    :param locked: the rows of the lock, for the error message.
    :param variable: the public variable that names the versions, for the error message.
    :raises ConcernError: naming what blocks; the versions before and after are in ``details``, the locks are back.
    """
    recover(host, backend)
    names = sorted(versions)
    before = installed(backend, host, names)
    _refuse_unknown(host, backend, versions, variable)
    # Tried before the lift: what cannot work is refused while everything is still in place.
    trial = backend.install(host, versions, simulate=True)
    if not trial.ok:
        raise _failure(trial, backend, versions, before, before, locked, variable)
    lock = backend.read(host)
    _record.update(host, lifted={"versions": versions, "before": before, "lock": lock})
    try:
        backend.lift(host, lock, names)
        result = backend.install(host, versions)
    finally:
        host.forget()
        recover(host, backend)
    after = installed(backend, host, names)
    if not result.ok:
        raise _failure(result, backend, versions, before, after, locked, variable)
    if after != versions:
        raise ConcernError(
            f"{variable}: the transaction ended well, but installed are {_words(after)} instead of {_words(versions)}."
            " The locks are in force.",
            before=before,
            after=after,
        )


def _refuse_unknown(host, backend, versions, variable):
    missing = backend.unoffered(host, versions)
    if not missing:
        return
    backend.refresh(host)  # automatic list updates are off on these hosts: the lists may be months old
    missing = backend.unoffered(host, versions)
    if missing:
        names = _words({name: versions[name] for name in missing})
        raise ConcernError(
            f"{variable}: nothing was changed: no repository of this host offers {names}. Add the repository, or"
            " correct the variable."
        )


def _failure(result, backend, versions, before, after, locked, variable):
    """The error for a command that failed: what the package manager said, what is installed, what blocks."""
    others = {row["name"]: row["version"] for row in locked if row["name"] not in versions}
    blockers = {name: others[name] for name in backend.blockers(result, sorted(others))}
    message = [
        f"{variable}: {_words(versions)} cannot be installed: {result.summary(lines=8)}.",
        "Nothing was changed" if after == before else f"Installed now: {_words(after)}; before: {_words(before)}",
        "and the locks are in force.",
    ]
    if blockers:
        message.append(
            f"In the way are locked packages: {_words(blockers)}. What belongs together goes into {variable} together,"
            " so that it moves in one transaction."
        )
    return ConcernError(" ".join(message), before=before, after=after, blockers=sorted(blockers))


def _words(versions):
    return ", ".join(f"{name}={versions[name] or '(not installed)'}" for name in sorted(versions))
