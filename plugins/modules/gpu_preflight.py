#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gpu_preflight
short_description: Tell every reason why a driver installation would fail, before anything is changed
version_added: 0.1.0
description:
  - Reads the host and compares it with what the other roles are to make of it. All findings come at once, each with
    what was read, a remedy and the public variable that decides.
  - Covers operating system and architecture, GPU generation against driver branch and module flavour, kernel headers
    and compiler, the availability of the fabric manager and of all else that has to have the driver's version, Secure
    Boot, GPUs that are passed through, space, the temporary directory, interrupted or running package operations,
    foreign drivers, and who uses the GPUs.
  - A driver of the state V(previous) is judged as the one that it means on this host; for V(absent) only what concerns
    the removal is checked.
  - What could not be read is V(not_measured), never a pass.
author:
  - The gpufleet.metal authors (@gpufleet)
attributes:
  check_mode:
    support: full
    description: It only reads; in check mode O(exec_probe) and O(refresh) are left out too.
  diff_mode:
    support: none
    description: There is nothing that it changes.
  idempotent:
    support: full
    description: It changes nothing but apt's package lists, with O(refresh).
  platform:
    support: full
    platforms: posix
    description: Linux.
options:
  desired:
    description:
      - What is wanted, by concern (V(auto_updates), V(nouveau), V(nvidia_driver), V(version_lock)). A concern's
        document takes the options of the module of the same name. Checks that concern none of these are left out.
    type: dict
    default: {}
  expected_gpus:
    description: How many GPUs the machine has. Any other number on the PCI bus fails.
    type: int
  passthrough:
    description:
      - What to say of GPUs that are bound to vfio-pci. V(fail) stops; V(allow) leaves them alone.
      - A GPU is never unbound.
    type: str
    choices: [fail, allow]
    default: fail
  secure_boot:
    description:
      - What to say when module signatures are enforced and the key that signs the modules is not enrolled.
    type: str
    choices: [fail, allow]
    default: fail
  exec_probe:
    description:
      - Write a one-line script into the driver's temporary directory (or its nearest parent that exists), run it and
        remove it. Mount options alone do not tell everything that may forbid programs there.
      - Before another driver is installed, a runfile that is on the host already is unpacked there too, to read which
        GPUs it drives, and removed.
    type: bool
    default: true
  refresh:
    description:
      - Fetch apt's package lists where the host has none, or where they lack a package that is needed.
    type: bool
    default: true
  fail:
    description: Fail the task when a finding fails.
    type: bool
    default: true
seealso:
  - module: gpufleet.metal.gpu_assess
"""

EXAMPLES = r"""
- name: Would this driver install on this host?
  gpufleet.metal.gpu_preflight:
    expected_gpus: 8
    desired:
      nouveau:
        state: present
      nvidia_driver:
        version: 580.95.05
        runfile_checksum: https://mirror.example.org/NVIDIA-Linux-x86_64-580.95.05.run.sha256sum
"""

RETURN = r"""
findings:
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
    variable:
      description: The public variable that decides, or empty.
      type: str
  sample:
    - id: kernel_headers
      result: fail
      evidence: no /lib/modules/6.1.0-18-amd64/build/Makefile (a dangling link counts as none)
      remedy: Install a kernel whose headers are still in the repositories, and reboot into it.
      variable: ''
version_set:
  description:
    - What this host gets together with the driver, each in the driver's exact version. None without a driver that is
      wanted or without a GPU.
  returned: always
  type: dict
  contains:
    driver:
      description: The driver's version.
      type: str
    flavour:
      description: V(open) or V(proprietary) kernel modules, or none where no flavour drives all GPUs.
      type: str
    persistence_daemon:
      description: Version of the persistence daemon, which comes with the driver, or none.
      type: str
    platform:
      description: V(nvswitch), V(nvlink5), V(rack) or V(none).
      type: str
    packages:
      description: The packages of the fabric's software, with name and version, as far as they are found.
      type: list
      elements: dict
    unit:
      description: The unit that sets up the fabric, or none.
      type: str
    modules:
      description: Kernel modules that it needs.
      type: list
      elements: str
failure:
  description: The failed findings as one message; empty when none failed.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.metal.plugins.module_utils import _assess, _preflight
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import InvalidDesired
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host


def main():
    options = dict(_preflight.OPTIONS, desired={"type": "dict", "default": {}}, fail={"type": "bool", "default": True})
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    own = {name: module.params[name] for name in _preflight.OPTIONS}
    try:
        desired = _assess.validate(module.params["desired"])
    except InvalidDesired as error:
        module.fail_json(msg=str(error))
    answer = _preflight.examination(Host(), desired, own, probe=not module.check_mode)
    answer["failure"] = _preflight.failure(answer["findings"])
    if answer["failure"] and module.params["fail"]:
        module.fail_json(msg="Nothing was changed.\n" + answer["failure"], **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
