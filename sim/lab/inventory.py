# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventories of the lab: the committed one tells which hosts there are, others are written on request."""

from pathlib import Path

import yaml

from sim.lab import cache, network
from sim.lab.hosts import Host
from sim.lab.process import LabError

DEFAULT = cache.ROOT / "inventories" / "lab" / "hosts.yml"
GROUP = "gpu"


def default() -> list[Host]:
    """The hosts of inventories/lab."""
    rows = yaml.safe_load(DEFAULT.read_text())["all"]["children"][GROUP]["hosts"]
    return [
        Host(name, row["lab_machine"], row["ansible_host"], row.get("lab_image", "debian12"))
        for name, row in rows.items()
    ]


def chosen(words: list[str], image: str, present: dict[str, dict[str, str]]) -> list[Host]:
    """Hosts from `NAME=MACHINE[@IMAGE]` words; a bare NAME is one of inventories/lab; no words mean all of those."""
    known = {host.name: host for host in default()}
    if not words:
        return list(known.values())
    taken = {host.address for host in known.values()} | {row["address"] for row in present.values()}
    hosts = []
    for word in words:
        name, _, kind = word.partition("=")
        machine, _, own_image = kind.partition("@")
        if not machine and name not in known:
            raise LabError(f"{name} is not in inventories/lab; say which machine it is: {name}=MACHINE")
        if not machine:
            hosts.append(known[name])
            continue
        address = present[name]["address"] if name in present else network.free(taken)
        taken.add(address)
        hosts.append(Host(name, machine, address, own_image or image))
    return hosts


def write(path: Path, hosts: list[Host]) -> None:
    """An inventory of `hosts` at `path`, complete in itself."""
    common = yaml.safe_load((DEFAULT.parent / "group_vars" / "all" / "connection.yml").read_text())
    common["lab_cache"] = str(cache.CACHE)
    # written out, because Testinfra reads inventories without templating them
    common = {
        key: value.replace("{{ lab_cache }}", common["lab_cache"]) if isinstance(value, str) else value
        for key, value in common.items()
    }
    rows = {
        host.name: {"ansible_host": host.address, "lab_machine": host.machine, "lab_image": host.image}
        for host in hosts
    }
    document = {"all": {"vars": common, "children": {GROUP: {"hosts": rows}}}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\n" + yaml.safe_dump(document, sort_keys=False, width=120))
