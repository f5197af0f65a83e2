# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transaction: from what is on the host to the wanted driver, or back to where it was, with both reasons told."""

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts, _initramfs, _modules
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    flavour,
    installer,
    journal,
    runfile,
    undo,
    unload,
)

# -- judging (pure) ------------------------------------------------------------------------------------------------


def problems(state, desired):
    """What the installation on disk lacks: list of ``(what, before, why)``; [] when it is complete."""
    version = desired["version"]
    record = state["journal"]
    found = build.problems(state["driver"], state["firmware"], version, state["targets"])
    if not state["source"]:
        found.append((build.source(version), None, "DKMS builds the modules of a new kernel from it"))
    died_installing = journal.interrupted(record) == "install" and record.get("version") == version
    if died_installing and state["installed_by_log"] != version:
        found.insert(0, ("installation", "interrupted", "an earlier run died while the installer was at work"))
    if journal.interrupted(record) == "withdraw":
        found.insert(0, ("installation", "partly removed", "an earlier run could not take back all of its changes"))
    loaded = state["driver"]["loaded"]
    wanted, _reason = flavour.choose(state["gpus"], version, desired["kernel_module_type"])
    if loaded and loaded["version"] == version and wanted and loaded["flavour"] not in (wanted, None):
        found.insert(0, ("kernel module flavour", loaded["flavour"], "these GPUs are to run the %s modules" % wanted))
    return found


def reason_for_reboot(state):
    """Why the driver cannot be loaded without a reboot, or None when it can."""
    if state["rival"]:
        return "%s drives the GPUs until then" % state["rival"]
    if state["kernel"]["running"] not in state["targets"]:
        return "the running kernel %s cannot get modules (its headers are missing)" % state["kernel"]["running"]
    loaded = state["driver"]["loaded"]
    hindered = unload.obstacles(state["users"]) if loaded else []
    return "%s is loaded and in use by %s" % (loaded["version"], "; ".join(hindered)) if hindered else None


def refusals(state, desired):
    """Reasons not to begin, each with the variable that allows it or the remedy; [] when nothing speaks against it."""
    found = []
    version = desired["version"]
    if state["architecture"] is None:
        found.append("nvidia_driver: no runfile exists for this host's architecture. Supported: x86_64, aarch64")
    _wanted, reason = flavour.choose(state["gpus"], version, desired["kernel_module_type"])
    if reason:
        found.append(reason)
    if not state["targets"]:
        found.append(
            "nvidia_driver: no kernel is installed that modules could be built for. Install a kernel and its headers"
        )
    if state["boot"]["foreign_unit"]:
        found.append(
            "nvidia_driver_persistence: %s: %s. %s"
            % (boot.PERSISTENCED_FILE, boot.FOREIGN_UNIT, boot.FOREIGN_UNIT_REMEDY)
        )
    lacking = problems(state, desired)
    if not lacking or build.only_modules(lacking):
        return found
    if state["driver"]["packages"]:
        found.append(
            "nvidia_driver: packages of the distribution own driver files: %s. Theirs and the runfile's would mix. "
            "Remove these packages first" % ", ".join(state["driver"]["packages"])
        )
    holders = unload.holders(state["users"])
    if holders and not desired["replace_in_use"]:
        found.append(
            "nvidia_driver_replace_in_use: the driver in place is in use by %s. Replacing it breaks new programs on "
            "the GPUs until the reboot. Stop these, or set nvidia_driver_replace_in_use to true" % "; ".join(holders)
        )
    if not flavour.can_skip_load(version) and unload.obstacles(state["users"]):
        found.append(
            "nvidia_driver_version: the installer of %s loads what it built, which the loaded driver prevents (%s). "
            "Free the GPUs, or use branch %d or newer"
            % (version, "; ".join(unload.obstacles(state["users"])), flavour.SKIP_LOAD_SINCE)
        )
    return found


# -- acting --------------------------------------------------------------------------------------------------------


def run(concern, host, desired, state):
    """Make it so. Every phase is written down before it begins; what is true is always read from the host."""
    if state["installer_pid"]:
        installer.wait(host, state["installer_pid"], desired["installer_timeout"])
        host.forget()
        state = concern.read(host, desired)
    _refuse(host, state, desired)
    record = _open_record(state, desired)
    lacking = problems(state, desired)
    try:
        if lacking and not build.only_modules(lacking):
            _install(host, desired, state, record)
        if lacking:
            _build(host, desired, state, record)
        journal.enter(host, record, "configure")
        units_changed = boot.apply(host, state, desired, len(state["gpus"]))
        _rebuild_images(host)
        journal.enter(host, record, "load")
        if _load(host, desired, state, record):
            # an active one-shot unit makes no missing device file again: only a restart does
            again = lacking or record["stopped"] or units_changed or state["boot"]["devices"]
            boot.start(host, desired, restart=bool(again))
    except BaseException as error:
        left = _restore(host, desired, record)
        if left and isinstance(error, ConcernError):
            raise ConcernError("%s\n%s" % (error, left), **error.details) from error
        raise
    left = _restore(host, desired, record)
    if left:
        raise ConcernError("nvidia_driver: driver %s is in place. %s" % (desired["version"], left))
    journal.enter(host, record, "done", stopped=[])


def _refuse(host, state, desired):
    found = refusals(state, desired)
    if state["missing_packages"]:
        found.append(
            "nvidia_driver: packages are missing for the module build: %s. The role's prerequisites tasks install "
            "them; a headers package that is in no repository means: boot a newer kernel first"
            % ", ".join(state["missing_packages"])
        )
    if found:
        # Nothing was begun here, but the nouveau role may have blocked the only driver that the GPUs have.
        unblocked = [] if state["driver"]["library"] else undo.unblock(host)
        raise ConcernError("\n".join(found + unblocked), refusals=found)


def _open_record(state, desired):
    """The journal of this run. What an interrupted one wrote about the time before it stays true, but a driver that
    works now is no leftover, whatever that run had begun with."""
    library, loaded = state["driver"]["library"], state["driver"]["loaded"]
    earlier = state["journal"] if journal.interrupted(state["journal"]) else {}
    previous = earlier.get("previous", library["version"] if library else None)
    return {
        "version": desired["version"],
        "previous": loaded["version"] if loaded else previous,
        "stopped": list(earlier.get("stopped", [])),
    }


def _install(host, desired, state, record):
    """Free the driver and run the installer."""
    version = desired["version"]
    path = state["runfile"]["path"]
    try:
        runfile.verify(host, state["runfile"])
        runfile.prepare_tmpdir(host, desired, path)
    except ConcernError as error:
        raise ConcernError("%s\n%s" % (error, undo.put_back(host, record)), **error.details) from error
    journal.enter(host, record, "unload")
    stays_loaded = _free(host, desired, state, record)
    kernel = build.primary(state["kernel"], state["targets"])
    wanted, _reason = flavour.choose(state["gpus"], version, desired["kernel_module_type"])
    argv = ["/bin/sh", path] + flavour.arguments(
        version,
        wanted,
        kernel,
        state["kernel"]["running"],
        desired["tmpdir"],
        stays_loaded,
        desired["ignore_compiler_mismatch"],
    )
    journal.enter(host, record, "install", flavour=wanted, kernel=kernel)
    environment = dict(build.build_environment(host, state["kernel"], kernel), TMPDIR=desired["tmpdir"])
    answer = installer.run(host, argv + desired["installer_arguments"], desired["installer_timeout"], environment)
    if not answer.ok:
        undo.fail(host, record, "the installer failed: %s" % answer.summary(), answer.out + answer.err)


def _free(host, desired, state, record):
    """Stop the driver's own daemons and unload its modules, all or none; True when a driver stays loaded."""
    version = desired["version"]
    if state["rival"] and not flavour.can_skip_load(version):
        answer = host.run(["modprobe", "-r", state["rival"]], timeout=60, changes=True)
        if not answer.ok:
            raise ConcernError(
                "nvidia_driver_version: the installer of %s loads what it built, and %s cannot be unloaded: %s. "
                "Reboot with it blocked first, or use branch %d or newer"
                % (version, state["rival"], answer.summary(), flavour.SKIP_LOAD_SINCE)
            )
    if not state["users"]["modules"]:
        return False
    if unload.obstacles(state["users"]):
        return True
    hindered = _stop_and_unload(host, state["users"], record, "unload")
    if hindered and not flavour.can_skip_load(version):
        raise ConcernError("nvidia_driver: the loaded driver cannot be unloaded: %s. Free the GPUs first" % hindered)
    return bool(hindered)


def _stop_and_unload(host, users, record, phase):
    """Stop the driver's own daemons, then unload all modules or none; why that was not possible, or None."""
    for name in unload.daemons(users):
        record["stopped"] = sorted({*record["stopped"], name})
        journal.enter(host, record, phase)  # before the stop, so that a later run starts it again
        host.run(["systemctl", "stop", name], timeout=120, changes=True)  # one that goes on is found right below
    users = unload.read(host)  # seconds have passed: look again, right before the step that needs it
    return "; ".join(unload.obstacles(users)) or unload.unload(host, users)


def _build(host, desired, state, record):
    """DKMS for every target kernel that lacks the modules, then the proof that nothing is missing on disk."""
    version = desired["version"]
    journal.enter(host, record, "build")
    host.forget()
    for release in state["targets"]:
        driver = _driver_facts.read(host)
        if not build.problems(dict(driver, library={"version": version}), [version], version, [release]):
            continue
        answer = build.build(host, state["kernel"], version, release, desired["ignore_compiler_mismatch"])
        if not answer.ok:
            reason = "DKMS failed for kernel %s: %s" % (release, answer.summary())
            undo.fail(host, record, reason, answer.out + answer.err)
    host.forget()
    firmware = [version] if host.listdir("/lib/firmware/nvidia/%s" % version) else []
    lacking = build.problems(_driver_facts.read(host), firmware, version, state["targets"])
    if lacking:
        reason = "the installer ended without an error, but %s" % "; ".join(
            "%s: %s" % (what, why) for what, _before, why in lacking
        )
        undo.fail(host, record, reason, "")


def stale_images(host):
    """Initial RAM disks that carry NVIDIA modules and are older than the modules on disk (D12)."""
    stale = []
    for image in _initramfs.read(host)["images"]:
        if not image["holds"] or "nvidia" not in image["holds"]["modules"]:
            continue
        modules = host.glob("/lib/modules/%s/updates/dkms/nvidia.ko*" % image["release"])
        times = [stat.st_mtime_ns for stat in map(host.stat, modules) if stat]
        if times and max(times) > image["mtime_ns"]:
            stale.append(image)
    return stale


def _rebuild_images(host):
    """Judged after the build: the modules that it made are what an image has to carry."""
    stale, initramfs = stale_images(host), _initramfs.read(host)
    if stale:
        _initramfs.check_space(host, stale, initramfs["images"])
        with _initramfs.rebuilt(host, initramfs["tool"], stale, lambda image: image["error"] or ""):
            pass


def _load(host, desired, state, record):
    """Load the driver unless only a reboot can; True when the wanted version is loaded afterwards."""
    version = desired["version"]
    host.forget()
    loaded = _driver_facts.read(host)["loaded"]
    users = unload.read(host)
    replaceable = loaded and loaded["version"] != version and not unload.obstacles(users)
    if replaceable and _stop_and_unload(host, users, record, "load") is None:
        loaded = None
    if loaded:
        return loaded["version"] == version
    if any(_modules.loaded(host, name) for name in undo.RIVALS) or state["kernel"]["running"] not in state["targets"]:
        return False
    for name in undo.LOADED_AT_ONCE:
        answer = host.run(["modprobe", name], timeout=300, changes=True)
        if not answer.ok:
            undo.fail(host, record, "the driver does not load: %s" % answer.summary(), answer.err)
    loaded = _driver_facts.read(host)["loaded"]
    if not loaded or loaded["version"] != version:
        found = loaded["version"] if loaded else "none"
        undo.fail(host, record, "after modprobe the loaded driver is %s, wanted is %s" % (found, version), "")
    return True


def _restore(host, desired, record):
    """Start exactly the daemons that were stopped, where a driver is loaded; at boot their own units start them.

    :returns: which of them did not start and what to do, or None.
    """
    failed = []
    for name in record["stopped"]:
        unwanted = name + ".service" == boot.PERSISTENCED_UNIT and not desired["persistence"]
        if unwanted or not _modules.loaded(host, "nvidia") or boot.active(host, name + ".service"):
            continue
        answer = host.run(["systemctl", "start", name], timeout=120, changes=True)
        if not answer.ok:
            failed.append(answer.summary())
    if not failed:
        return None
    return (
        "What was stopped for the driver does not start again: %s. It has to be of the loaded driver's version; "
        "correct it, then run the role again, which starts it" % "; ".join(failed)
    )
