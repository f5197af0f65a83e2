# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps that make one driver true on a host. The way forward and the way back take the same ones.

Each phase is written to the journal before it begins; what is true is always read from the host. A step that cannot be
done raises; it puts nothing back (``undo`` does), except that modules are unloaded all or none.
"""

import contextlib

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts, _initramfs, _modules, _nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    flavour,
    installer,
    journal,
    judge,
    members,
    runfile,
    traces,
    unload,
)

#: Loaded in this order; each brings what it stands on.
LOADED_AT_ONCE = ("nvidia", "nvidia-uvm")
#: In-kernel drivers of the same GPUs; while one is loaded, ours cannot be.
RIVALS = _nouveau.MODULES


class Failed(ConcernError):
    """A command at the heart of the change failed. ``printed``: what it said; the logs may say more."""

    def __init__(self, reason, printed=""):
        super().__init__(reason)
        self.printed = printed


def change(concern, host, wanted, state, record, kept=None):
    """Make ``wanted`` true; everything up to the last look at it.

    :param wanted: a desired document of the state ``present``.
    :param state: what the concern read for it.
    :param record: the journal's record, written on the way.
    :param kept: on the way back, the members' part of the last-good set: they are put back instead of installed.
    :returns: True when the driver is loaded, False when the next boot loads it.
    """
    lacking = judge.problems(state, wanted)
    if lacking and not build.only_modules(lacking):
        _install(host, wanted, state, record)
    if lacking:
        _build(host, wanted, state, record)
    journal.enter(host, record, "members")
    for member in members.MEMBERS:
        if kept is None:
            member.install(host, wanted, state)
        elif member.name in kept:
            _all_done(member.put_back(host, kept[member.name]))
    journal.enter(host, record, "configure")
    _clean(concern, host, wanted)
    units_changed = boot.apply(host, state, wanted, len(state["gpus"]))
    with _images_rebuilt(host):
        journal.enter(host, record, "load")
        loaded = _load(host, wanted, state, record)
        if loaded:
            # an active one-shot unit makes no missing device file again: only a restart does
            again = lacking or record["stopped"] or units_changed or state["boot"]["devices"]
            boot.start(host, wanted, restart=bool(again))
            for member in members.MEMBERS if kept is None else ():
                member.start(host, wanted, state)
        journal.enter(host, record, "verify")
        _verify(concern, host, wanted, record, loaded, kept)
    return loaded


def _all_done(failed):
    if failed:
        raise ConcernError("nvidia_driver: %s" % "; ".join(failed))


# -- on disk -------------------------------------------------------------------------------------------------------


def _install(host, wanted, state, record):
    """Free the driver and run the installer."""
    version, path = wanted["version"], state["runfile"]["path"]
    runfile.verify(host, state["runfile"])
    runfile.prepare_tmpdir(host, wanted, path)
    journal.enter(host, record, "unload")
    state = _make_room(host, wanted, state, record)
    stays_loaded = _free(host, wanted, state, record)
    kernel = build.primary(state["kernel"], state["targets"])
    kind = judge.wanted_flavour(state, wanted)
    argv = ["/bin/sh", path] + flavour.arguments(
        version,
        kind,
        kernel,
        state["kernel"]["running"],
        wanted["tmpdir"],
        stays_loaded,
        wanted["ignore_compiler_mismatch"],
    )
    journal.enter(host, record, "install", flavour=kind, kernel=kernel, arguments=wanted["installer_arguments"])
    environment = dict(build.build_environment(host, state["kernel"], kernel), TMPDIR=wanted["tmpdir"])
    answer = installer.run(host, argv + wanted["installer_arguments"], wanted["installer_timeout"], environment)
    if not answer.ok:
        raise Failed("the installer failed: %s" % answer.summary(), answer.out + answer.err)


def _make_room(host, wanted, state, record):
    """Stop the units that stand in the way of the installer; the state with who uses the driver then."""
    units = [name for member in members.MEMBERS for name in member.stops(state, wanted)]
    for name in units:
        record["stopped"] = sorted({*record["stopped"], name})
        journal.enter(host, record, "unload")  # before the stop, so that a later run starts it again
        answer = host.run(["systemctl", "stop", name], timeout=180, changes=True)
        if not answer.ok:
            raise ConcernError("nvidia_driver: %s cannot be stopped: %s" % (name, answer.summary()))
    return dict(state, users=unload.read(host, members.unit_of(wanted))) if units else state


def _free(host, wanted, state, record):
    """Stop what may be stopped and unload the driver's modules, all or none; True when a driver stays loaded."""
    version = wanted["version"]
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
    hindered = stop_and_unload(host, state["users"], record, "unload")
    if hindered and not flavour.can_skip_load(version):
        raise ConcernError("nvidia_driver: the loaded driver cannot be unloaded: %s. Free the GPUs first" % hindered)
    return bool(hindered)


def stop_and_unload(host, users, record, phase):
    """Stop the units that may be stopped, then unload all modules or none; why that was not possible, or None."""
    for name in unload.daemons(users):
        record["stopped"] = sorted({*record["stopped"], name})
        journal.enter(host, record, phase)  # before the stop, so that a later run starts it again
        host.run(["systemctl", "stop", name], timeout=120, changes=True)  # one that goes on is found right below
    users = unload.read(host)  # seconds have passed: look again, right before the step that needs it
    return "; ".join(unload.obstacles(users)) or unload.unload(host, users)


def _build(host, wanted, state, record):
    """DKMS for every target kernel that lacks the modules, then the proof that nothing is missing on disk."""
    version = wanted["version"]
    journal.enter(host, record, "build")
    host.forget()
    for release in state["targets"]:
        driver = _driver_facts.read(host)
        if not build.problems(dict(driver, library={"version": version}), [version], version, [release]):
            continue
        answer = build.build(host, state["kernel"], version, release, wanted["ignore_compiler_mismatch"])
        if not answer.ok:
            raise Failed("DKMS failed for kernel %s: %s" % (release, answer.summary()), answer.out + answer.err)
    host.forget()
    # N2: the firmware of exactly the modules that will be loaded
    lacking = build.problems(_driver_facts.read(host), traces.firmware(host), version, state["targets"])
    if lacking:
        reasons = "; ".join("%s: %s" % (what, why) for what, _before, why in lacking)
        raise Failed("the installer ended without an error, but %s" % reasons)


def _clean(concern, host, wanted):
    """Remove what other versions have left beside the one that is now in place."""
    host.forget()
    for version in judge.left_over(concern.read(host, wanted), wanted):
        failed = traces.remove(host, version)
        if failed:
            raise ConcernError(
                "nvidia_driver: what driver %s left cannot be removed: %s" % (version, "; ".join(failed))
            )


def stale_images(host):
    """Initial RAM disks that carry NVIDIA modules and are older than the modules on disk (D12)."""
    stale = []
    for image in carriers(host):
        modules = host.glob("/lib/modules/%s/updates/dkms/nvidia.ko*" % image["release"])
        times = [stat.st_mtime_ns for stat in map(host.stat, modules) if stat]
        if times and max(times) > image["mtime_ns"]:
            stale.append(image)
    return stale


def carriers(host):
    """Initial RAM disks that carry NVIDIA modules."""
    images = _initramfs.read(host)["images"]
    return [image for image in images if image["holds"] and "nvidia" in image["holds"]["modules"]]


def _images_rebuilt(host):
    """Judged after the build: the modules that it made are what an image has to carry. While the body runs, the
    previous images stand beside the new ones; when it fails, they come back."""
    stale = stale_images(host)
    return rebuilt(host, stale, lambda image: image["error"] or "") if stale else contextlib.nullcontext()


def rebuilt(host, images, proven):
    initramfs = _initramfs.read(host)
    _initramfs.check_space(host, images, initramfs["images"])
    return _initramfs.rebuilt(host, initramfs["tool"], images, proven)


# -- in the kernel -------------------------------------------------------------------------------------------------


def _load(host, wanted, state, record):
    """Load the driver unless only a reboot can; True when the wanted one is loaded afterwards."""
    host.forget()
    state = dict(state, driver=_driver_facts.read(host))
    loaded, users = state["driver"]["loaded"], unload.read(host)
    if loaded and judge.is_loaded(state, wanted):
        return True
    if loaded and (unload.obstacles(users) or stop_and_unload(host, users, record, "load")):
        return False
    if any(_modules.loaded(host, name) for name in RIVALS) or state["kernel"]["running"] not in state["targets"]:
        return False
    for name in LOADED_AT_ONCE:
        answer = host.run(["modprobe", name], timeout=300, changes=True)
        if not answer.ok:
            raise Failed("the driver does not load: %s" % answer.summary(), answer.err)
    state = dict(state, driver=_driver_facts.read(host))
    if not judge.is_loaded(state, wanted):
        loaded = state["driver"]["loaded"] or {"version": "none", "flavour": None}
        found = " ".join(filter(None, (loaded["version"], loaded["flavour"])))
        raise Failed("after modprobe the loaded driver is %s, wanted is %s" % (found, wanted["version"]))
    return True


def _verify(concern, host, wanted, record, loaded, kept):
    """Read the host again: nothing may differ but what the end of this run settles.

    :raises ConcernError: naming what still differs.
    """
    host.forget()
    state, difference = concern.inspect(host, wanted)
    settled = {concern.TRANSACTION, state["runfile"]["path"]} | set(record["stopped"])
    left = ["%(what)s (%(why)s)" % item for item in difference.items if item["what"] not in settled]
    if loaded and kept is None:
        left += [problem for member in members.MEMBERS for problem in member.verify(host, wanted)]
    if left:
        raise ConcernError("nvidia_driver: all steps were done, and still differs: %s" % "; ".join(left))


def start_stopped(host, wanted, record):
    """Start exactly the units that were stopped, where the driver is loaded that is on disk.

    Beside another one they would not start (N1): then the next boot starts them.

    :returns: which of them did not start and what to do, or None. ``record`` keeps those.
    """
    failed, left = [], []
    fits = _driver_facts.read(host)["match"] == "match"
    for name in record["stopped"]:
        unwanted = name + ".service" == boot.PERSISTENCED_UNIT and not wanted["persistence"]
        waits = not fits and name not in members.independent()
        if unwanted or waits or boot.active(host, name + ".service"):
            continue
        answer = host.run(["systemctl", "start", name], timeout=120, changes=True)
        if not answer.ok:
            failed.append(answer.summary())
            left.append(name)
    record["stopped"] = left
    if not failed:
        return None
    return (
        "What was stopped for the driver does not start again: %s. It has to be of the loaded driver's version; "
        "correct it, then run the role again, which starts it" % "; ".join(failed)
    )
