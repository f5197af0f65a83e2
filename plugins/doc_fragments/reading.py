# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """What gpu_assess and gpu_verify share."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: It reads only, in check mode or not.
  diff_mode:
    support: none
    description: What differs is the answer itself.
  idempotent:
    support: full
    description: It changes nothing.
options:
  desired:
    description:
      - What is wanted, by concern (V(auto_updates), V(nouveau), V(nvidia_driver), V(version_lock)). A concern's
        document takes the options of the module of the same name. A concern without a document is not looked at.
    type: dict
    default: {}
  verify:
    description: What the host is checked against.
    type: dict
    default: {}
    suboptions:
      driver_version:
        description: The driver version that must be loaded. Empty only compares the loaded module with the library.
        type: str
        default: ''
      expected_count:
        description: How many GPUs the machine has.
        type: int
      expected_link_width:
        description: The PCIe width that each card must run at.
        type: int
      access_control:
        description: With V(ignore), bridges above the GPUs may redirect traffic between them (PCIe ACS).
        type: str
        choices: [check, ignore]
        default: check
      depth:
        description:
          - With V(standard), the slow proofs run too. C(pcie_access_control) reads the bridges above the GPUs,
            C(version_lock_proof) asks apt in simulations whether the lock holds, C(initramfs) looks into each initial
            RAM disk anew. M(gpufleet.metal.gpu_assess) is always V(quick).
        type: str
        choices: [quick, standard]
        default: quick
      nvml_timeout:
        description: Seconds that all NVML calls together may take.
        type: int
        default: 60
"""
