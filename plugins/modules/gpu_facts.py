#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gpu_facts
short_description: Gather facts about the GPUs of a host, their driver and what uses them
version_added: 0.1.0
description:
  - Gathers what is true about a GPU host as C(ansible_facts.gpu), in typed values with the unit in the name. What
    could not be had is V(null); RV(ansible_facts.gpu.errors) says why.
  - Needs nothing on the host but Python. Kernel, PCI, driver, DKMS, package and service facts are read from files. It
    works without a driver, without GPUs and without systemd.
  - Asks the driver's management library (NVML) in a child process under one deadline. A lost, hung or crashed GPU
    gives partial facts that name it, and a successful module.
  - The controller's copy of the Python package C(nvidia-ml-py) is sent along and executed from memory; the host needs
    no copy. Without one on the controller, the host's own is used.
  - Without root it gathers what it may read, and says in RV(ansible_facts.gpu.unreadable) and
    C(holders.hidden_processes) what it could not.
author:
  - The gpufleet.metal authors (@gpufleet)
extends_documentation_fragment:
  - gpufleet.metal.nvml
attributes:
  check_mode:
    support: full
    description: It reads only, in check mode or not.
  diff_mode:
    support: none
    description: It changes nothing.
  facts:
    support: full
    description: It returns C(ansible_facts).
  idempotent:
    support: full
    description: It changes nothing.
  platform:
    support: full
    platforms: linux
    description: Linux with Python 3.8 or later.
options:
  gather_subset:
    description:
      - Which facts to gather. V(min) is V(kernel), V(pci), V(nouveau) and V(driver), which are always gathered unless
        V(!min) is given.
      - V(nvml), V(topology), V(mig) and V(processes) ask the driver.
      - A C(!) before a name leaves it out. Only names with C(!) mean all others; V(!all) alone means V(min).
    type: list
    elements: str
    default: [all]
    choices: [all, min, kernel, pci, nouveau, driver, nvml, topology, mig, services, processes,
              '!all', '!min', '!kernel', '!pci', '!nouveau', '!driver', '!nvml', '!topology', '!mig', '!services',
                '!processes']
  nvml_timeout:
    description:
      - Seconds that all NVML calls together may take. A single call that takes more than a third of it counts as hung.
      - Without the persistence daemon, the driver alone may take half a minute to start on a machine with eight GPUs.
    type: int
    default: 60
  nvml_library:
    description: The NVML library, as a name that the dynamic loader finds or as a path.
    type: str
    default: libnvidia-ml.so.1
seealso:
  - module: gpufleet.metal.gpu_assess
  - module: gpufleet.metal.gpu_verify
"""

EXAMPLES = r"""
- name: Gather all facts about the GPUs
  gpufleet.metal.gpu_facts:

- name: Gather only what files tell, on a host that may have no driver
  gpufleet.metal.gpu_facts:
    gather_subset: [min]

- name: Stop when a GPU does not answer
  ansible.builtin.assert:
    that: ansible_facts.gpu.nvml.missing == []
    fail_msg: "No answer from {{ ansible_facts.gpu.nvml.missing | join(', ') }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to the host's.
  returned: always
  type: dict
  contains:
    gpu:
      description: All facts of this module. Each key is there when its subset was gathered.
      type: dict
      contains:
        subsets:
          description: The subsets that were gathered.
          type: list
          elements: str
        errors:
          description:
            - What NVML should have told and did not, each with C(gpu) (index, or null), C(address), C(field), C(code)
              (NVML's number, or null) and C(reason).
            - What a GPU or driver does not have is no error; see C(unsupported) of each GPU.
          type: list
          elements: dict
          sample:
            - gpu: 3
              address: '0000:52:00.0'
              field: remapped_rows
              code: 15
              reason: GPU is lost
        unreadable:
          description: Files that exist and could not be read, with the reason.
          type: dict
        kernel:
          description:
            - C(running), C(default) (str, null when unknown), C(cmdline), C(installed) (list of C(release),
              C(headers), C(compiler) with C(text), C(family) and C(major), C(initramfs)), C(secure_boot) (V(enabled),
              V(disabled), V(unsupported), V(unknown)), C(sig_enforce) (bool or null), C(lockdown) (V(none),
              V(integrity), V(confidentiality) or null), C(initramfs_tool) (V(initramfs-tools), V(dracut) or null).
          type: dict
        pci:
          description:
            - C(gpus), C(nvswitches) and C(iommu) (C(enabled), C(translation)) from sysfs.
            - A GPU has C(address), C(device), C(subsystem), C(class), C(model), C(architecture), C(driver), C(link)
              and C(upstream) (C(width), C(max_width) in lanes, C(speed_gts), C(max_speed_gts) in GT/s), C(numa_node),
              C(iommu_group) (int or null), C(acs) (the bridges above, nearest first, C(address) and C(enabled) service
              names, null without root).
          type: dict
        nouveau:
          description:
            - C(loaded) (null when the host does not show its modules), C(builtin) and C(gpus), the addresses that it
              drives.
          type: dict
        driver:
          description:
            - C(loaded) (C(version), C(flavour) V(open) or V(proprietary)), C(library) and C(libraries) (C(version),
              C(path)), C(modules) (kernel release to version on disk), C(dkms) rows (C(module), C(version), C(kernel),
              C(arch), C(status)), C(packages), C(provenance)
              (V(packages), V(runfile), V(mixed), V(unknown)), C(parameters) (C(asked), C(in_force)), C(match)
              (V(match), V(mismatch), V(unloaded), V(absent)).
          type: dict
        nvml:
          description: What the driver's library answers.
          type: dict
          contains:
            reason:
              description: Why NVML could not be asked, or null.
              type: str
            code:
              description: NVML's number for it, or null.
              type: int
            binding:
              description: Where the Python binding came from, V(store), V(controller) or V(host).
              type: str
            system:
              description: C(driver_version), C(nvml_version), C(driver_branch) (str), C(cuda) (C(major), C(minor)),
                C(excluded_gpus) (int).
              type: dict
            missing:
              description: PCI addresses of GPUs that NVML gave no full answer for. GPUs handed to virtual machines
                (vfio-pci) are not expected.
              type: list
              elements: str
            gpus:
              description:
                - One entry a GPU, in NVML's order. Every field may be null.
                - Sizes are in MiB, power in W, temperatures in degrees Celsius, clocks in MHz, as the names say.
                  Margins are degrees below the slowdown temperature.
              type: list
              elements: dict
              contains:
                index:
                  description: NVML's number of the GPU. It may change at a reboot; the UUID and the address do not.
                  type: int
                state:
                  description: V(ok), V(lost), V(hung), V(crashed) or V(not_read).
                  type: str
                unsupported:
                  description: Names of fields that this GPU or driver does not have.
                  type: list
                  elements: str
                name:
                  description: Product name.
                  type: str
                uuid:
                  description: UUID.
                  type: str
                serial:
                  description: Serial number of the board.
                  type: str
                minor:
                  description: Number of the device file.
                  type: int
                module_id:
                  description: Position of the GPU on its baseboard.
                  type: int
                board:
                  description: C(id) (int), C(part_number) (str).
                  type: dict
                brand:
                  description: Brand in lower case, V(unknown(N\)) for a number that is not known yet.
                  type: str
                architecture:
                  description: Architecture in lower case, V(unknown(N\)) for a number that is not known yet.
                  type: str
                compute_capability:
                  description: C(major), C(minor) (int).
                  type: dict
                versions:
                  description: C(vbios), C(gsp_firmware), C(inforom) (C(image), C(oem), C(ecc), C(power)) (str).
                  type: dict
                virtualization_mode:
                  description: V(none), V(passthrough), V(vgpu), V(host_vgpu) or V(host_vsga).
                  type: str
                platform:
                  description: Place in a rack-scale machine, C(chassis_serial_number) (str), C(slot), C(tray),
                    C(host), C(module) (int).
                  type: dict
                pci:
                  description:
                    - C(address), C(device), C(subsystem) (str, as in the PCI facts), C(link) (C(generation),
                      C(max_generation), C(gpu_max_generation), C(width), C(max_width) (int)), C(replay_count) (int).
                  type: dict
                bar1:
                  description: C(total_mib), C(used_mib) (int).
                  type: dict
                memory:
                  description: C(total_mib), C(reserved_mib), C(used_mib), C(free_mib) (int).
                  type: dict
                ecc:
                  description:
                    - C(enabled), C(pending) (bool), and error counts (int) in C(volatile) (since the driver's load)
                      and C(aggregate) (of a lifetime), C(corrected), C(uncorrected), C(dram_corrected),
                      C(dram_uncorrected), C(sram_corrected), C(sram_uncorrected_parity), C(sram_uncorrected_secded).
                    - C(aggregate) also has C(sram_threshold_exceeded) (bool).
                  type: dict
                remapped_rows:
                  description:
                    - C(corrected), C(uncorrected) (int), C(pending), C(failure) (bool), C(banks), which is the number
                      of banks by the spare rows that they have left, C(max), C(high), C(partial), C(low), C(none)
                      (int).
                  type: dict
                repair:
                  description: C(channel_pending), C(tpc_pending) (bool).
                  type: dict
                retired_pages:
                  description: C(single_bit), C(double_bit) (int), C(pending) (bool); before Ampere only.
                  type: dict
                power:
                  description:
                    - C(draw_w), C(average_w), C(instant_w), C(module_average_w), C(module_instant_w),
                      C(memory_average_w), C(limit_w), C(default_limit_w), C(enforced_limit_w), C(min_limit_w),
                      C(max_limit_w) (float).
                  type: dict
                temperature:
                  description: C(gpu_c), C(memory_c), C(margin_c) (int), C(thresholds) and C(margin_thresholds)
                    (C(shutdown_c), C(slowdown_c), C(memory_max_c), C(gpu_max_c)) (int).
                  type: dict
                clocks:
                  description:
                    - C(current) and C(max) (C(graphics_mhz), C(sm_mhz), C(memory_mhz), C(video_mhz)), C(applications),
                      C(max_customer_boost_mhz) (int), C(event_reasons) (list of str).
                  type: dict
                performance_state:
                  description: Performance state, 0 is the highest.
                  type: int
                utilization:
                  description: C(gpu_percent), C(memory_percent) (int).
                  type: dict
                compute_mode:
                  description: V(default), V(prohibited) or V(exclusive_process).
                  type: str
                persistence_mode:
                  description: Whether the driver keeps the GPU initialised.
                  type: bool
                recovery_action:
                  description: What the driver asks for, V(none), V(gpu_reset), V(node_reboot), V(drain_p2p),
                    V(drain_and_reset).
                  type: str
                affinity:
                  description: C(cpus) (list of first and last), C(memory_nodes) (list of int), C(numa_node) (int).
                  type: dict
                mig:
                  description:
                    - C(enabled), C(pending) (bool); with the subset V(mig) also C(max_devices) (int), C(profiles),
                      C(instances) and C(devices).
                    - A profile has C(enum), C(id), C(name), C(slices), C(max_instances), C(remaining),
                      C(multiprocessors), C(memory_mib), engine counts, and C(placements) (C(size), C(starts)).
                    - An instance has C(id), C(profile_id), C(placement) (C(start), C(size)), C(compute_instances)
                      (C(id), C(profile_id)).
                    - A device has C(uuid), C(name), C(gpu_instance_id), C(compute_instance_id), C(memory_mib),
                      C(multiprocessors).
                  type: dict
                fabric:
                  description:
                    - C(state) (V(not_supported), V(not_started), V(in_progress), V(completed)), C(status_code),
                      C(clique_id), C(health_mask) (int), C(cluster_uuid), C(health_summary) (str). With the subset
                      V(topology).
                  type: dict
                nvlink:
                  description:
                    - C(switch_links) (int) and C(links), each C(link), C(active), C(speed_mb_s) (MB/s per direction),
                      C(version), C(remote) (C(type), C(address)), C(errors) (counts). With the subset V(topology).
                  type: dict
                processes:
                  description:
                    - Processes on this GPU, each C(pid), C(type) (V(compute), V(graphics), V(mps)), C(memory_mib),
                      C(gpu_instance_id), C(compute_instance_id), C(name), C(unit), C(container). With the subset
                      V(processes).
                  type: list
                  elements: dict
        topology:
          description:
            - Square matrices in the order of C(gpus) (addresses). C(ancestor) is what two GPUs have in common
              (V(internal), V(single), V(multiple), V(hostbridge), V(node), V(system)); C(p2p) has C(read), C(write),
              C(nvlink), C(atomics), C(pci), V(ok) or why not. The diagonal is null.
          type: dict
        services:
          description:
            - Units on this host that use or configure the driver, each C(unit), C(path), C(enabled), C(masked) (bool),
              C(active) (bool, null when systemd does not run here), C(pids).
            - Read from unit files and control groups. A one-shot unit that has finished has no process and is not
              V(active).
          type: list
          elements: dict
        holders:
          description:
            - C(modules) (C(holders), C(references) (null when the driver does not count)), C(processes) that have a
              device file of the driver open (C(pid), C(name), C(unit), C(container), C(devices)), C(hidden_processes)
              (how many could not be looked into).
          type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.metal.plugins.module_utils import _gpu_facts, _nvml
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host


def main():
    module = AnsibleModule(
        argument_spec={
            "gather_subset": {
                "type": "list",
                "elements": "str",
                "default": ["all"],
                "choices": list(_gpu_facts.CHOICES) + ["!" + name for name in _gpu_facts.CHOICES],
            },
            "nvml_timeout": {"type": "int", "default": 60},
            "nvml_library": {"type": "str", "default": _nvml.DEFAULT_LIBRARY},
            # the controller's NVML binding, from the action plugin
            "_nvml_binding": {"type": "dict", "no_log": True},
        },
        supports_check_mode=True,
    )
    facts = _gpu_facts.gather(
        Host(),
        _gpu_facts.chosen(module.params["gather_subset"]),
        module.params["_nvml_binding"],
        module.params["nvml_timeout"],
        module.params["nvml_library"],
    )
    module.exit_json(changed=False, ansible_facts={"gpu": facts})


if __name__ == "__main__":
    main()
