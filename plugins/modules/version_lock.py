#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: version_lock
short_description: Lock the driver set, the container toolkit and the kernel at their installed versions
version_added: 0.1.0
author:
  - The gpufleet.metal authors (@gpufleet)
description:
  - Computes from the installed packages which of them belong together with the GPU driver (the container toolkit,
    the fabric manager set, packaged parts of a driver, the kernel with its headers and meta-packages) and locks each of
    them by name, never by a pattern.
  - A lock is a dpkg hold and a stanza in C(/etc/apt/preferences.d/00-gpufleet-version-lock) that pins the installed
    version above 1000 and refuses every other one.
  - On hosts with dnf it is an entry for each installed version in dnf's own list of version locks, for which dnf4 needs
    its plugin versionlock.
  - Where the driver comes from a runfile, packages that would bring a second driver in are refused, too. The
    container toolkit, the fabric manager set and C(cuda-toolkit-X-Y) stay installable.
  - After a change the lock is proven. apt is asked for its candidates, dnf for the locks that it applies, and a full
    upgrade and the installation of likely offenders are simulated; none may touch the set.
  - Holds and pins of others stay as they are. A foreign stanza that apt reads before ours and that contradicts it is
    named, and nothing is changed.
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: full
    description: The packages with their versions, and the holds.
  idempotent:
    support: full
    description: A second run changes nothing and runs no tool.
  platform:
    support: full
    description:
      - Debian and Ubuntu; Enterprise Linux and Fedora, with dnf4 (and its plugin versionlock, package
        C(python3-dnf-plugin-versionlock)) or dnf5.
    platforms: debian, rhel
options:
  state:
    description:
      - V(present) locks what is installed now. A package of the set that is installed later is locked by the next run.
      - V(absent) removes our preferences file and lifts the holds that this module had set.
      - V(unmanaged) does nothing.
    type: str
    choices: [present, absent, unmanaged]
    default: present
  kernel:
    description: Whether to lock the kernel packages (image, headers, modules and the meta-packages) as well.
    type: bool
    default: true
  driver_source:
    description:
      - Where the driver comes from. With V(runfile), packages that bring a driver are refused.
      - With V(packages), the installed ones are locked and nothing is refused.
    type: str
    choices: [runfile, packages]
    default: runfile
  extra_packages:
    description: More packages to lock where they are installed. Whole names, no patterns.
    type: list
    elements: str
    default: []
  versions:
    description:
      - Packages of the set that shall have these versions, up or down; a package that is not installed is installed.
      - The locks of these packages, and no others, are lifted for one transaction. They are back whatever becomes of
        it. A run that was killed in between is named by the next one, which locks them again.
      - Name what belongs together, for example all four packages of the container toolkit; each version in quotes.
    type: dict
    default: {}
  wait_timeout:
    description: How many seconds to wait for a package operation that is running.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: Lock driver set, container toolkit and kernel
  gpufleet.metal.version_lock:
    state: present

- name: Lock one more package, but let the kernel move
  gpufleet.metal.version_lock:
    kernel: false
    extra_packages: [rdma-core]

- name: Bring the container toolkit to one version, in one transaction, and lock it there
  gpufleet.metal.version_lock:
    versions:
      libnvidia-container1: "1.17.8-1"
      libnvidia-container-tools: "1.17.8-1"
      nvidia-container-toolkit: "1.17.8-1"
      nvidia-container-toolkit-base: "1.17.8-1"

- name: Lift our locks
  gpufleet.metal.version_lock:
    state: absent
"""

RETURN = r"""
actions:
  description: What was changed, or in check mode would be, as sentences.
  returned: success
  type: list
  elements: str
  sample: ["Hold linux-image-amd64"]
locked:
  description: The set, computed from the installed packages.
  returned: success
  type: list
  elements: dict
  sample: [{"group": "kernel", "name": "linux-image-amd64", "version": "6.1.119-1"}]
  contains:
    name:
      description: The package, with its architecture when that is a foreign one.
      type: str
    version:
      description: The installed version.
      type: str
    group:
      description: Why it is in the set; one of C(toolkit), C(fabric), C(driver), C(kernel) and C(extra).
      type: str
proof:
  description: The transcript of the last proof; on failure of the one that failed.
  returned: always, where a proof was made
  type: list
  elements: dict
  sample: [{"command": "apt-get -s dist-upgrade", "result": "touches nothing of the set"}]
  contains:
    command:
      description: What was simulated.
      type: str
    result:
      description: What it would touch.
      type: str
before:
  description: The versions before the transaction, by package; null for one that was not installed.
  returned: failure to bring packages to O(versions)
  type: dict
  sample: {"nvlsm": "2025.03.1-1"}
after:
  description: The versions that are installed now, by package.
  returned: failure to bring packages to O(versions)
  type: dict
  sample: {"nvlsm": "2025.03.1-1"}
blockers:
  description: Locked packages that are in the way of the transaction.
  returned: failure to bring packages to O(versions)
  type: list
  elements: str
conflicts:
  description: Stanzas of others that contradict the lock and that only their owner can move.
  returned: failure because of such stanzas
  type: list
  elements: str
holders:
  description: The package operations that were still running after O(wait_timeout).
  returned: failure because of a running package operation
  type: list
  elements: str
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
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import run_module
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import VersionLock


def main():
    run_module(VersionLock())


if __name__ == "__main__":
    main()
