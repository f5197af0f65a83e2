# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other two ways of a driver: back to the one before (``previous``), and off the host (``absent``).

The driver of ``previous`` is known to the host alone, so its document is resolved first; the checks then judge what
will really be installed.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import last_good, runfile
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight import gpus
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import finding, removed

VARIABLE = "nvidia_driver_state"


def resolved(host, desired):
    """The desired documents, with ``previous`` replaced by the driver that it means on this host, if there is one."""
    driver = desired.get("nvidia_driver")
    if not driver or driver["state"] != "previous":
        return desired
    return dict(desired, nvidia_driver=last_good.resolve(host, driver) or driver)


def read_back(host, desired):
    """What ``previous`` finds: ``{version, kept}``, None where nothing goes back. ``version`` None: there is no set.

    :param desired: as the operator wrote it. ``kept``: the set's runfile is on the host and unchanged.
    """
    if desired.get("nvidia_driver", {}).get("state") != "previous":
        return None
    found = last_good.read(host)
    if not found:
        return {"version": None, "kept": False}
    path = "%s/%s" % (runfile.DIRECTORY, runfile.name(found["version"], runfile.architecture(host) or "unknown"))
    sha256 = runfile.sha256(host, path)
    return {"version": found["version"], "kept": sha256 is not None and sha256 == found["sha256"]}


def way_back(facts, desired, options):
    """A way back that cannot be gone is found before the first step."""
    back = facts["way_back"]
    if back is None or not facts["own_gpus"]:
        return None
    if back["version"] is None:
        return finding("way_back", "fail", last_good.NO_SET, last_good.NO_SET_REMEDY + ".", VARIABLE)
    evidence = "the last change on this host replaced driver %s" % back["version"]
    if not back["kept"]:
        return finding(
            "way_back",
            "fail",
            "%s, whose runfile is no longer in %s, or is another file" % (evidence, runfile.DIRECTORY),
            "Set nvidia_driver_state to present and nvidia_driver_version to %s: it is fetched then." % back["version"],
            VARIABLE,
        )
    return finding("way_back", "pass", "%s, whose runfile is kept" % evidence)


def removal(facts, desired, options):
    """``absent`` concerns only whoever uses the driver now; where there is none, there is nothing to do."""
    driver = removed(desired)
    if not driver:
        return None
    found = facts["driver"]
    if found["packages"]:
        evidence = "packages own driver files: %s" % ", ".join(found["packages"])
        return finding("removal", "warn", evidence, "They stay: only what the runfile brought is removed.", VARIABLE)
    if not found["library"] and not found["loaded"]:
        return finding("removal", "pass", "no driver is on this host")
    used = gpus.in_use("removal", facts["users"], driver)
    return used or finding(
        "removal", "pass", "driver %s, which nothing uses" % (found["library"] or found["loaded"])["version"]
    )


CHECKS = [way_back, removal]
