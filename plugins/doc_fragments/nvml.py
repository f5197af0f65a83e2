# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """What every module has that asks NVML through the shared action plugin."""

    DOCUMENTATION = r"""
options:
  _nvml_binding:
    description:
      - Not for use in playbooks. The module's action plugin passes the controller's NVML binding here.
    type: dict
"""
