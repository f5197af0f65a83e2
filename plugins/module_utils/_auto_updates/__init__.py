# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The concern ``auto_updates``: nothing of the driver set and the kernel changes by itself, and that is proven.

Independent mechanisms, one file each: apt's periodic settings, unattended-upgrades, dnf-automatic, systemd's units,
needrestart and snap. Each has ``read(host, ...)``, ``assess(state, ...)`` and ``assess_restored(...)`` (dnf-automatic:
``assess_removed``), which add to a Difference, and the functions that change the host.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt, _dnf, _packages, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import (
    _dnf_automatic,
    _needrestart,
    _periodic,
    _record,
    _snap,
    _unattended,
    _units,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, ConcernError, Difference

_UNIT_PREFIX = re.compile(r"^[A-Za-z0-9@_:][A-Za-z0-9@_:.-]*$")


_NAME = re.compile(r"^[a-z0-9][a-z0-9+.-]+$")
_NO_SECURITY = "auto_updates_state: security is for hosts with apt or dnf4; choose disabled"


class AutoUpdates(Concern):
    """Automatic package updates: off (``disabled``), of the rest only (``security``), as before us (``restored``)."""

    name = "auto_updates"
    options = {
        "state": {"type": "str", "choices": ["disabled", "security", "restored", "unmanaged"], "default": "disabled"},
        "excluded_packages": {"type": "list", "elements": "str", "default": []},
        "wait_timeout": {"type": "int", "default": 900},
        "needrestart": {"type": "bool", "default": True},
        "needrestart_protected": {
            "type": "list",
            "elements": "str",
            "default": [
                "containerd",
                "crio",
                "docker",
                "kubelet",
                "nvidia-dcgm",
                "nvidia-fabricmanager",
                "nvidia-imex",
                "nvidia-persistenced",
                "podman",
                "slurmd",
            ],
        },
        "snap": {"type": "bool", "default": True},
    }

    def validate(self, desired):
        if desired["wait_timeout"] < 0:
            raise self.invalid("wait_timeout", f"{desired['wait_timeout']} is negative", "Give seconds, 0 or more.")
        for name in desired["needrestart_protected"]:
            if not _UNIT_PREFIX.match(name):
                raise self.invalid(
                    "needrestart_protected",
                    f"{name!r} is not the beginning of a unit name",
                    "Write it without path and wildcard, for example 'docker'.",
                )
        for name in desired["excluded_packages"]:
            if not _NAME.match(name):
                raise self.invalid(
                    "excluded_packages", f"{name!r} is not a package name", "Write whole names, without wildcard."
                )

    def read(self, host, desired):
        manager = _packages.manager(host)
        apt = manager == "apt"
        return {
            "manager": manager,
            "record": _record.read(host),
            "periodic": _periodic.read(host) if apt else None,
            "unattended": _unattended.read(host) if apt else None,
            "automatic": _dnf_automatic.read(host) if manager == "dnf" else None,
            "units": _units.read(host, manager),
            "reloads": _units.may_reload(host),
            "needrestart": _needrestart.read(host) if apt and desired["needrestart"] else None,
            "snap": _snap.read(host) if desired["snap"] else None,
        }

    def assess(self, state, desired):
        difference = Difference()
        mode = desired["state"]
        if mode == "restored":
            return self._assess_restored(state, difference)
        if state["manager"] is None:
            difference.add_unknown("package manager", "none that is known: what updates this host cannot be told")
        if mode == "security" and not _can_restrain(state):
            difference.add("auto_updates_state", "security", "disabled", _NO_SECURITY, "Stop: " + _NO_SECURITY)
            return difference
        if state["periodic"] is not None:
            if mode == "security":
                _unattended.assess(state["unattended"], difference)
            _periodic.assess(state["periodic"], mode, desired["excluded_packages"], difference)
        if state["automatic"] is not None:
            if mode == "security":
                _dnf_automatic.assess(state["automatic"], desired["excluded_packages"], difference)
            else:
                _dnf_automatic.assess_removed(state["automatic"], difference)
                _dnf_automatic.assess_applying(state["automatic"], difference)
        _units.assess(state["units"], mode, state["reloads"], difference)
        if state["needrestart"] is not None:
            _needrestart.assess(state["needrestart"], desired["needrestart_protected"], difference)
        if state["snap"] is not None:
            _snap.assess(state["snap"], difference)
        return difference

    def _assess_restored(self, state, difference):
        record = state["record"]
        if state["periodic"] is not None:
            _periodic.assess_restored(state["periodic"], difference)
        if state["automatic"] is not None:
            _dnf_automatic.assess_removed(state["automatic"], difference)
            _dnf_automatic.assess_given_back(state["automatic"], record["automatic"], difference)
        _units.assess_restored(state["units"], record, difference)
        if state["needrestart"] is not None:
            _needrestart.assess_restored(state["needrestart"], difference)
        if state["snap"] is not None:
            _snap.assess_restored(state["snap"], record, difference)
        _record.assess(record, difference)
        return difference

    def apply(self, host, desired, state, difference):
        if desired["state"] == "restored":
            self._restore(host, state)
        else:
            self._refuse_conflicts(state, desired)
            self._establish(host, desired, state)

    def _refuse_conflicts(self, state, desired):
        """What only its owner can settle is told before the first change."""
        mode = desired["state"]
        if mode == "security" and not _can_restrain(state):
            raise ConcernError(f"auto_updates: nothing was changed: {_NO_SECURITY}")
        conflicts = _units.conflicts(state["units"], mode)
        if state["periodic"] is not None:
            conflicts += _periodic.conflicts(state["periodic"], mode)
        if state["needrestart"] is not None:
            conflicts += _needrestart.conflicts(state["needrestart"])
        if conflicts:
            raise ConcernError("auto_updates: nothing was changed: " + "; ".join(conflicts), conflicts=conflicts)

    def _establish(self, host, desired, state):
        mode, units, excluded = desired["state"], state["units"], desired["excluded_packages"]
        automatic = state["automatic"] if mode == "disabled" else None
        applied = automatic["operators"] if automatic and _dnf_automatic.applies(automatic["operators"]) else None
        _record.remember(host, state, applied)
        # The exclusion comes before what it restrains.
        if state["periodic"] is not None:
            _periodic.write(host, mode, excluded)
        if state["needrestart"] is not None:
            _needrestart.write(host, desired["needrestart_protected"])
        if state["automatic"] is not None and mode == "security":
            _dnf_automatic.write(host, state["automatic"], excluded)
        linked = _units.link(host, units, mode)
        if state["automatic"] is not None:
            if mode != "security":
                _dnf_automatic.remove(host)
            if applied is not None:
                _dnf_automatic.write_operators(host, _dnf_automatic.applying_nothing(applied))
            if host.read_text(_dnf_automatic.DROPIN) != state["automatic"]["dropin"]:
                linked = True
                if not state["reloads"]:  # the timer would start the service as systemd still knows it
                    _units.stop(host, [name for name in _dnf_automatic.TIMERS if units[name]["active"]])
        _units.stop(host, _units.active_timers(units, mode))
        # No new update can start now; one that runs is waited for, never stopped: half a transaction breaks the host.
        _apt.wait_until_free(
            host,
            desired["wait_timeout"],
            "auto_updates_wait_timeout",
            lambda: _units.running_updates(host, state["manager"]) + _dnf.running(host),
        )
        _units.stop(host, _units.idle_services(units, mode))
        if mode == "security" and state["unattended"] is not None:
            _unattended.install(host, state["unattended"])
        if not linked or _units.reload(host):
            _units.start(host, _units.to_start(units, mode))
        if state["snap"] is not None:
            _snap.hold(host, state["snap"])
        self._proof(host, state["manager"], mode, excluded)

    def _restore(self, host, state):
        record = state["record"]
        if state["periodic"] is not None:
            _periodic.remove(host)
        if state["needrestart"] is not None:
            _needrestart.remove(host)
        automatic = state["automatic"]
        if automatic is not None:
            _dnf_automatic.remove(host)
            _dnf_automatic.write_operators(host, _dnf_automatic.given_back(automatic["operators"], record["automatic"]))
        relinked = _units.relink(host, state["units"], record) or bool(automatic and automatic["dropin"])
        if not relinked or _units.reload(host):
            _units.restart(host, state["units"], record)
        if state["snap"] is not None:
            _snap.restore(host, state["snap"], record)
        _record.forget(host)

    @staticmethod
    def _proof(host, manager, mode, excluded):
        """What apt, and in the mode ``security`` the program that updates, say: list of sentences."""
        said = [_periodic.prove(host, mode, excluded)] if manager == "apt" else []
        if mode == "security":
            said.append((_unattended if manager == "apt" else _dnf_automatic).prove(host, excluded))
        return said

    def prove(self, host, desired):
        """Ask apt itself for its settings, and what installs security updates for what it would do."""
        manager = _packages.manager(host)
        if desired["state"] == "restored" or manager is None or (manager, desired["state"]) == ("dnf", "disabled"):
            return []
        try:
            said = self._proof(host, manager, desired["state"], desired["excluded_packages"])
        except ConcernError as error:
            result = "fail" if "proof" in error.details else "not_measured"
            remedy = "Run the auto_updates role; it names a file that is in its way."
            return [_verify.check("auto_updates_proof", result, str(error), remedy)]
        return [_verify.check("auto_updates_proof", "pass", "; ".join(said))]


def _can_restrain(state):
    """Whether what installs security updates on this host can be told what to leave alone."""
    return state["manager"] == "apt" or (state["automatic"] is not None and state["automatic"]["dnf"] == 4)
