# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_driver leaves the NVML binding on a host that it changes (see the shared action plugin).

And it refuses a version that is a number: the module gets its options as text, where 570.190 has become 570.19.
"""

from typing import Any

from ansible_collections.gpufleet.metal.plugins.module_utils import _concern
from ansible_collections.gpufleet.metal.plugins.plugin_utils import nvml_binding


class ActionModule(nvml_binding.ActionModule):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        version = self._task.args.get("version")
        if isinstance(version, float):
            refusal = _concern.unquoted("nvidia_driver_version", version)
            return {"failed": True, "changed": False, "msg": str(refusal)}
        return super().run(tmp, task_vars)
