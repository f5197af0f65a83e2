# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the results that worker processes deliver for each host, skipped tasks included, and write them as JSON."""

import collections
import json
import os
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: count_results
type: aggregate
short_description: Count worker results a host
description:
  - Writes a JSON object (host name to number of results) to the file that the environment variable
    C(COUNT_RESULTS_FILE) names.
author:
  - The gpufleet.metal authors (@gpufleet)
"""


class CallbackModule(CallbackBase):
    """One count a host; ``meta`` and ``import`` tasks deliver no result."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "count_results"
    CALLBACK_NEEDS_ENABLED = True  # it lies beside the bench's playbooks, where Ansible would load it in every run

    def __init__(self):
        super().__init__()
        self.results: collections.Counter[str] = collections.Counter()

    def _count(self, result, **_options):
        self.results[result.host.get_name()] += 1

    v2_runner_on_ok = v2_runner_on_failed = v2_runner_on_skipped = v2_runner_on_unreachable = _count

    def v2_playbook_on_stats(self, stats):
        Path(os.environ["COUNT_RESULTS_FILE"]).write_text(json.dumps(self.results), encoding="utf-8")
