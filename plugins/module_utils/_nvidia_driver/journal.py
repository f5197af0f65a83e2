# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of an installation on its way: how to go on, or back.

The record never decides whether the driver is right (reading the host does); it tells what an interrupted run
was doing, which services it had stopped and which version stood there before.
"""

import json

PATH = "/var/lib/gpufleet/driver/journal.json"

#: The phases in their order; ``done`` closes the record. A first installation that fails goes to ``withdraw`` instead.
PHASES = ("unload", "install", "build", "configure", "load", "done")


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
    return None if phase in (None, "done") else phase
