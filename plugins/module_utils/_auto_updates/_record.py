# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this host had before automatic updates were switched off, so that ``state: default`` restores only that."""

import json

PATH = "/var/lib/gpufleet/auto_updates.json"
EMPTY: dict = {"masked": [], "stopped": [], "snap_hold": None, "snap_held": False}


def read(host):
    """The record, or an empty one. It never decides whether updates are off: that is read from the host itself."""
    try:
        return dict(EMPTY, **json.loads(host.read_text(PATH) or "{}"))
    except ValueError:
        return dict(EMPTY)


def remember(host, state):
    """Note, before the change, what is about to be masked, stopped and held; what an earlier run noted stays."""
    old = state["record"]
    units = state["units"]
    new = dict(old)
    new["masked"] = sorted(set(old["masked"]) | {name for name, unit in units.items() if unit["mask"] == "absent"})
    new["stopped"] = sorted(set(old["stopped"]) | {name for name, unit in units.items() if unit["active"]})
    if state["snap"] is not None and not old["snap_held"] and state["snap"]["hold"] != "forever":
        new["snap_hold"] = state["snap"]["hold"]
        new["snap_held"] = True
    if new != old:
        host.write(PATH, json.dumps(new, indent=2, sort_keys=True) + "\n")


def forget(host):
    host.remove(PATH)
