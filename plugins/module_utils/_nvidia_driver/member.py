# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a member of the version set: what changes, and goes back, together with the driver.

A member (the fabric manager, a display manager that has to make room) is a subclass of :class:`Member` in a file of its
own, named in :data:`members.MEMBERS`. The transaction of :mod:`install` calls its hooks in this order:

    read, assess, refusals     before anything is changed, in check mode too
    stops                      phase ``unload``: which units have to make room before the driver on disk is replaced
    unit_of                    while the driver is freed: which unit to stop for a process that holds it
    install                    phase ``members``: the driver is on disk for every kernel, nothing is loaded
    start                      phase ``load``: the wanted driver is loaded
    verify                     phase ``verify``: the last look; a problem here sends the whole set back
    put_back                   on the way back: the earlier driver is on disk again, nothing is loaded
    withdraw                   the driver leaves the host

Whatever unit the transaction stops because of ``stops`` or ``unit_of`` it starts again itself, on every way out. A
hook fails by raising ``ConcernError``; the transaction then goes back and tells both reasons.
"""


class Member:
    """A member that wants nothing; a subclass overrides what it needs. It keeps no state of its own between calls."""

    #: Its key in ``state["members"]`` and in the last-good set.
    name = ""
    #: Options that it adds to the concern's desired document (argument spec).
    options: dict = {}
    #: Units (without ``.service``) of :meth:`stops` that are started again without a driver, too.
    independent: tuple = ()
    #: Folders of what the way back needs; ``absent`` removes them at its very end.
    folders: tuple = ()

    def validate(self, desired, invalid):
        """Refuse values of its options; ``invalid(option, problem, remedy)`` makes the error to raise."""

    def read(self, host, desired):
        """What is true now: a JSON-able dict, kept at ``state["members"][self.name]``. Changes nothing."""
        return {}

    def assess(self, difference, state, desired):
        """Add what :meth:`install` or :meth:`start` would change. Pure; ``state`` is the concern's whole state."""

    def refusals(self, state, desired):
        """Reasons not to begin, each naming the variable that allows it or the remedy. Pure.

        :returns: list of sentences, [] when nothing speaks against it.
        """
        return []

    def stops(self, state, desired):
        """Units (without ``.service``) to stop before the driver on disk is replaced, whatever they hold. Pure."""
        return []

    def unit_of(self, process, desired):
        """The unit (without ``.service``) that may be stopped for the change and ends this process with it, or None.

        A process for which every member answers None is somebody's work: the change is refused and names it.

        :param process: ``{pid, command, unit, container}``, see :func:`unload.read`.
        """

    def install(self, host, desired, state):
        """Bring it to the wanted version and make it start at boot. May be called again after it was cut off."""

    def start(self, host, desired, state):
        """Start it; the wanted driver is loaded. Not called when only the next boot loads the driver."""

    def verify(self, host, desired):
        """What does not work with the loaded driver: list of sentences, [] when all is well."""
        return []

    def kept(self, state):
        """What :meth:`put_back` needs to restore it as it is now: a JSON-able dict, written to the last-good set.

        Its key ``options`` is a dict of this member's options that describe what is there now.
        """
        return {}

    def put_back(self, host, kept):
        """Restore what :meth:`kept` described. May be called again after it was cut off.

        :returns: list of what could not be restored, [] when all was.
        """
        return []

    def prune(self, host, kept):
        """A change has ended well: let go of what neither the present driver nor the way back needs.

        :param kept: the last-good set's part, from :meth:`kept`; None when there is no such set.
        """

    def withdraw(self, host):
        """Remove what this collection put on the host for it.

        :returns: ``(what was done, what failed)``, two lists of phrases.
        """
        return [], []
