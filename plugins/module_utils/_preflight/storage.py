# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room for what will be written, and a temporary directory in which programs may run."""

from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import finding


def space(facts, desired, options):
    """Each file system against the sum of what the wanted changes put on it (A9, C2)."""
    short, enough = [], []
    for system in facts["space"]:
        if system["free"] is None:
            continue
        text = "%s: %d MiB free, %d MiB needed" % (
            ", ".join(system["paths"]),
            system["free"] >> 20,
            system["needed"] >> 20,
        )
        (short if system["free"] < system["needed"] else enough).append(text)
    if short:
        return finding(
            "space",
            "fail",
            "; ".join(short),
            "Free space there, or point nvidia_driver_tmpdir to a larger file system.",
            "nvidia_driver_tmpdir",
        )
    return finding("space", "pass", "; ".join(enough) or "nothing large is to be written")


def temporary_directory(facts, desired, options):
    """The installer unpacks itself there and runs what it unpacked (C1)."""
    folder = facts["tmpdir"]
    if folder is None:
        return None
    evidence = "%s is on %s (%s)" % (folder["path"], folder["mount"] or "an unknown mount", ",".join(folder["options"]))
    if folder["probe"] is not None:
        evidence += ", a program written there %s" % ("ran" if folder["probe"] else "did not run")
    if folder["probe"] is False or {"noexec", "ro"} & set(folder["options"]):
        return finding(
            "temporary_directory",
            "fail",
            evidence,
            "Set nvidia_driver_tmpdir to a directory on a writable file system that is mounted with exec.",
            "nvidia_driver_tmpdir",
        )
    if folder["mount"] is None and folder["probe"] is None:
        return finding("temporary_directory", "not_measured", evidence, "Set gpu_preflight_exec_probe to true.")
    return finding("temporary_directory", "pass", evidence)


CHECKS = [space, temporary_directory]
