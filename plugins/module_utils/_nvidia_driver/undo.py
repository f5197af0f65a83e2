# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When an installation fails: say why in the operator's terms, and leave the host with the driver that it had before.

On a host that had none, that is the kernel's own: everything of ours goes, the block on nouveau too. Only what was
proven is called done; a step that failed keeps the journal open, so that the next run goes on from there.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts, _modules, _nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    installer,
    installer_log,
    journal,
    runfile,
)

#: Loaded in this order; each brings what it stands on.
LOADED_AT_ONCE = ("nvidia", "nvidia-uvm")
#: In-kernel drivers of the same GPUs; while one is loaded, ours cannot be.
RIVALS = ("nouveau", "nova_core")
UNINSTALL_TIMEOUT = 600


def fail(host, record, reason, printed):
    """Put the host back and raise.

    :param record: the journal of this run.
    :param reason: what failed, a clause.
    :param printed: what the failed command printed; searched for known causes together with the logs.
    :raises ConcernError: always.
    """
    make_log, log = build.make_log(host, record["version"]), host.read_text(installer.LOG) or ""
    known = installer_log.classify("\n".join((printed, make_log, log)))
    lines = ["nvidia_driver: %s" % reason]
    if known:
        lines.append("Cause: %s (%s). Remedy: %s." % (known["cause"], known["line"], known["remedy"]))
    lines.append(put_back(host, record))
    raise ConcernError(
        "\n".join(lines),
        cause=known["key"] if known else None,
        installer_log=installer_log.tail(log),
        make_log=installer_log.tail(make_log),
    )


def put_back(host, record):
    """Give the host its earlier driver back; a sentence about what was done and what could not be done."""
    if record["previous"] is None:
        return _withdraw(host, record)
    told = [
        "Driver %s stood here before; to go back set nvidia_driver_version to it (its runfile is kept in %s)."
        % (record["previous"], runfile.DIRECTORY)
        if record["previous"] != record["version"]
        else "Driver %s was on this host before this run, and nothing of it was removed." % record["version"]
    ]
    return " ".join(told + _reload(host))


def _reload(host):
    """Load whatever driver is on disk, so that the host is not left without one (D3); what did not work."""
    if _modules.loaded(host, "nvidia") or any(_modules.loaded(host, name) for name in RIVALS):
        return []
    answers = [host.run(["modprobe", name], timeout=300, changes=True) for name in LOADED_AT_ONCE]
    return ["No driver is loaded now: %s." % answer.summary() for answer in answers if not answer.ok][:1]


def _withdraw(host, record):
    """Take back what this role put on a host that had no driver, and let nouveau drive the GPUs again."""
    version = record["version"]
    journal.enter(host, record, "withdraw")
    done: list = []
    failed: list = []

    def must(argv, timeout, success):
        answer = host.run(argv, timeout=timeout, changes=True)
        (done if answer.ok else failed).append(success if answer.ok else answer.summary())

    uninstaller = build.find_program(host, "nvidia-uninstall")
    if uninstaller:
        must([uninstaller, "--silent", "--ui=none"], UNINSTALL_TIMEOUT, "the partial installation was removed")
    if any(row["module"] == "nvidia" and row["version"] == version for row in _driver_facts.read(host)["dkms"]):
        remove = ["dkms", "remove", "-m", "nvidia", "-v", version, "--all"]
        must(remove, UNINSTALL_TIMEOUT, "its DKMS entry was removed")
    removed, refused = boot.withdraw(host)
    done, failed = done + removed, failed + refused
    host.forget()
    library = _driver_facts.read(host)["library"]
    if library:
        failed.append("%s is still there" % library["path"])
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
    journal.enter(host, record, "done", stopped=[])
    return "The host is as before: %s." % ("; ".join(done) or "nothing was installed")


def unblock(host):
    """Withdraw the block on nouveau where no driver of ours was begun; what to tell, as a list of sentences."""
    try:
        withdrawn = _nouveau.withdraw(host)
    except ConcernError as error:
        return ["The block on nouveau could not be withdrawn, do not reboot the host yet: %s" % error]
    return ["The block on nouveau was withdrawn, so that the host boots as before."] if withdrawn else []
