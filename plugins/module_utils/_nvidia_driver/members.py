# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of the version set; see :mod:`member` for what one is. To add one, name it here."""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import display, fabric

#: In the order in which they are installed and started.
MEMBERS: tuple = (display.Display(), fabric.Fabric())


def options():
    """What the members add to the concern's argument spec."""
    return {name: spec for member in MEMBERS for name, spec in member.options.items()}


def independent():
    """Units that run without a driver, too."""
    return {name for member in MEMBERS for name in member.independent}


def folders():
    """Where the members keep what the way back needs."""
    return tuple(path for member in MEMBERS for path in member.folders)


def unit_of(desired):
    """``unit_of(process)`` over all members, for :func:`unload.read`."""
    return lambda process: next(filter(None, (member.unit_of(process, desired) for member in MEMBERS)), None)
