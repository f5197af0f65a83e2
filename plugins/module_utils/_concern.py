# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assess, then act: the shape that every concern of a host shares.

A concern reads what is true (:meth:`Concern.read`), says what differs from what is wanted (:meth:`Concern.assess`,
a pure function) and makes it so (:meth:`Concern.apply`). Its own module runs all three; ``gpu_assess`` runs the
first two of every concern in one round trip.
"""

import signal
import traceback

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.metal.plugins.module_utils._host import Busy, Host

#: Seconds to wait for another run that is changing the host; a driver build on a slow machine takes minutes.
LOCK_TIMEOUT = 1800


class ConcernError(Exception):
    """A change could not be made or proven: the message says what, why and the remedy; ``details`` are returned."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details


class InvalidDesired(Exception):
    """The desired document is wrong. The message names the public variable and the remedy."""


class Difference:
    """What differs between a host and what is wanted: one object gives ``changed``, the diff, the actions, the reboot.

    * ``items``: list of ``{what, before, after, why, action}``, each one thing that :meth:`Concern.apply` will change;
    * ``unknown``: list of ``{what, why}``, things that could not be read, so the concern must run;
    * ``pending``: list of ``{what, why}``, things that are staged and become true at the next boot.
    """

    def __init__(self):
        self.items = []
        self.unknown = []
        self.pending = []

    def add(self, what, before, after, why, action):
        """Note one thing to change: ``before`` and ``after`` are short JSON values, ``action`` an imperative."""
        self.items.append({"what": what, "before": before, "after": after, "why": why, "action": action})

    def add_unknown(self, what, why):
        self.unknown.append({"what": what, "why": why})

    def add_pending(self, what, why):
        """Note something that only a reboot completes. ``why`` is the reason shown beside ``reboot_required``."""
        self.pending.append({"what": what, "why": why})

    @property
    def changed(self):
        return bool(self.items)

    @property
    def status(self):
        """``differs``, ``unknown``, ``pending`` (a reboot completes it) or ``clean``."""
        for status, present in (("differs", self.items), ("unknown", self.unknown), ("pending", self.pending)):
            if present:
                return status
        return "clean"

    @property
    def actions(self):
        return [item["action"] for item in self.items]

    def diff(self):
        """The ``--diff`` document: one line a thing, before and after."""
        return {
            side: "".join("{}: {}\n".format(item["what"], item[side]) for item in self.items)
            for side in ("before", "after")
        }

    def as_dict(self):
        return {
            "status": self.status,
            "differences": self.items,
            "unknown": self.unknown,
            "pending": self.pending,
            "reboot_required": bool(self.pending),
        }


class Concern:
    """One concern of a host. ``name`` is the role's name and the prefix of its public variables."""

    name = ""
    #: The module's argument spec: also the schema of the desired document.
    options = {}

    def managed(self, desired):
        """False when the operator switched the concern off: nothing is read, nothing is changed."""
        return desired.get("state") != "unmanaged"

    def validate(self, desired):
        """Raise :class:`InvalidDesired` (through :meth:`invalid`) for what an argument spec cannot express."""

    def read(self, host, desired):
        """What is true on the host: a dict. Never raises for a missing thing, never changes anything."""
        raise NotImplementedError

    def assess(self, state, desired):
        """Pure: a :class:`Difference` between ``state`` (from :meth:`read`) and ``desired``."""
        raise NotImplementedError

    def apply(self, host, desired, state, difference):
        """Make it so; raise :class:`ConcernError` on failure. The caller re-reads to prove it."""
        raise NotImplementedError

    def prove(self, host, desired):
        """The slow proofs that :meth:`read` leaves out: a list of checks (see ``_verify``). Changes nothing."""
        return []

    def returns(self, state, desired):
        """What the concern's module returns beyond the common keys; the role's own tasks may use it. Pure."""
        return {}

    def invalid(self, option, problem, remedy):
        """The error for a wrong desired document: names the public variable, the problem and the remedy."""
        return InvalidDesired(f"{self.name}_{option}: {problem}. {remedy}")

    def inspect(self, host, desired):
        """read + assess: ``(state, difference)``. What the host refused to show becomes an unknown."""
        with host.noting() as refused:
            state = self.read(host, desired)
        difference = self.assess(state, desired)
        for path in sorted(refused):
            difference.add_unknown(path, f"cannot be read: {refused[path]}")
        return state, difference


def validated(concern, document):
    """A concern's complete desired document; see :func:`completed`."""
    result = completed(concern.name, concern.options, document)
    concern.validate(result)
    return result


def completed(role, options, document):
    """Check a document of a role's variables against an argument spec.

    :param document: dict of option -> value, as the role composes it.
    :returns: dict with every option, defaults filled in and types coerced.
    :raises InvalidDesired: naming the public variable (``nouveau_state``, not ``state``).
    """
    unknown = sorted(set(document) - set(options))
    if unknown:
        raise InvalidDesired(
            "{}_{}: no such variable. Known: {}".format(
                role, unknown[0], ", ".join(f"{role}_{key}" for key in sorted(options))
            )
        )
    for name, value in document.items():
        if isinstance(value, float) and options[name]["type"] == "str":
            raise unquoted(f"{role}_{name}", value)
    result = ArgumentSpecValidator(options).validate(document)
    if result.error_messages:
        mistakes = public_names(role, options, "; ".join(result.error_messages))
        raise InvalidDesired(f"{role}: {mistakes}. What each variable takes stands in the README of the role {role}")
    return result.validated_parameters


def together(*validations):
    """What each validation (a function without arguments) answers, as a list.

    :raises InvalidDesired: with the mistakes of all of them, a line each.
    """
    answers, problems = [], []
    for validation in validations:
        try:
            answers.append(validation())
        except InvalidDesired as error:
            problems.append(str(error))
    if problems:
        raise InvalidDesired("\n".join(problems))
    return answers


def unquoted(variable, value):
    """The error for a text that YAML took for a number: 570.190 has become 570.19, and nobody can tell any more."""
    return InvalidDesired(
        f"{variable}: {value} is a number, which drops the zeros at its end. Write the value in quotes, with all digits"
    )


def public_names(role, options, message):
    """Argument-spec messages speak of options; the user wrote variables."""
    words = []
    for word in message.split(" "):
        bare = word.strip("'\",.:;()")
        words.append(word.replace(bare, f"{role}_{bare}") if bare in options else word)
    return " ".join(words)


def run_module(concern, options=None, after_change=None):
    """The body of a concern's module: inspect, and unless in check mode apply, re-read and compare.

    :param options: argument spec of what the module takes beside the desired document.
    :param after_change: ``after_change(host, params)``, called when a change was made and proven; what it leaves on the
        host is a convenience and never a difference of its own.
    """
    module = AnsibleModule(argument_spec=dict(concern.options, **(options or {})), supports_check_mode=True)
    host = Host()
    desired = {name: module.params[name] for name in concern.options}
    if not concern.managed(desired):
        module.exit_json(changed=False, actions=[], reboot_required=False, reboot_reasons=[], unknown=[])
    try:
        concern.validate(desired)
        state, difference = concern.inspect(host, desired)
        after = difference
        if difference.changed and not module.check_mode:
            # A dropped connection may take the terminal away: what is begun is ended, or put back, all the same.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            with host.exclusive(LOCK_TIMEOUT):
                state, difference = concern.inspect(host, desired)  # the run waited for may have done the work
                state, after = _change(concern, host, desired, state, difference)
                if difference.changed and after_change:
                    after_change(host, module.params)
    except InvalidDesired as error:
        module.fail_json(msg=str(error))
    except Busy as error:
        module.fail_json(
            msg=f"{concern.name}: another run has been changing this host for more than {LOCK_TIMEOUT} s "
            f"(it holds {error}). Let it end, then run again."
        )
    except ConcernError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"{concern.name}: the host refuses a change: {error}. Correct that (a full or read-only file system, "
            "or become missing), then run again: the role goes on from what it finds.",
            exception=traceback.format_exc(),
        )
    module.exit_json(
        changed=difference.changed,
        actions=difference.actions,
        diff=difference.diff(),
        reboot_required=bool(after.pending),
        reboot_reasons=[entry["why"] for entry in after.pending],
        unknown=after.unknown,
        **concern.returns(state, desired),
    )


def _change(concern, host, desired, state, difference):
    """Apply, re-read, and raise unless nothing differs any more; the state and difference afterwards."""
    if difference.changed:
        concern.apply(host, desired, state, difference)
        host.forget()
        state, difference = concern.inspect(host, desired)
        if difference.changed:
            left = "; ".join("{what} ({why})".format(**item) for item in difference.items)
            raise ConcernError(
                f"{concern.name}: applied, but on re-reading the host these still differ: {left}",
                differences=difference.items,
            )
    return state, difference
