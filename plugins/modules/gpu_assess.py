#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gpu_assess
short_description: Say what differs on a GPU host, why, and which roles are due
version_added: 0.1.0
description:
  - Reads every concern of a host (automatic updates, nouveau, driver, version locks) and compares it with what is
    wanted, in one round trip.
  - The answer is the plan, the drift check, the reason why a role may be skipped and the record in the report. It is
    never returned as facts, because a cached answer could let a stale reading skip a role.
  - Validates every desired document first, and names the public variable that is wrong.
author:
  - The gpufleet.metal authors (@gpufleet)
extends_documentation_fragment:
  - gpufleet.metal.reading
  - gpufleet.metal.nvml
options:
  detail:
    description: With V(full), every concern also returns the whole state that was read.
    type: str
    choices: [brief, full]
    default: brief
  preflight:
    description:
      - The desired document of the role gpu_preflight. When given and a role is due, the answer also tells every
        reason why the change would fail.
    type: dict
    suboptions:
      expected_gpus:
        description: How many GPUs the machine has. Any other number on the PCI bus fails.
        type: int
      passthrough:
        description: What to say of GPUs that are bound to vfio-pci.
        type: str
        choices: [fail, allow]
        default: fail
      secure_boot:
        description: What to say when module signatures are enforced and the modules' key is not enrolled.
        type: str
        choices: [fail, allow]
        default: fail
      exec_probe:
        description: Without effect here. The assessment never writes the probe.
        type: bool
        default: true
      refresh:
        description: Without effect here. The assessment fetches nothing.
        type: bool
        default: true
seealso:
  - module: gpufleet.metal.gpu_verify
  - module: gpufleet.metal.gpu_facts
"""

EXAMPLES = r"""
- name: Does the host still match the inventory?
  gpufleet.metal.gpu_assess:
    desired:
      nouveau:
        state: present
      auto_updates:
        state: disabled
  register: assessment

- name: Name what drifted
  ansible.builtin.debug:
    var: assessment.due
"""

RETURN = r"""
concerns:
  description: Every concern's assessment, by its name.
  returned: always
  type: dict
  sample:
    nouveau:
      status: differs
      differences:
        - what: /etc/modprobe.d/gpufleet-nouveau.conf
          before: absent
          after: blacklist
          why: nothing keeps nouveau from claiming the GPUs at boot
          action: write /etc/modprobe.d/gpufleet-nouveau.conf
      unknown: []
      pending: []
      reboot_required: false
due:
  description: The concerns whose roles must run, in order; what differs, and everything downstream of it.
  returned: always
  type: list
  elements: str
  sample: [nouveau, nvidia_driver, version_lock]
reboot_required:
  description: Whether something staged earlier waits for a reboot.
  returned: always
  type: bool
reboot_reasons:
  description: What waits for the reboot.
  returned: always
  type: list
  elements: str
preflight:
  description: The findings of gpu_preflight; empty when no role is due.
  returned: when O(preflight) is given
  type: list
  elements: dict
summary:
  description: The machine in a few words.
  returned: always
  type: dict
  contains:
    gpus:
      description: GPU models and how many of each.
      type: list
      elements: dict
    kernel:
      description: The running kernel's release.
      type: str
    driver:
      description: The loaded driver's version, or null.
      type: str
checks:
  description: One entry a check.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: The check's name.
      type: str
    result:
      description: V(pass), V(warn), V(fail) or V(not_measured).
      type: str
    evidence:
      description: What was read, and from where.
      type: str
    remedy:
      description: What to do about it; empty when it passed.
      type: str
  sample:
    - id: gpu_count
      result: pass
      evidence: 8 on the PCI bus (sysfs), 8 answer NVML
      remedy: ''
failed_checks:
  description: The names of the checks that failed.
  returned: always
  type: list
  elements: str
failure:
  description: The failed checks as one message; empty when none failed.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.metal.plugins.module_utils import _assess, _preflight, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import InvalidDesired, completed, together
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host


def main():
    options = dict(
        _assess.READING_OPTIONS,
        detail={"type": "str", "choices": ["brief", "full"], "default": "brief"},
        preflight={"type": "dict"},
    )
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    host = Host()
    try:
        desired, preflight, verify = together(
            lambda: _assess.validate(module.params["desired"]),
            lambda: completed("gpu_preflight", _preflight.OPTIONS, module.params["preflight"] or {}),
            lambda: completed("gpu_verify", _verify.OPTIONS, module.params["verify"]),
        )
    except InvalidDesired as error:
        module.fail_json(msg=str(error))
    answer = _assess.assess(host, desired, full=module.params["detail"] == "full")
    if module.params["preflight"] is not None:
        answer["preflight"] = _preflight.findings(host, desired, preflight) if answer["due"] else []
    verify["depth"] = "quick"
    answer.update(_assess.verify(host, desired, answer, verify, module.params["_nvml_binding"]))
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
