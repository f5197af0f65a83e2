# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which role must run after which: one table, read by gpu_assess and by nothing else.

``site.yml`` names its roles in :data:`ORDER`. When a concern differs, the concerns downstream of it are due too,
because what it changes is what they read: a new driver needs new locks, a blocked nouveau needs the driver's reboot.
"""

#: The concerns in the order in which site.yml acts.
ORDER = ("auto_updates", "nouveau", "nvidia_driver", "version_lock")

#: concern -> the concerns whose state its change can alter.
DOWNSTREAM = {
    "auto_updates": (),
    "nouveau": ("nvidia_driver",),
    "nvidia_driver": ("version_lock",),
    "version_lock": (),
}


def due(statuses):
    """The concerns that must run.

    :param statuses: dict of concern -> ``clean``, ``differs``, ``unknown``, ``pending`` or ``unmanaged``.
    :returns: list of concerns in :data:`ORDER`: those that are not clean, and everything managed downstream of them.
    """
    wanted = set()
    for name in ORDER:  # downstream always comes later in ORDER, so one pass reaches every level
        if statuses.get(name, "unmanaged") not in ("clean", "unmanaged") or name in wanted:
            wanted.add(name)
            wanted.update(DOWNSTREAM[name])
    return [name for name in ORDER if name in wanted and statuses.get(name, "unmanaged") != "unmanaged"]
