# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a change fails: say why in the operator's terms, and give the host the driver back that it had before.

That is the last-good set, put on by the same steps as any driver. On a host that had none it is the kernel's own:
everything of ours goes, the block on nouveau too. Only what was proven is called done; a way back that failed keeps the
journal open, so that the next run goes on from there, forward or back.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _modules, _nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    build,
    installer,
    installer_log,
    journal,
    judge,
    last_good,
    members,
    remove,
    runfile,
    steps,
)


def failure(concern, host, wanted, record, error):
    """Put the host back; the error to raise, which tells why the change failed and how the way back went.

    :param error: what a step raised.
    """
    details, lines = dict(getattr(error, "details", {})), [str(error)]
    if isinstance(error, steps.Failed):
        make_log, log = build.make_log(host, wanted["version"]), host.read_text(installer.LOG) or ""
        known = installer_log.classify("\n".join((error.printed, make_log, log)))
        lines = ["nvidia_driver: %s" % error]
        if known:
            lines.append("Cause: %s (%s). Remedy: %s." % (known["cause"], known["line"], known["remedy"]))
        details = {
            "cause": known["key"] if known else None,
            "installer_log": installer_log.tail(log),
            "make_log": installer_log.tail(make_log),
        }
    lines += put_back(concern, host, wanted, record, lines[0])
    return ConcernError("\n".join(lines), **details)


def put_back(concern, host, wanted, record, reason):
    """Give the host its earlier driver and its services back; what was done and what could not be, as sentences."""
    told = [go_back(concern, host, wanted, record, reason)]
    failed = steps.start_stopped(host, wanted, record)
    if failed:
        told.append(failed)
        journal.enter(host, record, "verify")  # left open, so that the next run starts them
    return told


def go_back(concern, host, wanted, record, reason):
    """Give the host its earlier driver back; a sentence about what was done and what could not be done."""
    previous = record["previous"]
    if previous is None:
        return _withdraw(host, record)
    if "phase" not in record and not journal.interrupted(journal.read(host)):
        return "Nothing was changed: driver %s is as it was." % previous["version"]
    if last_good.identity(previous) == last_good.identity(record):
        told = ["Driver %s was on this host before this run, and nothing of it was removed." % previous["version"]]
        return " ".join(told + _reload(host))
    document = last_good.document(previous, wanted)
    back = dict(record, version=previous["version"], flavour=previous["flavour"], back=reason)
    host.forget()
    try:
        state = concern.read(host, document)
        replaced = judge.problems(state, document)
        loaded = steps.change(concern, host, document, state, back, kept=previous["members"])
    except installer.AtWork:
        raise
    except (ConcernError, OSError) as error:
        return (
            "The way back to driver %s failed too: %s. The host is between the two. Correct that and run the role "
            "again, which goes on to %s; with nvidia_driver_state set to previous it goes back to %s, whose runfile is "
            "kept in %s." % (previous["version"], error, wanted["version"], previous["version"], runfile.DIRECTORY)
        )
    record["stopped"] = list(back["stopped"])
    journal.enter(host, back, "done" if loaded else journal.STAGED, stopped=[])
    if replaced:
        return "Driver %s is back%s." % (previous["version"], "" if loaded else " on disk, the next boot loads it")
    where = "is loaded" if loaded else "the next boot loads it"
    return "Driver %s had not been replaced yet, and %s." % (previous["version"], where)


def _reload(host):
    """Load whatever driver is on disk, so that the host is not left without one (D3); what did not work."""
    if _modules.loaded(host, "nvidia") or any(_modules.loaded(host, name) for name in steps.RIVALS):
        return []
    answers = [host.run(["modprobe", name], timeout=300, changes=True) for name in steps.LOADED_AT_ONCE]
    return ["No driver is loaded now: %s." % answer.summary() for answer in answers if not answer.ok][:1]


def _withdraw(host, record):
    """Take back what this role put on a host that had no driver, and let nouveau drive the GPUs again."""
    journal.enter(host, record, "withdraw")
    done, failed = remove.uninstall(host, record["begun"])
    try:
        if _nouveau.withdraw(host):
            done.append("the block on nouveau was withdrawn, which the next boot completes")
    except ConcernError as error:
        failed.append("the block on nouveau could not be withdrawn: %s" % error)
    if failed:
        return (
            "The host is NOT as before: %s. Do not reboot it yet. Correct that and run the role again, which goes on "
            "from here. Done so far: %s." % ("; ".join(failed), "; ".join(done) or "nothing")
        )
    # put_back starts these; what needs a driver has none to start with
    stopped = [name for name in record["stopped"] if name in members.independent()]
    journal.enter(host, record, "done", stopped=stopped)
    return "The host is as before: %s." % ("; ".join(done) or "nothing was installed")


def unblock(host):
    """Withdraw the block on nouveau where no driver of ours was begun; what to tell, as a list of sentences."""
    try:
        withdrawn = _nouveau.withdraw(host)
    except ConcernError as error:
        return ["The block on nouveau could not be withdrawn, do not reboot the host yet: %s" % error]
    return ["The block on nouveau was withdrawn, so that the host boots as before."] if withdrawn else []
