# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transaction: from what is on the host to the wanted driver, or back to where it was, with both reasons told."""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    build,
    installer,
    journal,
    judge,
    last_good,
    members,
    remove,
    steps,
    undo,
    unload,
)


def run(concern, host, desired, state):
    """Make it so. Whatever happens on the way, the host ends with the wanted driver or with the one it had."""
    if state["installer_pid"]:
        installer.wait(host, state["installer_pid"], desired["installer_timeout"])
        host.forget()
        state = concern.read(host, desired)
    if desired["state"] != "absent" and state["wanted"] is None:
        raise ConcernError(last_good.NONE, refusals=[last_good.NONE])
    wanted = desired if desired["state"] == "absent" else state["wanted"]
    state = _wait_until_idle(concern, host, desired, wanted, state)
    record = open_record(host, wanted, state)
    if desired["state"] == "absent":
        remove.run(host, desired, state, record)
        return
    _refuse(concern, host, wanted, state, record)
    try:
        loaded = steps.change(concern, host, wanted, state, record)
    except installer.AtWork:
        raise  # it goes on by itself, so nothing is taken back; the next run waits for it
    except (ConcernError, OSError) as error:
        raise undo.failure(concern, host, wanted, record, error) from error
    failed = steps.start_stopped(host, wanted, record)
    way_back = record["way_back"]
    if way_back and desired["state"] == "present" and last_good.identity(way_back) != last_good.identity(record):
        last_good.keep(host, way_back)
    if failed:
        journal.enter(host, record, "verify")
        raise ConcernError("nvidia_driver: driver %s is in place. %s" % (wanted["version"], failed))
    last_good.prune(host, wanted["version"])
    journal.enter(host, record, "done" if loaded else journal.STAGED)


def _wait_until_idle(concern, host, desired, wanted, state):
    """The state once nobody's work holds the driver, or the same one when nothing is to be waited for."""
    asked = judge.in_use(state, desired)
    due = asked and (desired["state"] == "absent" or asked[0] in judge.refusals(state, wanted))
    if not due or not desired["wait_for_idle"]:
        return state
    unload.wait_until_idle(host, desired["wait_for_idle"], lambda: unload.read(host, members.unit_of(desired)))
    host.forget()
    return concern.read(host, desired)


def _refuse(concern, host, wanted, state, record):
    found = judge.refusals(state, wanted)
    if state["missing_packages"]:
        found.append(
            "nvidia_driver: packages are missing for the module build: %s. The role's prerequisites tasks install "
            "them; a headers package that is in no repository means: boot a newer kernel first"
            % ", ".join(state["missing_packages"])
        )
    if not found:
        return
    told = list(found)
    if journal.interrupted(state["journal"]):
        told += undo.put_back(concern, host, wanted, record, "; ".join(found))
    elif not state["driver"]["library"]:
        # Nothing was begun here, but the nouveau role may have blocked the only driver that the GPUs have.
        told += undo.unblock(host)
    raise ConcernError("\n".join(told), refusals=found)


def open_record(host, wanted, state):
    """The journal of this run.

    What an unfinished change wrote about the time before it stays true; but a driver that works now is no leftover,
    whatever that change had begun with. One that the interrupted change itself was putting there counts only when it
    is complete: a reboot in the middle loads it although another kernel still lacks its modules.
    """
    library = state["driver"]["library"]
    earlier = state["journal"] if journal.unfinished(state["journal"]) else {}
    works = state["driver"]["match"] == "match"
    if works and journal.on_disk_unproven(earlier) and earlier.get("version") == library["version"]:
        mixed = len(set(state["flavours"].values()) - {None}) > 1
        works = not mixed and not build.problems(
            state["driver"], state["firmware"], library["version"], state["targets"]
        )
    present = last_good.describe(host, state)
    previous = present if works or not earlier else earlier.get("previous")
    flavour = judge.wanted_flavour(state, wanted) if wanted["state"] != "absent" else None
    present_is_wanted = present and last_good.identity(present) == (wanted["version"], flavour)
    return {
        "version": wanted["version"],
        "flavour": flavour,
        "arguments": wanted["installer_arguments"],
        "previous": previous,
        "way_back": earlier.get("way_back") if earlier and (present_is_wanted or not works) else previous,
        "stopped": list(earlier.get("stopped", [])),
        "begun": sorted({wanted["version"], earlier.get("version"), *earlier.get("begun", [])} - {None}),
    }
