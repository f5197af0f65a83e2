#!/usr/bin/python
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gpu_report
short_description: Show a fleet's plan, or write its report
version_added: 0.1.0
description:
  - Turns what M(gpufleet.metal.gpu_assess), the roles and M(gpufleet.metal.gpu_verify) registered for every host of
    the play into a plan, or into a table on the console and C(report.json), C(report.md) and C(report.html).
  - Runs on the controller only. Use it with C(run_once).
author:
  - The gpufleet.metal authors (@gpufleet)
attributes:
  check_mode:
    support: full
    description: In check mode the table is shown and no file is written.
  diff_mode:
    support: none
    description: A report is written anew each time.
  idempotent:
    support: N/A
    description: It changes no host.
options:
  view:
    description: Show the plan (writes nothing), or the table and the report files.
    type: str
    choices: [plan, report]
    default: report
  directory:
    description: Where the controller writes the report; made if missing.
    type: path
    default: reports
  title:
    description: The report's heading.
    type: str
    default: GPU fleet report
"""

EXAMPLES = r"""
- name: Show what site.yml would do
  gpufleet.metal.gpu_report:
    view: plan
  run_once: true

- name: Write the report
  gpufleet.metal.gpu_report:
    directory: /srv/reports/gpu
  run_once: true
"""

RETURN = r"""
hosts:
  description: One record a host.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The inventory name.
      type: str
    reachable:
      description: False when the host could not be assessed.
      type: bool
    summary:
      description: GPUs (model and count), running kernel, loaded driver version.
      type: dict
    concerns:
      description: The assessment of each concern before anything was changed.
      type: dict
    due:
      description: The concerns that had to run.
      type: list
      elements: str
    reboot_reasons:
      description: Why a reboot is still required.
      type: list
      elements: str
    preflight:
      description: The preflight findings that are failures or warnings.
      type: list
      elements: dict
    actions:
      description: What each role did, role by role.
      type: dict
    failure:
      description: The message of the assessment or role that failed, or null.
      type: str
    checks:
      description: The checks of M(gpufleet.metal.gpu_verify); empty when none was made since the change.
      type: list
      elements: dict
    verdict:
      description: The worst check, or C(failed) when there was no answer or a role failed.
      type: str
files:
  description: The files written on the controller.
  returned: when O(view=report) and not in check mode
  type: list
  elements: str
"""
