# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a finding, and the desired documents that the checks ask about."""


def finding(name, result, evidence, remedy="", variable=""):
    """One finding. ``evidence`` says what was read and from where; ``remedy`` is a sentence for whoever must act."""
    if result == "pass":
        remedy = variable = ""
    return {"id": name, "result": result, "evidence": evidence, "remedy": remedy, "variable": variable}


def wanted(desired, concern):
    """The desired document of a concern that is to be present, else None."""
    document = desired.get(concern)
    return document if document and document.get("state") == "present" else None


def removed(desired):
    """The desired document of a driver that is to leave the host, else None."""
    document = desired.get("nvidia_driver")
    return document if document and document.get("state") == "absent" else None
