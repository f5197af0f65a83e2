# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of every module that asks NVML: it hands the controller's binding to the module.

A module gets it by a file ``plugins/action/<module>.py`` that imports :class:`ActionModule` from here.
"""

from importlib import metadata
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import binding

DISTRIBUTION = "nvidia-ml-py"
#: What a Python says that is too old for the engine's own wrapper around a module, so that no module can say it.
TOO_OLD = "future feature annotations is not defined"
TOO_OLD_MESSAGE = (
    "This host's Python is too old for ansible-core to run any module on it. "
    "Install Python 3.8 or newer beside it, and name that one in ansible_python_interpreter"
)


def source() -> bytes | None:
    """The source of the newest usable ``pynvml`` on the controller, or None when there is none.

    Other distributions bring a module of the same name; only the vendor's own is taken.
    """
    copies = []
    for distribution in metadata.distributions(name=DISTRIBUTION):
        path = Path(str(distribution.locate_file("pynvml.py")))
        version = binding.version_key(distribution.version)
        if version >= binding.version_key(binding.MINIMUM_VERSION) and path.is_file():
            copies.append((version, path))
    return max(copies)[1].read_bytes() if copies else None


class ActionModule(ActionBase):
    """Run the module with the binding in its arguments."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        found = source()
        answer = self._execute_module(
            module_name=self._task.resolved_action or self._task.action,
            module_args=dict(self._task.args, _nvml_binding=binding.pack(found) if found else None),
            task_vars=task_vars,
            wrap_async=self._task.async_val,
        )
        if any(TOO_OLD in str(answer.get(stream)) for stream in ("module_stdout", "module_stderr")):
            return {"failed": True, "changed": False, "msg": TOO_OLD_MESSAGE}
        result.update(answer)
        return result
