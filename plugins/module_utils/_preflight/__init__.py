# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reason why a change would fail, all at once and before the first change.

:mod:`facts` reads the host, the other parts judge what was read: each check is a pure function of
``(facts, desired, options)`` that answers one finding, or None where it does not apply. To add a check, write it in the
part it belongs to and name it in that part's ``CHECKS``.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import version_set
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight import (
    fabric,
    facts,
    gpus,
    kernels,
    storage,
    system,
    ways,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import wanted

#: The role's own options. What is wanted of the host comes from the other roles' desired documents.
OPTIONS: dict = {
    "expected_gpus": {"type": "int"},
    "passthrough": {"type": "str", "choices": ["fail", "allow"], "default": "fail"},
    "secure_boot": {"type": "str", "choices": ["fail", "allow"], "default": "fail"},
    "exec_probe": {"type": "bool", "default": True},
    "refresh": {"type": "bool", "default": True},
}
CHECKS = system.CHECKS + ways.CHECKS + gpus.CHECKS + fabric.CHECKS + kernels.CHECKS + storage.CHECKS


def check(read, desired, options):
    """All findings, in the order of :data:`CHECKS`; pure.

    :param read: from :func:`facts.read`, and ``way_back`` from :func:`ways.read_back`.
    :param desired: dict of concern name -> complete desired document, from :func:`ways.resolved`.
    :returns: list of ``{id, result: pass|warn|fail|not_measured, evidence, remedy, variable}``; ``remedy`` and
        ``variable`` are empty where there is nothing to do or no variable decides.
    """
    found = [examine(read, desired, options) for examine in CHECKS]
    return [finding for finding in found if finding is not None]


def examination(host, desired, options, probe=False):
    """Read the host and check it.

    :param options: dict by :data:`OPTIONS`; what is missing takes its default.
    :param probe: as far as the options allow, also run a program in the driver's temporary directory, unpack the
        runfile there to see which GPUs it drives (nothing of both is left), and fetch apt's package lists where they
        do not have what is needed.
    :returns: ``{findings, version_set}``: the list of :func:`check`, and :func:`version_set.described` or None.
    """
    complete = {name: spec.get("default") for name, spec in OPTIONS.items()}
    complete.update((name, value) for name, value in options.items() if value is not None)
    exec_probe = probe and complete["exec_probe"]
    back = ways.read_back(host, desired)
    desired = ways.resolved(host, desired)
    read = facts.read(host, desired, exec_probe)
    if probe and complete["refresh"] and facts.lists_are_due(read):
        error = facts.refresh(host)
        read = dict(facts.read(host, desired, exec_probe), lists_error=error)
    driver = wanted(desired, "nvidia_driver")
    return {
        "findings": check(dict(read, way_back=back), desired, complete),
        "version_set": version_set.described(driver, read["own_gpus"], read["fabric"]) if read["fabric"] else None,
    }


def findings(host, desired, options):
    """The findings of a look that changes nothing at all."""
    return examination(host, desired, options)["findings"]


def failure(found):
    """The failed findings as one message, a line each; empty when none failed."""
    return "\n".join(
        "%s: %s. %s" % (finding["id"], finding["evidence"], finding["remedy"])
        for finding in found
        if finding["result"] == "fail"
    )
