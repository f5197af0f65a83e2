#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: nvidia_driver
short_description: Install the NVIDIA driver from its runfile, load it, and have it ready after each boot
version_added: 0.1.0
author:
  - The gpufleet.metal authors (@gpufleet)
extends_documentation_fragment:
  - gpufleet.metal.nvml
description:
  - Makes one version of the driver true on a host, by the vendor's runfile without the OpenGL files, with its kernel
    modules built by DKMS for the running kernel, for the one that boots next and for every other installed kernel whose
    headers are there.
  - Decides from what is on the host (libraries, DKMS, each module's version, firmware, the loaded module), never from a
    marker. The version that is wanted and complete is left alone.
  - The installer runs detached under a lock, so that a dropped connection neither ends nor doubles it; a later run
    waits for it.
  - A driver that is loaded and that nothing uses is unloaded first, all of its modules or none. No process is ended,
    and no module is removed by force.
  - Where only a reboot can load the driver, because nouveau or a driver in use is loaded, everything is prepared and
    RV(reboot_required) is true. The module never reboots.
  - When a change fails, the driver that was there before is put back from its kept runfile, with its modules for every
    kernel, its options and the services that were running; the message tells why the change failed and how the way back
    went. On a host that had no driver, everything is taken away again, and the block on nouveau is withdrawn.
  - Each phase is written to a journal on the host before it begins. A run that was cut off is completed, or taken back,
    by the next one.
  - The runfile must lie at RV(runfile.path) already; the role nvidia_driver brings it there.
  - A run that changes the host also leaves the controller's NVML binding there, so that later checks start faster.
options:
  state:
    description:
      - V(present) makes the version true.
      - V(previous) goes back to the last-good set, which is the driver that the last change on this host replaced, with
        its flavour, its module parameters and what belongs to it. Its runfile is kept on the host, so that nothing is
        fetched; O(version) and the runfile's checksum are not looked at. A second run changes nothing.
      - V(absent) removes the driver and every file of this role. A driver of the distribution's packages stays.
      - V(unmanaged) reads and changes nothing.
    type: str
    choices: [present, previous, absent, unmanaged]
    default: present
  version:
    description:
      - The driver's version in two or three parts, such as V(570.144) or V(580.65.06). Required for O(state=present).
    type: str
  runfile_sha256:
    description: The runfile's sha256, 64 hexadecimal digits. Required, unless O(runfile_checksum) is given.
    type: str
  runfile_checksum:
    description:
      - That the sha256 comes from a checksum file, which the role has put beside the runfiles as
        C(<version>.sha256sum).
      - The role takes a URL or a path on the controller here.
    type: str
  kernel_module_type:
    description:
      - Which kernel modules. V(auto) chooses from the host's GPUs. Of two possible flavours it takes the open one from
        branch 560 on, as the vendor's installer does, and the proprietary one before.
    type: str
    choices: [auto, open, proprietary]
    default: auto
  installer_arguments:
    description: More arguments for the installer, after the ones that this module decides.
    type: list
    elements: str
    default: []
  installer_timeout:
    description: Seconds after which the installer is given up.
    type: int
    default: 3600
  tmpdir:
    description: Directory on the host in which the runfile is unpacked. Programs must be allowed to run in it.
    type: path
    default: /var/lib/gpufleet/tmp
  ignore_compiler_mismatch:
    description: Let the installer build with another major version of the compiler than the kernel's.
    type: bool
    default: false
  module_parameters:
    description:
      - Parameters of the module C(nvidia), as C(NVreg_...) and value. They are written to C(modprobe.d) and compared
        with what the loaded module uses.
    type: dict
    default: {}
  persistence:
    description: Run the persistence daemon, under a unit and a user of its own.
    type: bool
    default: true
  replace_in_use:
    description:
      - Install the wanted version although processes use the loaded one. They go on; programs started from then on fail
        until the reboot.
    type: bool
    default: false
  wait_for_idle:
    description:
      - Seconds to wait for the end of whatever uses the driver that is to be replaced or removed. When they are over,
        the change is refused and the users are named.
    type: int
    default: 0
  fabric_manager:
    description:
      - The software of the NVLink fabric, in exactly the driver's version, from the host's repositories.
      - V(auto) installs what the GPUs need. With NVSwitches on the PCI bus, the fabric manager and C(libnvidia-nscq).
        On an HGX board with NVLink 5 (B200, B300), C(nvlsm), C(libnvsdm) and the kernel modules C(ib_umad) and
        C(mlx5_ib) too. On a compute node of an NVL72 rack (GB200, GB300), C(nvidia-imex). On any other machine nothing,
        and a fabric manager that is left over is disabled.
      - V(present) takes a machine without any known NVSwitch for one that has them. V(absent) disables the fabric
        manager, on whatever machine.
      - A change of the driver that finds no fabric manager of its version in any repository is refused.
    type: str
    choices: [auto, present, absent]
    default: auto
  display:
    description:
      - What to do about a display manager or a graphical session on the host, when the driver is to be replaced.
      - V(refuse) names it and changes nothing. V(stop) stops the display manager, which ends its sessions, and starts
        it again afterwards, however the change ends. Nothing is killed.
    type: str
    choices: [refuse, stop]
    default: refuse
attributes:
  check_mode:
    support: full
    description: Says what would change, and changes nothing. Needs neither the runfile nor DKMS.
  diff_mode:
    support: full
    description: Says what differs, before and after.
  idempotent:
    support: full
    description: A second run with the same options changes nothing.
  platform:
    support: full
    platforms: posix
    description: Linux with DKMS.
"""

EXAMPLES = r"""
- name: Install a driver whose runfile is on the host
  gpufleet.metal.nvidia_driver:
    version: 580.65.06
    runfile_sha256: 04d8a1a1ae36c6f44ed3ab0cf1b9c4bb7c0b6d2bd1e0a4c8f9fd4f6f1f0f2a55
    module_parameters:
      NVreg_EnableStreamMemOPs: 1
  register: driver

- name: Go back to the driver that the last change replaced
  gpufleet.metal.nvidia_driver:
    state: previous

- name: Say whether the host waits for a reboot
  ansible.builtin.debug:
    msg: "{{ driver.reboot_reasons }}"
"""

RETURN = r"""
actions:
  description: What was done, or in check mode would be done.
  returned: always
  type: list
  elements: str
  sample: ["Install driver 580.65.06"]
reboot_required:
  description: True when only a reboot completes what was prepared.
  returned: always
  type: bool
reboot_reasons:
  description: Why a reboot is required.
  returned: always
  type: list
  elements: str
  sample: ["driver 580.65.06 is loaded at the next boot: nouveau drives the GPUs until then"]
unknown:
  description: What could not be read, with the reason.
  returned: always
  type: list
  elements: dict
outcome:
  description:
    - V(managed); V(no_gpu) on a host without an NVIDIA GPU; V(passthrough) when all GPUs are bound to vfio-pci. On the
      latter two nothing is installed and no service is started.
  returned: when O(state) is not V(unmanaged)
  type: str
  sample: managed
gpu_count:
  description: Number of GPUs on the PCI bus, without those bound to vfio-pci.
  returned: when O(state) is not V(unmanaged)
  type: int
installed_version:
  description: Version of the user-space libraries, null when there are none.
  returned: when O(state) is not V(unmanaged)
  type: str
loaded_version:
  description: Version of the loaded kernel module.
  returned: when O(state) is not V(unmanaged)
  type: str
missing_packages:
  description: Packages that the module build needs and that are not installed.
  returned: when O(state) is not V(unmanaged)
  type: list
  elements: str
  sample: ["dkms", "linux-headers-6.1.0-28-amd64"]
package_lists_due:
  description: True when the fabric's software is needed and the host has no package lists to find it in.
  returned: when O(state) is not V(unmanaged)
  type: bool
package_manager:
  description: The host's package manager, V(apt) or V(dnf), or null.
  returned: when O(state) is not V(unmanaged)
  type: str
refusals:
  description: Reasons why the installation would be refused, each with its remedy.
  returned: when O(state) is not V(unmanaged)
  type: list
  elements: str
runfile:
  description: The runfile of the wanted version on this host.
  returned: when O(state) is not V(unmanaged)
  type: dict
  contains:
    name:
      description: File name, with the host's architecture.
      type: str
      sample: NVIDIA-Linux-x86_64-580.65.06.run
    path:
      description: Where it lies, or is to be put.
      type: str
    sha256:
      description: sha256 of the file on the host, null when there is none.
      type: str
    expected_sha256:
      description: The wanted sha256, null when the checksum file is not on the host yet.
      type: str
runfile_due:
  description: True when the runfile on the host is missing or has another sha256.
  returned: when O(state) is not V(unmanaged)
  type: bool
way_back:
  description: Version of the last-good set, to which O(state=previous) goes back; null when none is recorded.
  returned: when O(state) is not V(unmanaged)
  type: str
cause:
  description: Key of the known signature that was found in the logs of a failed installation, or null.
  returned: when the installation failed
  type: str
  sample: no_headers
installer_log:
  description: Last lines of the installer's log.
  returned: when the installation failed
  type: list
  elements: str
make_log:
  description: Last lines of the module build's log.
  returned: when the installation failed
  type: list
  elements: str
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _nvml
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import run_module
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver


def main():
    run_module(
        NvidiaDriver(),
        options={"_nvml_binding": {"type": "dict", "no_log": True}},
        after_change=lambda host, params: _nvml.store(host, params["_nvml_binding"]),
    )


if __name__ == "__main__":
    main()
