# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bench's hosts for pyinfra, from the inventory that the lab wrote for Ansible."""

import os
from pathlib import Path

import yaml

_LAB = yaml.safe_load(Path(os.environ["BENCH_INVENTORY"]).read_text(encoding="utf-8"))["all"]
_HOSTS = _LAB["children"]["gpu"]["hosts"]

hosts = [
    (
        name,
        {
            "ssh_hostname": _HOSTS[name]["ansible_host"],
            "ssh_user": _LAB["vars"]["ansible_user"],
            "ssh_key": _LAB["vars"]["ansible_ssh_private_key_file"],
            "ssh_known_hosts_file": str(Path(_LAB["vars"]["ansible_ssh_private_key_file"]).parent / "known_hosts"),
            "_sudo": True,
        },
    )
    for name in os.environ["BENCH_HOSTS"].split(",")
]
