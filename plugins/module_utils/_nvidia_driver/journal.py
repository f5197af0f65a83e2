# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a change on its way: how to go on, or back.

The record never decides whether the driver is right (reading the host does); it tells what an interrupted run
was doing, which services it had stopped and which set of versions stood there before.

Keys: ``phase``; ``version`` and ``flavour`` that are being put on the host, with the installer's extra ``arguments``;
``previous``, the set (see :mod:`last_good`) to which a failure goes back, or None; ``way_back``, the set that the
change leaves behind for ``state: previous``;
``stopped``, the units that were stopped and have to run again; ``begun``, the versions of which this change, and those
before it that were interrupted, may have put something on the host; ``back``, on the way back, why the change failed.
"""

import json

PATH = "/var/lib/gpufleet/driver/journal.json"

#: The phases of a change in their order. The way back goes through the same ones; a first installation that fails goes
#: to ``withdraw`` instead, and ``absent`` has only ``unload`` and ``remove``.
PHASES = ("unload", "install", "build", "members", "configure", "load", "verify", "done")
#: Those at whose beginning the driver is proven to be complete on disk.
PROVEN = ("members", "configure", "load", "verify")
#: Everything is on disk and proven there, and the next boot loads it: the end of this run, not of the change.
STAGED = "staged"


def read(host):
    """The journal as a dict, or {} when there is none or a torn one."""
    text = host.read_text(PATH)
    if text is None:
        return {}
    try:
        journal = json.loads(text)
    except ValueError:
        return {}
    return journal if isinstance(journal, dict) else {}


def enter(host, record, phase, **notes):
    """Write the phase *before* its work begins, so that a run which dies in it is known; updates ``record``."""
    record.update(notes, phase=phase, at=int(host.clock()))
    host.write(PATH, json.dumps(record, indent=2, sort_keys=True) + "\n")


def interrupted(journal):
    """The phase in which an earlier run died, or None."""
    phase = journal.get("phase")
    return None if phase in (None, "done", STAGED) else phase


def unfinished(journal):
    """True while the change may still have to go back: it was interrupted, or waits for its reboot."""
    return journal.get("phase") not in (None, "done")


def on_disk_unproven(journal):
    """True when the change was interrupted before it had proven that nothing of its driver is missing on disk."""
    phase = interrupted(journal)
    return phase is not None and phase not in PROVEN
