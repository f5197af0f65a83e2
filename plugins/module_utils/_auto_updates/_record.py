# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this host had before us, so that ``state: restored`` puts back exactly that.

It never decides whether updates are off: that is read from the host itself.
"""

import json

PATH = "/var/lib/gpufleet/auto_updates.json"


def read(host):
    """``{present: bool, units: {name: what _units.read says}, snap_held: bool, snap_hold: str|None,
    automatic: str|None}``; ``automatic``: the text of dnf's automatic.conf before we changed it."""
    text = host.read_text(PATH)
    record = {"present": text is not None, "units": {}, "snap_held": False, "snap_hold": None, "automatic": None}
    try:
        return dict(record, **json.loads(text or "{}"))
    except ValueError:
        return record


def remember(host, state, automatic=None):
    """Note, before the change, how each unit and snapd's hold are now; what an earlier run noted stays.

    :param automatic: the text of dnf's automatic.conf, if it is about to be changed.
    """
    old = state["record"]
    new = dict(old, units=dict(state["units"], **old["units"]))
    if automatic is not None:
        new["automatic"] = automatic
    if state["snap"] is not None and not old["snap_held"] and state["snap"]["hold"] != "forever":
        new.update(snap_hold=state["snap"]["hold"], snap_held=True)
    if new != old or not old["present"]:
        document = {key: value for key, value in new.items() if key != "present"}
        host.write(PATH, json.dumps(document, indent=2, sort_keys=True) + "\n")


def assess(record, difference):
    """For ``restored``: the record is the last thing of ours that goes."""
    if record["present"]:
        difference.add(PATH, "present", "absent", "it says what was here before this role", f"Remove {PATH}")


def forget(host):
    host.remove(PATH)
