# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the concern needs from a package manager. One subclass each: ``_apt.Apt``, ``_dnf.Dnf``.

The concern decides *what* is locked; the backend knows *how* a lock is written, read and tried. The words:

* a **row** is one package to lock: ``{name: str, version: str, group: str, broken: bool}``. ``name`` and ``version``
  are written as the package manager's own command line takes them. Of a package that may be installed several times (a
  kernel on rpm) there is one row a version;
* a **lock** is what :meth:`Backend.read` returns: a JSON-able dict that only the backend looks into. It is kept in the
  journal of a lift, so it must hold all that :meth:`Backend.relock` needs;
* **ours** are the names that this role had locked, from its record: what somebody else locked is never released.

Everything but :meth:`lock`, :meth:`unlock`, :meth:`lift`, :meth:`relock`, :meth:`refresh` and :meth:`install` leaves
the host as it is. ``read``, ``packages`` and ``assess`` run no tool: they are part of the one-round-trip assessment.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates


class Backend:
    """The interface; every method of a subclass raises ``ConcernError`` for a failed command."""

    def group(self, name, kernel, extra):
        """Why a package is locked (``toolkit``, ``fabric``, ``driver``, ``kernel``, ``extra``) or None; the patterns
        of ``_candidates`` know both families' driver and toolkit, a subclass adds its own kernel packages."""
        return _candidates.group(name.split(":")[0], kernel, extra)

    def packages(self, host):
        """What is installed: list of ``{name, version, broken}``; ``broken``: unpacked or half-configured only."""
        raise NotImplementedError

    def read(self, host):
        """The lock as it is now, foreign entries included; see the module's words."""
        raise NotImplementedError

    def assess(self, lock, rows, refuse_drivers, ours, difference):
        """Add to ``difference`` what keeps ``rows`` from being locked, and entries of ours that are locked too much.

        :param rows: what shall be locked; None when no lock is wanted.
        :param refuse_drivers: whether packages that bring a driver (``_candidates.is_driver``) are refused.
        """
        raise NotImplementedError

    def conflicts(self, lock, rows):
        """Others' settings that contradict the lock and that only their owner can move: ``[{name, before, why}]``."""
        raise NotImplementedError

    def conflict_remedy(self):
        """What the owner of such a setting shall do: one sentence."""
        raise NotImplementedError

    def wait(self, host, seconds):
        """Wait until no package operation runs; raise after ``seconds`` and name the holder. Nothing is killed."""
        raise NotImplementedError

    def missing(self, lock, rows):
        """Names of the rows that nobody has locked yet: those become ours."""
        raise NotImplementedError

    def lock(self, host, lock, rows, refuse_drivers, ours):
        """Lock exactly ``rows``, and release what is ours and not among them. Never leaves the manager broken."""
        raise NotImplementedError

    def unlock(self, host, lock, ours):
        """Remove our lock: our files, and what is ours among the shared lists."""
        raise NotImplementedError

    def prove(self, host, rows, refuse_drivers):
        """Ask the package manager: would a full upgrade, or the installation of a likely offender, touch a row?

        :returns: the transcript: list of ``{command: str, result: str}``.
        :raises ConcernError: when it would; the transcript is in ``details["proof"]``.
        """
        raise NotImplementedError

    # -- a move: lift, one transaction, lock again (see _move) ---------------------------------------------------

    def unoffered(self, host, versions):
        """Which of ``versions`` (name -> version) the repositories, as this host last saw them, do not offer: names."""
        raise NotImplementedError

    def refresh(self, host):
        """Fetch the repositories' indexes."""
        raise NotImplementedError

    def lift(self, host, lock, names):
        """Release these names, whoever locked them, and nothing else; ``lock`` is what :meth:`read` returned."""
        raise NotImplementedError

    def relock(self, host, lock, names):
        """Lock these names again as ``lock`` had them, at the versions that are installed now. May be repeated."""
        raise NotImplementedError

    def install(self, host, versions, simulate=False):
        """One transaction that brings exactly these versions, up or down, removes nothing; the command's ``Result``.

        With ``simulate`` nothing is changed and locks of the moving packages are looked over.
        """
        raise NotImplementedError

    def blockers(self, result, names):
        """Which of ``names`` a failed :meth:`install` (its ``Result``) tells to be in its way."""
        raise NotImplementedError
