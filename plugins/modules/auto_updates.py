#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: auto_updates
short_description: Keep automatic package updates off the driver set and the kernel, and prove it
version_added: 0.1.0
author:
  - The gpufleet.metal authors (@gpufleet)
description:
  - On a GPU host an unattended update of a kernel, a driver library or a container runtime ends running jobs.
    This module makes sure that no package changes by itself, or, where security updates shall go on, none of the driver
    set, the container toolkit and the kernel.
  - On hosts with apt it writes a file that apt reads last (C(/etc/apt/apt.conf.d/99zz-gpufleet-auto-updates)), so that
    it holds whatever C(10periodic), C(20auto-upgrades) and others say, masks the timers and services C(apt-daily),
    C(apt-daily-upgrade) and C(unattended-upgrades), and makes needrestart list instead of restart.
  - With O(state=security) the same file switches apt's periodic run and unattended-upgrades on, excludes the set by
    anchored expressions in C(Unattended-Upgrade::Package-Blacklist) and forbids reboots and removals; the timers are
    enabled and run. After a change, C(unattended-upgrade --dry-run) must name no package of the set. Which
    repositories it takes updates from stays the distribution's and the operator's choice.
  - Whatever the mode, updates that are fetched by other ways and installed at a boot stay off. The units of
    PackageKit's offline update and of fwupd's refresh are masked.
  - On hosts with dnf it masks the timers and services of dnf-automatic and sets C(apply_updates) of
    C(/etc/dnf/automatic.conf) to V(no), for whoever runs the program by other ways. With O(state=security) on hosts
    with dnf4, only C(dnf-automatic.timer) is left, and a drop-in of its service names a file of ours, which asks for
    security updates and excludes the set. On hosts with snapd it holds the refreshes.
  - An update that is running is waited for, never stopped.
  - What is true is read from the effective configuration, not from a marker. systemd is told to reload its units only
    when a link was written, and not at all where that would take the GPUs from running containers (NVIDIA device nodes
    without a link in C(/dev/char)); there the masks are complete after the next boot, and the timers are stopped at
    once.
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: full
    description: One line a setting, unit or file.
  idempotent:
    support: full
    description: A second run changes nothing and reloads nothing.
  platform:
    support: full
    description: Debian and Ubuntu (apt), Enterprise Linux (dnf-automatic), hosts with snapd.
    platforms: debian, rhel
options:
  state:
    description:
      - V(disabled) switches automatic updates off.
      - V(security) lets unattended-upgrades (hosts with apt) or dnf-automatic (hosts with dnf4) go on with everything
        but the driver set, the container toolkit and the kernel. It is installed where missing. Refused with dnf5.
      - V(restored) puts back what was there before this module. Its files go, and each unit is masked, enabled and
        running again as it was.
      - V(unmanaged) does nothing.
    type: str
    choices: [disabled, security, restored, unmanaged]
    default: disabled
  excluded_packages:
    description: More packages that O(state=security) leaves alone. Whole names, no patterns.
    type: list
    elements: str
    default: []
  wait_timeout:
    description:
      - How many seconds to wait for a package operation that is running, such as the first boot's unattended upgrade.
    type: int
    default: 900
  needrestart:
    description: Whether to manage needrestart's drop-in on hosts with apt.
    type: bool
    default: true
  needrestart_protected:
    description: Beginnings of unit names that needrestart never restarts, even in its automatic mode.
    type: list
    elements: str
    default:
      - containerd
      - crio
      - docker
      - kubelet
      - nvidia-dcgm
      - nvidia-fabricmanager
      - nvidia-imex
      - nvidia-persistenced
      - podman
      - slurmd
  snap:
    description: Whether to hold snap refreshes on hosts with snapd.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Switch automatic updates off
  gpufleet.metal.auto_updates:
    state: disabled

- name: Let security updates go on for everything but the driver set, the kernel and one more package
  gpufleet.metal.auto_updates:
    state: security
    excluded_packages: [slurmd]

- name: Put back what was there before
  gpufleet.metal.auto_updates:
    state: restored
"""

RETURN = r"""
actions:
  description: What was changed, or in check mode would be, as sentences.
  returned: success
  type: list
  elements: str
  sample: ["Mask apt-daily.timer"]
unknown:
  description: What could not be read, each with C(what) and C(why).
  returned: success
  type: list
  elements: dict
  sample: []
reboot_required:
  description: Whether only a reboot completes the change; always false for this module.
  returned: success
  type: bool
  sample: false
reboot_reasons:
  description: Why a reboot is required.
  returned: success
  type: list
  elements: str
  sample: []
proof:
  description: What apt or unattended-upgrade still says otherwise.
  returned: failure of the proof
  type: list
  elements: str
conflicts:
  description: Settings of others that keep updates on and that only their owner can remove.
  returned: failure because of such settings
  type: list
  elements: str
holders:
  description: The package operations that were still running after O(wait_timeout).
  returned: failure because of a running package operation
  type: list
  elements: str
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import AutoUpdates
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import run_module


def main():
    run_module(AutoUpdates())


if __name__ == "__main__":
    main()
