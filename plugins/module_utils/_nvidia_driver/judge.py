# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver on a host lacks, whether only a reboot can load it, and what speaks against beginning. All pure.

``state`` is what the concern read; ``wanted`` a desired document of the state ``present`` (see ``last_good.resolve``).
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    flavour,
    journal,
    members,
    unload,
)


def wanted_flavour(state, wanted):
    """``open`` or ``proprietary``; None when no flavour drives all GPUs of the host."""
    return flavour.choose(state["gpus"], wanted["version"], wanted["kernel_module_type"])[0]


def problems(state, wanted):
    """What the installation on disk lacks: list of ``(what, before, why)``; [] when it is complete."""
    version = wanted["version"]
    record = state["journal"]
    found = build.problems(state["driver"], state["firmware"], version, state["targets"])
    if not state["source"]:
        found.append((build.source(version), None, "DKMS builds the modules of a new kernel from it"))
    died_installing = journal.interrupted(record) == "install" and record.get("version") == version
    if died_installing and state["installed_by_log"] != version:
        found.insert(0, ("installation", "interrupted", "an earlier run died while the installer was at work"))
    if journal.interrupted(record) in ("withdraw", "remove"):
        found.insert(0, ("installation", "partly removed", "an earlier run could not take back all of its changes"))
    kind = wanted_flavour(state, wanted)
    others = {state["flavours"].get(release) for release in state["targets"]} - {kind, None}
    if kind and others and not any(what.startswith("user-space") for what, _before, _why in found):
        why = "these GPUs are to run the %s modules" % kind
        found.insert(0, ("kernel module flavour", ", ".join(sorted(others)), why))
    return found


def is_loaded(state, wanted):
    """True when the wanted version is loaded, in the wanted flavour as far as the kernel tells one."""
    loaded = state["driver"]["loaded"]
    return bool(
        loaded and loaded["version"] == wanted["version"] and loaded["flavour"] in (wanted_flavour(state, wanted), None)
    )


def reason_for_reboot(state):
    """Why the driver cannot be loaded without a reboot, or None when it can."""
    if state["rival"]:
        return "%s drives the GPUs until then" % state["rival"]
    if state["kernel"]["running"] not in state["targets"]:
        return "the running kernel %s cannot get modules (its headers are missing)" % state["kernel"]["running"]
    loaded = state["driver"]["loaded"]
    hindered = unload.obstacles(state["users"]) if loaded else []
    return "%s is loaded and in use by %s" % (loaded["version"], "; ".join(hindered)) if hindered else None


def refusals(state, wanted):
    """Reasons not to begin, each with the variable that allows it or the remedy; [] when nothing speaks against it."""
    found = []
    version = wanted["version"]
    if state["architecture"] is None:
        found.append("nvidia_driver: no runfile exists for this host's architecture. Supported: x86_64, aarch64")
    _kind, reason = flavour.choose(state["gpus"], version, wanted["kernel_module_type"])
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
    for member in members.MEMBERS:
        found += member.refusals(state, wanted)
    lacking = problems(state, wanted)
    if not lacking or build.only_modules(lacking):
        return found
    if state["driver"]["packages"]:
        found.append(
            "nvidia_driver: packages of the distribution own driver files: %s. Theirs and the runfile's would mix. "
            "Remove these packages first" % ", ".join(state["driver"]["packages"])
        )
    found += in_use(state, wanted)
    if not flavour.can_skip_load(version) and unload.obstacles(state["users"]):
        found.append(
            "nvidia_driver_version: the installer of %s loads what it built, which the loaded driver prevents (%s). "
            "Free the GPUs, or use branch %d or newer"
            % (version, "; ".join(unload.obstacles(state["users"])), flavour.SKIP_LOAD_SINCE)
        )
    return found


def in_use(state, wanted):
    """The refusal to replace or remove a driver that somebody uses: a list with one sentence, or []."""
    holders = unload.holders(state["users"])
    if not holders or wanted["replace_in_use"]:
        return []
    return [
        "nvidia_driver_replace_in_use: the driver in place is in use by %s. Nothing was changed. Replacing it breaks "
        "new programs on the GPUs until the reboot. Stop these; or set nvidia_driver_wait_for_idle to the seconds to "
        "wait for their end; or set nvidia_driver_replace_in_use to true" % "; ".join(holders)
    ]


def left_over(state, wanted):
    """Versions of which something lies beside the wanted driver: dict of version -> what. {} while another driver is
    in place; what is loaded until the reboot is not left over yet, and what a package owns is not ours."""
    library, loaded = state["driver"]["library"], state["driver"]["loaded"]
    if state["driver"]["packages"] or not library or library["version"] != wanted["version"]:
        return {}
    kept = {wanted["version"]} | ({loaded["version"]} if loaded else set())
    return {version: what for version, what in sorted(state["traces"].items()) if version not in kept}
