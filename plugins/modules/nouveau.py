#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: nouveau
short_description: Keep the in-kernel drivers nouveau and nova_core off the GPUs
version_added: 0.1.0
description:
  - Blocks the drivers in C(modprobe.d), in the initial RAM disk of every installed kernel (the crash kernel's too), and
    by choice on the kernel command line.
  - Decides from what an initial RAM disk holds, not from a configuration file that may be newer than it.
  - Everything is staged. The module never reboots; a loaded nouveau that nothing uses is unloaded, any other is
    reported through RV(reboot_required).
  - If a rebuild fails or its result still loads nouveau, the previous images and files are put back.
options:
  state:
    description:
      - V(present) blocks the drivers, V(absent) withdraws only what this module put there.
      - V(unmanaged) reads and changes nothing.
    type: str
    choices: [present, absent, unmanaged]
    default: present
  kernel_command_line:
    description:
      - Also put C(modprobe.blacklist=nouveau,nova_core) on the kernel command line, through a drop-in of GRUB or
        through C(grubby).
      - Off by default because the other two places suffice and are proven, while this one generates the boot loader's
        configuration again.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would change, and changes nothing.
  diff_mode:
    support: full
    description: Says what differs, before and after.
  idempotent:
    support: full
    description: A second run with the same options changes nothing.
  platform:
    support: full
    platforms: posix
    description: Linux with initramfs-tools or dracut.
author:
  - The gpufleet.metal authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Keep nouveau off the GPUs
  gpufleet.metal.nouveau:
    state: present

- name: Let nouveau drive the GPUs again
  gpufleet.metal.nouveau:
    state: absent
"""

RETURN = r"""
actions:
  description: What was done, or in check mode would be done.
  returned: always
  type: list
  elements: str
  sample: ["Write /etc/modprobe.d/gpufleet-nouveau.conf"]
reboot_required:
  description: True while a driver that is blocked on disk is still loaded.
  returned: always
  type: bool
reboot_reasons:
  description: Why a reboot is required.
  returned: always
  type: list
  elements: str
  sample: ["nouveau is loaded; it is blocked from the next boot on"]
unknown:
  description: What could not be read, with the reason.
  returned: always
  type: list
  elements: dict
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import run_module
from ansible_collections.gpufleet.metal.plugins.module_utils._nouveau import Nouveau


def main():
    run_module(Nouveau())


if __name__ == "__main__":
    main()
