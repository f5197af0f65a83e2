# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of gpu_report: it reads what the plays registered and never opens a connection."""

import datetime
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.metal.plugins.plugin_utils import report

display = Display()


class ActionModule(ActionBase):
    """Show the plan, or the table and the three report files."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(
            {
                "view": {"type": "str", "choices": ["plan", "report"], "default": "report"},
                "directory": {"type": "path", "default": "reports"},
                "title": {"type": "str", "default": "GPU fleet report"},
            }
        )
        task_vars = task_vars or {}
        hostvars = task_vars["hostvars"]
        records = [report.record(name, hostvars[name]) for name in task_vars["ansible_play_hosts_all"]]
        result["hosts"] = records
        if options["view"] == "plan":
            display.display("\n" + report.plan_text(records) + "\n")
            return result
        display.display("\n" + report.table_text(records) + "\n")
        now = datetime.datetime.now().astimezone()
        if not self._task.check_mode:
            result["files"] = [
                str(path) for path in report.write(records, Path(options["directory"]), options["title"], now)
            ]
            display.display("Report: " + result["files"][-1] + "\n")
        return result
