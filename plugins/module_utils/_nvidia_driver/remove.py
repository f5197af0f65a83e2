# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``state: absent``: no driver of ours, and no file of ours, is left on the host."""

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    journal,
    judge,
    last_good,
    members,
    options,
    runfile,
    steps,
    traces,
)

UNINSTALL_TIMEOUT = 600
#: Removed last, the journal at the very end: until then they are the way back.
FOLDERS = (runfile.DIRECTORY, *members.folders(), options.TMPDIR)
KEPT = (*FOLDERS, runfile.RECORD, last_good.PATH, journal.PATH)


def read(host):
    """Files and directories of this concern that are on the host: list of paths."""
    return [path for path in boot.FILES if boot.ours(host, path)] + [path for path in KEPT if host.exists(path)]


def assess(difference, state):
    """Add everything that ``absent`` takes away. Drivers of packages are not ours and stay."""
    driver, loaded = state["driver"], state["driver"]["loaded"]
    ours = not driver["packages"]
    for version, what in sorted(state["traces"].items()) if ours else ():
        difference.add(
            "driver %s" % version,
            ", ".join(what),
            "absent",
            "nvidia_driver_state is absent",
            "Remove driver %s" % version,
        )
    for path in state["files"]:
        difference.add(path, "present", "absent", "nvidia_driver_state is absent", "Remove %s" % path)
    for image in state["carriers"] if ours else ():
        difference.add(
            image["path"],
            "carries the driver",
            "without it",
            "nvidia_driver_state is absent",
            "Rebuild %s for kernel %s" % (image["path"], image["release"]),
        )
    if loaded and ours and not difference.items:
        difference.add_pending("loaded driver", "driver %s stays loaded until the next boot" % loaded["version"])


def run(host, desired, state, record):
    """Stop, unload or leave the driver to the reboot, uninstall, remove what is ours.

    :raises ConcernError: naming who uses the driver (nothing was changed then), or what could not be removed.
    """
    refused = judge.in_use(state, desired)
    if refused:
        raise ConcernError("\n".join(refused), refusals=refused)
    if state["driver"]["packages"]:
        _files(host, [])
        return
    journal.enter(host, record, "unload")
    if state["users"]["modules"]:
        steps.stop_and_unload(host, state["users"], record, "unload")  # what stays loaded, the reboot ends
    journal.enter(host, record, "remove")
    failed = [phrase for member in members.MEMBERS for phrase in member.withdraw(host)[1]]
    failed += uninstall(host, None)[1]
    images = steps.carriers(host)
    if images and not failed:
        with steps.rebuilt(host, images, _still_carries):
            pass
    _files(host, failed)


def _still_carries(image):
    holds = image["holds"] or {"modules": []}
    return image["error"] or ("it still carries the driver" if "nvidia" in holds["modules"] else "")


def _files(host, failed):
    if failed:
        raise ConcernError(
            "nvidia_driver: the driver is not removed completely: %s. Correct that and run the role again, which "
            "goes on from here; with nvidia_driver_state: present it installs the driver again" % "; ".join(failed)
        )
    for path in KEPT:
        if path not in FOLDERS:
            host.remove(path)
        elif host.exists(path):
            answer = host.run(["rm", "-rf", "--", path], timeout=120, changes=True)
            if not answer.ok:
                raise ConcernError("nvidia_driver: %s" % answer.summary())


def uninstall(host, versions):
    """Remove the driver and our files from the host.

    :param versions: those of which to remove what the uninstaller leaves; None: every one.
    :returns: ``(what was done, what failed)``, lists of phrases.
    """
    done: list = []
    failed: list = []
    uninstaller = build.find_program(host, "nvidia-uninstall")
    if uninstaller:
        argv = [uninstaller, "--silent", "--ui=none"]
        answer = host.run(argv, timeout=UNINSTALL_TIMEOUT, changes=True, keeps_lock=True)
        (done if answer.ok else failed).append("the installation was removed" if answer.ok else answer.summary())
    for left in sorted(version for version in traces.read(host) if versions is None or version in versions):
        problems = traces.remove(host, left)
        failed += problems
        done += [] if problems else ["what was left of driver %s was removed" % left]
    removed, refused = boot.withdraw(host)
    host.forget()
    library = _driver_facts.read(host)["library"]
    if library:
        failed.append("%s is still there" % library["path"])
    return done + removed, failed + refused
