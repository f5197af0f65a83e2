# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The concern ``auto_updates``: nothing on this host changes a package by itself, and that is proven.

Four independent mechanisms, one file each: apt's periodic settings, systemd's units, needrestart and snap. Each has
``read(host, ...)``, ``assess(state, ...)`` which adds to a Difference, and the functions that change the host.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt, _packages
from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import (
    _needrestart,
    _periodic,
    _record,
    _snap,
    _units,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, ConcernError, Difference

_UNIT_PREFIX = re.compile(r"^[A-Za-z0-9@_:][A-Za-z0-9@_:.-]*$")


class AutoUpdates(Concern):
    """Automatic package updates: off (``disabled``), as the distribution has them (``default``) or not ours."""

    name = "auto_updates"
    options = {
        "state": {"type": "str", "choices": ["disabled", "default", "unmanaged"], "default": "disabled"},
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

    def read(self, host, desired):
        manager = _packages.manager(host)
        return {
            "manager": manager,
            "record": _record.read(host),
            "periodic": _periodic.read(host) if manager == "apt" else None,
            "units": _units.read(host, manager),
            "needrestart": _needrestart.read(host) if manager == "apt" else None,
            "snap": _snap.read(host) if desired["snap"] else None,
        }

    def assess(self, state, desired):
        difference = Difference()
        off = desired["state"] == "disabled"
        if off and state["manager"] is None:
            difference.add_unknown("package manager", "none that is known: what updates this host cannot be told")
        record = state["record"]
        if state["periodic"] is not None:
            _periodic.assess(state["periodic"], off, difference)
        _units.assess(state["units"], off, record, difference)
        if state["needrestart"] is not None and desired["needrestart"]:
            _needrestart.assess(state["needrestart"], off, desired["needrestart_protected"], difference)
        if state["snap"] is not None:
            _snap.assess(state["snap"], off, record, difference)
        return difference

    def apply(self, host, desired, state, difference):
        if desired["state"] == "disabled":
            self._refuse_conflicts(state, desired)
            self._disable(host, desired, state)
        else:
            self._restore(host, desired, state)

    def _refuse_conflicts(self, state, desired):
        """What only its owner can settle is told before the first change."""
        conflicts = _units.conflicts(state["units"])
        if state["periodic"] is not None:
            conflicts += _periodic.conflicts(state["periodic"])
        if state["needrestart"] is not None and desired["needrestart"]:
            conflicts += _needrestart.conflicts(state["needrestart"])
        if conflicts:
            raise ConcernError("auto_updates: nothing was changed: " + "; ".join(conflicts), conflicts=conflicts)

    def _disable(self, host, desired, state):
        _record.remember(host, state)
        if state["periodic"] is not None:
            _periodic.write(host)
        if state["needrestart"] is not None and desired["needrestart"]:
            _needrestart.write(host, desired["needrestart_protected"])
        masked = _units.mask(host, state["units"])
        _units.stop(host, _units.active_timers(state["units"]))
        # No new update can start now; one that runs is waited for, never stopped: half a dpkg run breaks the host.
        _apt.wait_until_free(
            host,
            desired["wait_timeout"],
            "auto_updates_wait_timeout",
            lambda: _units.running_updates(host, state["manager"]),
        )
        _units.stop(host, _units.idle_services(state["units"]))
        if masked:
            _units.reload(host)
        if state["snap"] is not None:
            _snap.hold(host, state["snap"])
        if state["periodic"] is not None:
            _periodic.prove(host)

    def _restore(self, host, desired, state):
        record = state["record"]
        if state["periodic"] is not None:
            _periodic.remove(host)
        if state["needrestart"] is not None and desired["needrestart"]:
            _needrestart.remove(host)
        if _units.unmask(host, state["units"], record) and _units.reload(host):
            _units.start(host, record["stopped"])
        if state["snap"] is not None:
            _snap.restore(host, state["snap"], record)
        _record.forget(host)
