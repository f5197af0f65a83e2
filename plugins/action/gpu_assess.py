# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_assess asks NVML (see the shared action plugin), and first looks for misspelt variables."""

from typing import Any

from ansible_collections.gpufleet.metal.plugins.plugin_utils import nvml_binding, variables


class ActionModule(nvml_binding.ActionModule):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        problems = variables.unknown(task_vars or {}, variables.declared())
        if problems:
            return {"failed": True, "changed": False, "msg": "\n".join(problems)}
        return super().run(tmp, task_vars)
