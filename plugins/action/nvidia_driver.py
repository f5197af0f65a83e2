# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_driver leaves the NVML binding on a host that it changes: see the shared action plugin."""

from ansible_collections.gpufleet.metal.plugins.plugin_utils.nvml_binding import ActionModule

__all__ = ["ActionModule"]
