# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""snapd's refreshes: held.

Source: snapd's documentation of the system option ``refresh.hold`` ("forever" from snapd 2.58). Its configuration is
kept in state.json, which is read so that a host where nothing differs runs no tool.
"""

import json

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

STATE = "/var/lib/snapd/state.json"
HELD = "forever"


def read(host):
    """``{hold: str|None}``, or None on a host without snapd."""
    text = host.read_text(STATE)
    if text is None:
        return None
    try:
        core = json.loads(text)["data"]["config"]["core"]
        hold = core["refresh"]["hold"]
    except (ValueError, KeyError, TypeError):
        hold = None
    return {"hold": hold}


def assess(state, difference):
    if state["hold"] != HELD:
        difference.add("snap refresh.hold", state["hold"], HELD, "snapd refreshes by itself", "Hold snap refreshes")


def assess_restored(state, record, difference):
    if state["hold"] == HELD and record["snap_held"]:
        difference.add("snap refresh.hold", HELD, record["snap_hold"], "this role had set it", "Release snap refreshes")


def hold(host, state):
    if state["hold"] != HELD:
        _snap(host, ["set", "system", "refresh.hold=" + HELD])


def restore(host, state, record):
    if state["hold"] == HELD and record["snap_held"]:
        before = record["snap_hold"]
        _snap(host, ["set", "system", "refresh.hold=" + before] if before else ["unset", "system", "refresh.hold"])


def _snap(host, arguments):
    result = host.run(["snap"] + arguments, timeout=60, changes=True)
    if not result.ok:
        raise ConcernError(
            f"auto_updates: {result.summary()}. Update snapd to 2.58 or later, or set auto_updates_snap to false."
        )
