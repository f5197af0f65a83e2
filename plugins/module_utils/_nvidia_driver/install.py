# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transaction: from what is on the host to the wanted driver, or back to where it was, with both reasons told."""

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts, _initramfs, _modules, _nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    flavour,
    installer,
    installer_log,
    journal,
    runfile,
    unload,
)

#: Loaded in this order; each brings what it stands on.
LOADED_AT_ONCE = ("nvidia", "nvidia-uvm")
#: In-kernel drivers of the same GPUs; while one is loaded, ours cannot be.
RIVALS = ("nouveau", "nova_core")
UNINSTALL_TIMEOUT = 600


# -- judging (pure) ------------------------------------------------------------------------------------------------


def problems(state, desired):
    """What the installation on disk lacks: list of ``(what, before, why)``; [] when it is complete."""
    version = desired["version"]
    record = state["journal"]
    found = build.problems(state["driver"], state["firmware"], version, state["targets"])
    died_installing = journal.interrupted(record) == "install" and record.get("version") == version
    if died_installing and state["installed_by_log"] != version:
        found.insert(0, ("installation", "interrupted", "an earlier run died while the installer was at work"))
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
    _refuse(state, desired)
    record = _open_record(state, desired)
    lacking = problems(state, desired)
    changed = bool(lacking)
    stopped = list(record["stopped"])
    try:
        if lacking and not build.only_modules(lacking):
            stopped = _install(host, desired, state, record)
        if lacking:
            _build(host, desired, state, record)
        record = journal.enter(host, record, "configure", stopped=stopped)
        boot.apply(host, state, desired, len(state["gpus"]))
        _rebuild_images(host, state)
        record = journal.enter(host, record, "load")
        if _load(host, desired, state, record):
            boot.start(host, desired, restart=changed or bool(stopped))
    finally:
        _restore(host, stopped)
    journal.enter(host, record, "done", stopped=[])


def _refuse(state, desired):
    found = refusals(state, desired)
    if state["missing_packages"]:
        found.append(
            "nvidia_driver: packages are missing for the module build: %s. The role's prerequisites tasks install "
            "them; a headers package that is in no repository means: boot a newer kernel first"
            % ", ".join(state["missing_packages"])
        )
    if found:
        raise ConcernError("\n".join(found), refusals=found)


def _open_record(state, desired):
    """The journal of this run. What an interrupted one wrote about the time before it stays true."""
    library = (state["driver"]["library"] or {}).get("version")
    earlier = state["journal"] if journal.interrupted(state["journal"]) else {}
    return {
        "version": desired["version"],
        "previous": earlier.get("previous", library),
        "stopped": earlier.get("stopped", []),
    }


def _install(host, desired, state, record):
    """Free the driver, run the installer; returns the daemons that were stopped for it."""
    version = desired["version"]
    path = state["runfile"]["path"]
    runfile.verify(host, state["runfile"])
    runfile.prepare_tmpdir(host, desired, path)
    record = journal.enter(host, record, "unload")
    stopped, stays_loaded = _free(host, desired, state, record)
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
    record = journal.enter(host, record, "install", stopped=stopped, flavour=wanted, kernel=kernel)
    environment = dict(build.build_environment(host, state["kernel"], kernel), TMPDIR=desired["tmpdir"])
    answer = installer.run(host, argv + desired["installer_arguments"], desired["installer_timeout"], environment)
    if not answer.ok:
        _fail(host, desired, record, "the installer failed: %s" % answer.summary(), answer.out + answer.err)
    return stopped


def _free(host, desired, state, record):
    """Stop the driver's own daemons and unload its modules, all or none.

    :returns: ``(names of the stopped daemons, True when a driver stays loaded)``.
    """
    version = desired["version"]
    stopped = list(record["stopped"])
    if state["rival"] and not flavour.can_skip_load(version):
        answer = host.run(["modprobe", "-r", state["rival"]], timeout=60, changes=True)
        if not answer.ok:
            raise ConcernError(
                "nvidia_driver_version: the installer of %s loads what it built, and %s cannot be unloaded: %s. "
                "Reboot with it blocked first, or use branch %d or newer"
                % (version, state["rival"], answer.summary(), flavour.SKIP_LOAD_SINCE)
            )
    if not state["users"]["modules"]:
        return stopped, False
    if unload.obstacles(state["users"]):
        return stopped, True
    for name in unload.daemons(state["users"]):
        stopped.append(name)
        journal.enter(host, record, "unload", stopped=stopped)  # before the stop, so that a later run starts it again
        host.run(["systemctl", "stop", name], timeout=120, changes=True)
    users = unload.read(host)  # seconds have passed: look again, right before the step that needs it
    hindered = unload.obstacles(users) or unload.unload(host, users)
    if hindered and not flavour.can_skip_load(version):
        _restore(host, stopped)
        raise ConcernError("nvidia_driver: the loaded driver cannot be unloaded: %s. Free the GPUs first" % hindered)
    return stopped, bool(hindered)


def _build(host, desired, state, record):
    """DKMS for every target kernel that lacks the modules, then the proof that nothing is missing on disk."""
    version = desired["version"]
    record = journal.enter(host, record, "build")
    host.forget()
    for release in state["targets"]:
        driver = _driver_facts.read(host)
        if not build.problems(dict(driver, library={"version": version}), [version], version, [release]):
            continue
        answer = build.build(host, state["kernel"], version, release)
        if not answer.ok:
            _fail(
                host,
                desired,
                record,
                "DKMS failed for kernel %s: %s" % (release, answer.summary()),
                answer.out + answer.err,
            )
    host.forget()
    firmware = [version] if host.listdir("/lib/firmware/nvidia/%s" % version) else []
    lacking = build.problems(_driver_facts.read(host), firmware, version, state["targets"])
    if lacking:
        reason = "the installer ended without an error, but %s" % "; ".join(
            "%s: %s" % (what, why) for what, _before, why in lacking
        )
        _fail(host, desired, record, reason, "")


def _rebuild_images(host, state):
    """Initial RAM disks that carry NVIDIA modules get the ones just built."""
    images = [
        image for image in _initramfs.read(host)["images"] if image["holds"] and "nvidia" in image["holds"]["modules"]
    ]
    if images and state["stale_images"]:
        _initramfs.check_space(host, images, images)
        with _initramfs.rebuilt(host, _initramfs.read(host)["tool"], images, lambda _image: ""):
            pass
        _initramfs.remember(host, _initramfs.read(host)["images"])


def _load(host, desired, state, record):
    """Load the driver unless only a reboot can; True when the wanted version is loaded afterwards."""
    version = desired["version"]
    host.forget()
    loaded = _driver_facts.read(host)["loaded"]
    users = unload.read(host)
    if loaded and loaded["version"] != version and not unload.obstacles(users):
        for name in unload.daemons(users):
            host.run(["systemctl", "stop", name], timeout=120, changes=True)
        users = unload.read(host)
        if not unload.obstacles(users) and unload.unload(host, users) is None:
            loaded = None
    if loaded:
        return loaded["version"] == version
    if any(_modules.loaded(host, name) for name in RIVALS) or state["kernel"]["running"] not in state["targets"]:
        return False
    for name in LOADED_AT_ONCE:
        answer = host.run(["modprobe", name], timeout=300, changes=True)
        if not answer.ok:
            _fail(host, desired, record, "the driver does not load: %s" % answer.summary(), answer.err)
    loaded = _driver_facts.read(host)["loaded"]
    if not loaded or loaded["version"] != version:
        reason = "after modprobe the loaded driver is %s, wanted is %s" % (
            loaded["version"] if loaded else "none",
            version,
        )
        _fail(host, desired, record, reason, "")
    return True


def _restore(host, stopped):
    """Start exactly the daemons that were stopped; the persistence daemon follows the driver and starts with it."""
    for name in stopped:
        if _modules.loaded(host, "nvidia") and not boot.active(host, name + ".service"):
            host.run(["systemctl", "start", name], timeout=120, changes=True)


# -- when it fails -------------------------------------------------------------------------------------------------


def _fail(host, desired, record, reason, printed):
    """Say why in the operator's terms; a host that had no driver before is put back, nouveau included."""
    version = desired["version"]
    make_log, log = build.make_log(host, version), host.read_text(installer.LOG) or ""
    known = installer_log.classify("\n".join((printed, make_log, log)))
    lines = ["nvidia_driver: %s" % reason]
    if known:
        lines.append("Cause: %s (%s). Remedy: %s." % (known["cause"], known["line"], known["remedy"]))
    if record["previous"] is None:
        lines.append(_withdraw(host, version))
        journal.enter(host, record, "done", failed=reason)
    else:
        _reload(host)
        lines.append(
            "Driver %s stood here before; to go back set nvidia_driver_version to it (its runfile is kept in %s)."
            % (record["previous"], runfile.DIRECTORY)
        )
    raise ConcernError(
        "\n".join(lines),
        cause=known["key"] if known else None,
        installer_log=installer_log.tail(log),
        make_log=installer_log.tail(make_log),
    )


def _reload(host):
    """After a failed upgrade: load whatever driver is on disk, so that the host is not left without one (D3)."""
    if not _modules.loaded(host, "nvidia") and not any(_modules.loaded(host, name) for name in RIVALS):
        for name in LOADED_AT_ONCE:
            host.run(["modprobe", name], timeout=300, changes=True)


def _withdraw(host, version):
    """Take back what this role put on a host that had no driver, and let nouveau drive the GPUs again.

    :returns: what was done, as a sentence for the error message.
    """
    done = []
    uninstaller = build.find_program(host, "nvidia-uninstall")
    if uninstaller:
        answer = host.run([uninstaller, "--silent", "--ui=none"], timeout=UNINSTALL_TIMEOUT, changes=True)
        done.append(
            "the partial installation was removed" if answer.ok else "removing it failed: %s" % answer.summary()
        )
    if any(row["module"] == "nvidia" and row["version"] == version for row in _driver_facts.read(host)["dkms"]):
        answer = host.run(["dkms", "remove", "-m", "nvidia", "-v", version, "--all"], timeout=120, changes=True)
        done.append(
            "its DKMS entry was removed" if answer.ok else "removing it from DKMS failed: %s" % answer.summary()
        )
    done += boot.withdraw(host)
    try:
        if _nouveau.withdraw(host):
            done.append("the block on nouveau was withdrawn")
    except ConcernError as error:
        done.append("the block on nouveau could not be withdrawn: %s" % error)
    return "The host is as before: %s." % ("; ".join(done) or "nothing was installed")
