# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which locks are ours, so that only those are lifted again; the last proof; and the journal of a lift.

None of it says whether a lock is there: that is read from the package manager's own files.
"""

import json

PATH = "/var/lib/gpufleet/version_lock.json"


def read(host):
    """``{held: [str], proof: [{command, result}], lifted: None|journal}``; see ``_move`` for the journal."""
    empty = {"held": [], "proof": [], "lifted": None}
    try:
        return dict(empty, **json.loads(host.read_text(PATH) or "{}"))
    except ValueError:
        return empty


def update(host, **changes):
    """Write the record with ``changes``; unchanged, it is not written."""
    old = read(host)
    new = dict(old, **changes)
    if new != old or not host.exists(PATH):
        host.write(PATH, json.dumps(new, indent=2, sort_keys=True) + "\n")


def forget(host):
    host.remove(PATH)
