# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA devices on the PCI bus, read from sysfs: no lspci, no driver, no root needed (but for ACS)."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _gpu_models

DEVICES = "/sys/bus/pci/devices/"
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")

#: Extended configuration space starts here; sysfs shows it to root only.
_EXTENDED = 0x100
_CAPABILITY_ACS = 0x000D
#: Names of the Access Control Services control bits, as lspci prints them.
_ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")

#: A GPU bound to this driver is handed to a virtual machine: the host's driver and NVML cannot have it.
PASSTHROUGH_DRIVER = "vfio-pci"


def read(host):
    """GPUs and NVSwitches on the bus.

    :returns: ``{gpus: [gpu], nvswitches: [{address, device, driver}], iommu: {enabled, translation}}``. A gpu has
        ``address, device, subsystem, class, model, architecture, driver, link, upstream, numa_node, iommu_group``:

        * ``address`` with domain, ``device`` and ``class`` as sysfs writes them;
        * ``subsystem``: ``vendor:device`` or None;
        * ``driver``: the bound kernel driver (``nvidia``, ``nouveau``, ``vfio-pci``), or None;
        * ``link``: ``{width, max_width, speed_gts, max_speed_gts}``, lanes and GT/s per lane, None where unknown;
        * ``upstream``: ``{address, max_width, max_speed_gts}`` of the port above, or None on a root bus;
        * ``numa_node``, ``iommu_group``: int or None.

    Audio functions, bridges and virtual functions are not GPUs.
    """
    return host.once("pci", lambda: _read(host))


def _read(host):
    gpus, switches = [], []
    for address in host.listdir(DEVICES):
        if host.read_value(DEVICES + address + "/vendor") != _gpu_models.VENDOR:
            continue
        device_class = host.read_value(DEVICES + address + "/class") or ""
        if device_class[:6] in ("0x0300", "0x0302"):
            if host.readlink(DEVICES + address + "/physfn") is None:
                gpus.append(_gpu(host, address, device_class))
        elif device_class[:6] == "0x0680":
            device = host.read_value(DEVICES + address + "/device")
            switches.append({"address": address, "device": device, "driver": _link_name(host, address, "driver")})
    return {"gpus": gpus, "nvswitches": switches, "iommu": _iommu(host, gpus)}


def _gpu(host, address, device_class):
    base = DEVICES + address
    device = host.read_value(base + "/device")
    bridges = _bridges(host, address)
    return {
        "address": address,
        "device": device,
        "subsystem": _subsystem(host, base),
        "class": device_class,
        "model": _gpu_models.model(device) if device else None,
        "architecture": _gpu_models.architecture(device) if device else None,
        "driver": _link_name(host, address, "driver"),
        "link": {
            "width": _width(host, base + "/current_link_width"),
            "max_width": _width(host, base + "/max_link_width"),
            "speed_gts": _speed(host, base + "/current_link_speed"),
            "max_speed_gts": _speed(host, base + "/max_link_speed"),
        },
        "upstream": _upstream(host, bridges),
        "numa_node": _number(host, base + "/numa_node"),
        "iommu_group": _group(host, address),
    }


def _subsystem(host, base):
    parts = [host.read_value(base + "/subsystem_" + part) for part in ("vendor", "device")]
    return ":".join(parts) if all(parts) else None


def _bridges(host, address):
    """Addresses of the bridges above a device, nearest first: the folders above it in the sysfs device tree."""
    target = host.readlink(DEVICES + address)
    return [part for part in reversed((target or "").split("/")[:-1]) if _ADDRESS.match(part)]


def _upstream(host, bridges):
    if not bridges:
        return None
    base = DEVICES + bridges[0]
    return {
        "address": bridges[0],
        "max_width": _width(host, base + "/max_link_width"),
        "max_speed_gts": _speed(host, base + "/max_link_speed"),
    }


def _link_name(host, address, link):
    target = host.readlink(f"{DEVICES}{address}/{link}")
    return target.rstrip("/").split("/")[-1] if target else None


def _number(host, path):
    """A sysfs number, or None; -1 is the kernel's "none"."""
    value = host.read_value(path)
    return int(value) if value and value.isdigit() else None


def _group(host, address):
    name = _link_name(host, address, "iommu_group")
    return int(name) if name and name.isdigit() else None


def _width(host, path):
    """Lanes, or None: 0 is "unknown", 63 and 255 are what an unreachable device answers."""
    value = _number(host, path)
    return value if value in (1, 2, 4, 8, 12, 16, 32) else None


def _speed(host, path):
    match = re.match(r"([\d.]+) GT/s", host.read_value(path) or "")
    return float(match.group(1)) if match else None


def access_control(host, address):
    """Access Control Services at the bridges above a GPU, nearest first: list of ``{address, enabled}``.

    ``enabled`` is a list of bit names, [] for a bridge without the capability, None when it could not be read (only
    root may). Apart from :func:`read`, because configuration space is slow to read, a register at a time.
    """
    return [
        {"address": bridge, "enabled": host.once(("acs", bridge), lambda bridge=bridge: _acs(host, bridge))}
        for bridge in _bridges(host, address)
    ]


def _acs(host, address):
    """Names of the ACS services switched on at a bridge; [] when it has none, None when that could not be read."""
    config = host.read_bytes(DEVICES + address + "/config") or b""
    if len(config) <= _EXTENDED:
        return None
    offset, seen = _EXTENDED, set()
    while offset and offset not in seen and offset + 8 <= len(config):
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _CAPABILITY_ACS:
            control = int.from_bytes(config[offset + 6 : offset + 8], "little")
            return [name for bit, name in enumerate(_ACS_BITS) if control & (1 << bit)]
        offset = header >> 20
    return []


def _iommu(host, gpus):
    """``{enabled: bool, translation: bool|None}``; translation False is pass-through (the kernel's iommu=pt).

    Groups can differ: those of the GPUs count, the first one speaks for a host without.
    """
    enabled = bool(host.listdir("/sys/class/iommu"))
    groups = {gpu["iommu_group"] for gpu in gpus} - {None} or host.listdir("/sys/kernel/iommu_groups")[:1]
    kinds = [host.read_value(f"/sys/kernel/iommu_groups/{group}/type") for group in groups]
    known = enabled and kinds and all(kinds)
    return {"enabled": enabled, "translation": any(kind.startswith("DMA") for kind in kinds) if known else None}
