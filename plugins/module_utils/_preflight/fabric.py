# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version set: what the NVLink fabric needs beside the driver, and whether all of it can be had (J1, N8).

Here, because the driver must not change on any host before the set is known to be available on all of them.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import fabric
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import finding, wanted

PLATFORMS = {
    "nvswitch": "NVSwitches on the PCI bus",
    "nvlink5": "an HGX board with NVLink 5",
    "rack": "a compute node of an NVL72 rack",
    "none": "no NVSwitch",
}


def version_set(facts, desired, options):
    """Every part is installed in the driver's version, or a repository has it in that version."""
    driver, found = wanted(desired, "nvidia_driver"), facts["fabric"]
    if not driver or not found or not found["parts"]:
        return None
    evidence = "%s, driver %s: %s" % (
        PLATFORMS[found["detected"]],
        driver["version"],
        ", ".join(_describe(part) for part in found["parts"]),
    )
    lacking = [part for part in found["parts"] if not part["fits"] and not part["offer"]]
    stranded = fabric.no_return(found, facts["driver"]["library"])
    if not lacking and stranded:
        return finding("version_set", "fail", "; ".join(stranded), fabric.RETURN_REMEDY + ".")
    if not lacking:
        return finding("version_set", "pass", evidence)
    if all(not part["known"] for part in lacking):
        if facts["lists_error"]:
            evidence += "; %s" % facts["lists_error"]
        return finding(
            "version_set",
            "not_measured",
            evidence,
            "The host has no package lists yet: fetch them (apt-get update), or set gpu_preflight_refresh to true.",
            "gpu_preflight_refresh",
        )
    offered = sorted({version for part in lacking for version in part["offered"]})
    if offered:
        evidence += "; there is %s" % ", ".join(offered)
    return finding(
        "version_set",
        "fail",
        evidence,
        "Add the repository that has them in exactly the driver's version (NVIDIA's for this distribution), or set "
        "nvidia_driver_version to a version that all of them have.",
        "nvidia_driver_version",
    )


def _describe(part):
    name, version = part["installed"] if part["fits"] else part["offer"] or (part["names"][0], None)
    if version:
        return "%s %s %s" % (name, version, "is installed" if part["fits"] else "can be had")
    wanted_version = part["version"] or "in any version"
    known = "in no repository" if part["known"] else "not known to be in a repository"
    return "%s %s is %s" % (" or ".join(part["names"]), wanted_version, known)


def fabric_manager(facts, desired, options):
    """The variable against the machine (J3, J10)."""
    driver, found = wanted(desired, "nvidia_driver"), facts["fabric"]
    if not driver or not found:
        return None
    asked, detected = driver["fabric_manager"], found["detected"]
    evidence = "this machine has %s; nvidia_driver_fabric_manager is %s" % (PLATFORMS[detected], asked)
    variable = "nvidia_driver_fabric_manager"
    if asked == "present" and detected == "rack":
        reason = fabric.leftover(found, {"fabric_manager": "auto"})
        return finding("fabric_manager", "fail", evidence, "Set it to auto: %s." % reason, variable)
    if asked == "present" and detected == "none":
        known = all(gpu["architecture"] for gpu in facts["own_gpus"])
        return finding(
            "fabric_manager",
            "fail" if known else "warn",
            evidence,
            "Without one the fabric manager does not start. Set it to auto, or look for the NVSwitches: lspci -d "
            "10de::0680.",
            variable,
        )
    if asked == "absent" and detected in ("nvswitch", "nvlink5"):
        remedy = "CUDA answers error 802 on these GPUs until a fabric manager runs: set it to auto."
        return finding("fabric_manager", "warn", evidence, remedy, variable)
    if detected == "none" and found["enabled"]:
        evidence += "; a fabric manager is left over, and will be disabled"
    return finding("fabric_manager", "pass", evidence)


def fabric_modules(facts, desired, options):
    """nvlsm reaches the switches of NVLink 5 through two modules that reduced kernel packages lack (J5)."""
    found = facts["fabric"]
    if not wanted(desired, "nvidia_driver") or not found or not found["modules"]:
        return None
    names = " and ".join(sorted(found["modules"]))
    if found["missing_modules"]:
        lacking = ", ".join("kernel %s has no module %s" % tuple(row) for row in found["missing_modules"])
        evidence = "%s (modules.dep); nvlsm reaches the NVSwitches through %s" % (lacking, names)
        return finding("fabric_modules", "fail", evidence, fabric.MODULE_REMEDY + ".")
    return finding("fabric_modules", "pass", "%s are there for %s" % (names, ", ".join(facts["targets"])))


CHECKS = [version_set, fabric_manager, fabric_modules]
