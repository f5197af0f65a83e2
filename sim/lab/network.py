# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own bridge network: a fixed private subnet, so that a host keeps its address across reboots."""

import ipaddress
import json

from sim.lab.process import LabError, call

NAME = "gpufleet-lab"
SUBNET = ipaddress.ip_network("10.213.77.0/24")
GATEWAY = SUBNET[1]
#: Hosts without an address of their own get one from here on; those of inventories/lab lie below.
FIRST_FREE = 100


def exists() -> bool:
    return call(["podman", "network", "exists", NAME], check=False).returncode == 0


def ensure() -> None:
    """Create the network, unless the machine already routes something else there."""
    if exists():
        return
    taken = [line for line in call(["ip", "-4", "route", "show"]).stdout.splitlines() if _overlaps(line.split()[0])]
    if taken:
        raise LabError(f"the lab needs the subnet {SUBNET}, but this machine routes it elsewhere: {taken[0]}")
    call(
        [
            "podman",
            "network",
            "create",
            f"--subnet={SUBNET}",
            f"--gateway={GATEWAY}",
            NAME,
        ]
    )


def remove() -> None:
    if not exists():
        return
    bridge = json.loads(call(["podman", "network", "inspect", NAME]).stdout)[0]["network_interface"]
    call(["podman", "network", "rm", NAME])
    # podman leaves the bridge behind when a host ended while it was being started
    call(["ip", "link", "delete", bridge], check=False)


def _overlaps(route: str) -> bool:
    return route[0].isdigit() and ipaddress.IPv4Network(route).overlaps(SUBNET)


def free(taken: set[str]) -> str:
    """The lowest address that no host has."""
    for number in range(FIRST_FREE, SUBNET.num_addresses - 1):
        if str(SUBNET[number]) not in taken:
            return str(SUBNET[number])
    raise LabError(f"no address left in {SUBNET}")
