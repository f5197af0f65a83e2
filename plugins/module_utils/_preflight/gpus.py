# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs, and who has them now."""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import boot, display, flavour, unload
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import finding, removed, wanted


def _replaces(facts, driver):
    """True when another driver than the wanted one is on the host."""
    library, loaded = facts["driver"]["library"], facts["driver"]["loaded"]
    return any(found and found["version"] != driver["version"] for found in (library, loaded))


def gpu_count(facts, desired, options):
    """GPUs on the bus against the inventory's number; without a number, none at all is only worth a warning (P18)."""
    count, expected = len(facts["pci"]["gpus"]), options["expected_gpus"]
    evidence = "%d NVIDIA GPU(s) on the PCI bus (sysfs)" % count
    if expected is not None and count != expected:
        return finding(
            "gpu_count",
            "fail",
            "%s, gpu_preflight_expected_gpus is %d" % (evidence, expected),
            "A GPU absent from PCI is a matter of power, seating or BIOS: check the hardware, or correct the number.",
            "gpu_preflight_expected_gpus",
        )
    if count == 0 and expected is None:
        return finding(
            "gpu_count",
            "warn",
            evidence,
            "No driver is installed. Set gpu_preflight_expected_gpus, so that a dead GPU cannot pass for none.",
            "gpu_preflight_expected_gpus",
        )
    return finding("gpu_count", "pass", evidence)


def passthrough(facts, desired, options):
    """A GPU bound to vfio-pci belongs to a virtual machine and is never unbound (B15)."""
    own = facts["own_gpus"]
    given = [gpu for gpu in facts["pci"]["gpus"] if gpu not in own]
    if not given or not wanted(desired, "nvidia_driver"):
        return None
    evidence = "bound to vfio-pci: %s" % ", ".join(gpu["address"] for gpu in given)
    if options["passthrough"] == "allow":
        return finding("passthrough", "pass", evidence + "; they are left alone")
    return finding(
        "passthrough",
        "fail",
        evidence,
        "These GPUs are passed through to virtual machines. Set gpu_preflight_passthrough to allow to leave them "
        "alone, or free them yourself.",
        "gpu_preflight_passthrough",
    )


def generation(facts, desired, options):
    """Every GPU must be driven by the wanted branch, and all of them by one flavour of its modules (B14)."""
    driver, own = wanted(desired, "nvidia_driver"), facts["own_gpus"]
    if not driver or not own:
        return None
    kinds = ", ".join(sorted({"%s (%s)" % (gpu["model"] or gpu["device"], gpu["architecture"]) for gpu in own}))
    chosen, reason = flavour.choose(own, driver["version"], driver["kernel_module_type"])
    if reason:
        variable, _colon, sentence = reason.partition(": ")
        return finding("gpu_generation", "fail", kinds, "%s: %s." % (variable, sentence), variable)
    told = facts["supported"]
    if told is not None:
        return _by_the_runfile(own, told, chosen, driver["version"])
    if any(gpu["architecture"] is None for gpu in own):
        return finding(
            "gpu_generation",
            "warn",
            kinds,
            "A device id is not in the collection's table: whether branch and modules fit it is not known.",
            "nvidia_driver_version",
        )
    return finding("gpu_generation", "pass", "%s: %s modules of %s" % (kinds, chosen, driver["version"]))


def _by_the_runfile(own, told, chosen, version):
    """The runfile's own list of GPUs knows better than any table."""
    dropped, unfit, unlisted = [], [], []
    for gpu in own:
        label, entry = "%s at %s" % (gpu["model"] or gpu["device"], gpu["address"]), told[gpu["device"]]
        if entry is None:
            unlisted.append(label)
        elif entry["legacy_branch"]:
            dropped.append("%s (last branch: %s)" % (label, entry["legacy_branch"]))
        elif chosen not in entry["flavours"]:
            unfit.append("%s (%s)" % (label, " or ".join(entry["flavours"])))
    source = "supported-gpus.json of the runfile %s" % version
    if dropped:
        remedy = "Set nvidia_driver_version to that branch."
        evidence = "%s: no longer driven: %s" % (source, ", ".join(dropped))
        return finding("gpu_generation", "fail", evidence, remedy, "nvidia_driver_version")
    if unfit:
        evidence = "%s: the %s modules do not drive %s" % (source, chosen, ", ".join(unfit))
        remedy = "Set nvidia_driver_kernel_module_type to what is in brackets."
        return finding("gpu_generation", "fail", evidence, remedy, "nvidia_driver_kernel_module_type")
    if unlisted:
        evidence = "%s does not list %s" % (source, ", ".join(unlisted))
        remedy = "A newer driver may be needed: look the GPU up in the release notes of the driver."
        return finding("gpu_generation", "warn", evidence, remedy, "nvidia_driver_version")
    return finding("gpu_generation", "pass", "%s: the %s modules drive all GPUs of this host" % (source, chosen))


def foreign_driver(facts, desired, options):
    """Driver files that belong to packages would mix with the runfile's (D6, D10)."""
    driver = wanted(desired, "nvidia_driver")
    if not driver:
        return None
    packages = facts["driver"]["packages"]
    if packages:
        return finding(
            "foreign_driver",
            "fail",
            "packages own driver files: %s" % ", ".join(packages),
            "Remove these packages first: their files and the runfile's would mix. 'apt-get purge' (or 'dnf remove') "
            "with all of these names in one command leaves no flavour's files in the way of another's.",
        )
    return finding("foreign_driver", "pass", "no package owns driver files")


def foreign_unit(facts, desired, options):
    """What somebody put in the place of the persistence daemon's unit is theirs: it is never overwritten."""
    if not facts["foreign_unit"]:
        return None
    return finding(
        "persistence_daemon",
        "fail",
        "%s: %s" % (boot.PERSISTENCED_FILE, boot.FOREIGN_UNIT),
        boot.FOREIGN_UNIT_REMEDY + ".",
        "nvidia_driver_persistence",
    )


def nouveau(facts, desired, options):
    """The GPUs can have one driver: with nouveau in place and not to be blocked, ours never loads."""
    if not wanted(desired, "nvidia_driver"):
        return None
    loaded = facts["in_kernel_drivers"]
    if loaded is None:
        return finding(
            "nouveau", "not_measured", "/sys/module shows no module", "Run as root, where sysfs is not masked."
        )
    if not loaded:
        return finding("nouveau", "pass", "no in-kernel GPU driver is loaded (/sys/module)")
    if wanted(desired, "nouveau"):
        return finding(
            "nouveau", "pass", "%s is loaded; it will be blocked, a reboot completes that" % ", ".join(loaded)
        )
    return finding(
        "nouveau",
        "fail",
        "%s is loaded, and nouveau_state does not ask to block it" % ", ".join(loaded),
        "Set nouveau_state to present.",
        "nouveau_state",
    )


def driver_in_use(facts, desired, options):
    """Who would lose the GPUs when the driver is replaced (D1, D2, D3)."""
    driver = wanted(desired, "nvidia_driver")
    if not driver or not _replaces(facts, driver):
        return None
    evidence = "another driver is installed, nothing uses it (/proc/*/fd, /sys/module)"
    return in_use("driver_in_use", facts["users"], driver) or finding("driver_in_use", "pass", evidence)


def in_use(name, users, driver):
    """The finding that somebody uses the driver in place, with what is allowed to do about it; None: nobody does.

    :param driver: the desired document of ``nvidia_driver``.
    """
    holders = unload.holders(users)
    if not holders:
        return None
    evidence = "the driver in place is in use by %s" % "; ".join(holders)
    if driver["wait_for_idle"]:
        remedy = "The role waits up to %d s for their end, and changes nothing before." % driver["wait_for_idle"]
        return finding(name, "warn", evidence, remedy, "nvidia_driver_wait_for_idle")
    stop = "Stop these, or set nvidia_driver_wait_for_idle to the seconds to wait for their end"
    if driver["state"] != "absent" and not flavour.can_skip_load(driver["version"]):
        remedy = "%s, or use branch %d or newer, which installs beside a running driver." % (
            stop,
            flavour.SKIP_LOAD_SINCE,
        )
        return finding(name, "fail", evidence, remedy, "nvidia_driver_version")
    if driver["replace_in_use"]:
        remedy = "nvidia_driver_replace_in_use allows it: the change is complete after the next boot."
        return finding(name, "warn", evidence, remedy, "nvidia_driver_replace_in_use")
    remedy = stop + ", or set nvidia_driver_replace_in_use to true."
    return finding(name, "fail", evidence, remedy, "nvidia_driver_replace_in_use")


def graphical_session(facts, desired, options):
    """The installer gives up beside an X server, whichever card that draws on (D2, D3)."""
    driver = wanted(desired, "nvidia_driver")
    library = facts["driver"]["library"]
    if not driver or facts["display"] is None or (library and library["version"] == driver["version"]):
        return None
    here = display.describe(facts["display"])
    if not here:
        return finding("graphical_session", "pass", "text mode: no display manager and no X server or compositor runs")
    if driver["display"] == "stop" and facts["display"]["active"]:
        remedy = "nvidia_driver_display is stop: it is stopped for the change, which ends its sessions."
        return finding("graphical_session", "warn", "running: " + here, remedy, display.VARIABLE)
    remedy = "Switch to text mode (systemctl isolate multi-user.target), or set nvidia_driver_display to stop."
    if driver["display"] == "stop":
        remedy = "No display manager can be stopped for it: end it."
    return finding("graphical_session", "fail", "running: " + here, remedy, display.VARIABLE)


def installer_running(facts, desired, options):
    """A second installer beside a running one breaks both (P12)."""
    if not wanted(desired, "nvidia_driver") and not removed(desired):
        return None
    if facts["installers"]:
        ours = all(installer["ours"] for installer in facts["installers"])
        return finding(
            "installer_running",
            "warn" if ours else "fail",
            "at work: %s" % ", ".join("%(command)s (pid %(pid)d)" % installer for installer in facts["installers"]),
            "An earlier run started it, and the role waits for it." if ours else "Let it end first.",
        )
    return finding("installer_running", "pass", "no driver installer is running (/proc/*/cmdline)")


CHECKS = [
    gpu_count,
    passthrough,
    generation,
    foreign_driver,
    foreign_unit,
    nouveau,
    driver_in_use,
    graphical_session,
    installer_running,
]
