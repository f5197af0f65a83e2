#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gpu_verify
short_description: Prove that a GPU host is what the inventory says
version_added: 0.1.0
description:
  - Reads the host anew and checks it; every check says what was read and from where.
  - What could not be read is C(not_measured), never a pass. Changes nothing.
author:
  - The gpufleet.metal authors (@gpufleet)
extends_documentation_fragment:
  - gpufleet.metal.reading
  - gpufleet.metal.nvml
options:
  fail:
    description: Fail the task when a check fails.
    type: bool
    default: true
seealso:
  - module: gpufleet.metal.gpu_assess
  - module: gpufleet.metal.gpu_facts
"""

EXAMPLES = r"""
- name: Prove that eight GPUs run the wanted driver
  gpufleet.metal.gpu_verify:
    verify:
      expected_count: 8
      driver_version: 580.95.05
    desired:
      nouveau:
        state: present
"""

RETURN = r"""
concerns:
  description: Every concern's assessment, as in M(gpufleet.metal.gpu_assess).
  returned: always
  type: dict
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

from ansible_collections.gpufleet.metal.plugins.module_utils import _assess, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import InvalidDesired, completed, together
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host


def main():
    options = dict(_assess.READING_OPTIONS, fail={"type": "bool", "default": True})
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    host = Host()
    try:
        desired, verify = together(
            lambda: _assess.validate(module.params["desired"]),
            lambda: completed("gpu_verify", _verify.OPTIONS, module.params["verify"]),
        )
    except InvalidDesired as error:
        module.fail_json(msg=str(error))
    answer = _assess.assess(host, desired)
    answer.update(_assess.verify(host, desired, answer, verify, module.params["_nvml_binding"]))
    if answer["failed_checks"] and module.params["fail"]:
        module.fail_json(msg=answer["failure"], **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
