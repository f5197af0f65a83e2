# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink, the NVSwitch fabric and how GPUs reach each other."""

import ctypes

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import values
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml.fields import Group, field_value

_LINK_COUNT, _SWITCH_LINK_COUNT = 91, 147
_SPEED = 164
_ERRORS = ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
_P2P = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3), ("pci", 4))
#: What :func:`relation` tells.
RELATIONS = ("ancestor",) + tuple(name for name, _index in _P2P)


class _FabricInfo(ctypes.Structure):
    """NVML's nvmlGpuFabricInfo, version 3; version 2 ends before the last member.

    Our own declaration: bindings before 12.570.86 have a wrong size, and 12.570 cuts the UUID at its first zero.
    """

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("cluster_uuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint32),
        ("clique_id", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
        ("health_mask", ctypes.c_uint32),
        ("health_summary", ctypes.c_uint8),
    )


_FABRIC_VERSIONS = (0x03000028, 0x02000024)


def _fabric(nv, gpu):
    """The GPU's place in the fabric; newer structure versions are refused by older drivers, so step down."""
    for version in _FABRIC_VERSIONS:
        info = _FabricInfo(version=version)
        try:
            nv.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(info))
        except nv.NVMLError as error:
            refused = (nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nv.NVML_ERROR_INVALID_ARGUMENT)
            if version == _FABRIC_VERSIONS[-1] or error.value not in refused:
                raise
            continue
        has_summary = version == _FABRIC_VERSIONS[0]
        return {
            "state": values.word(values.FABRIC_STATES, info.state),
            "status_code": info.status,
            "clique_id": info.clique_id,
            "cluster_uuid": "{}-{}-{}-{}-{}".format(*_uuid_parts(bytes(info.cluster_uuid).hex())),
            "health_mask": info.health_mask,
            "health_summary": values.word(values.FABRIC_HEALTH, info.health_summary) if has_summary else None,
        }
    return None


def _uuid_parts(digits):
    return digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]


fabric = Group(("state", "status_code", "clique_id", "cluster_uuid", "health_mask", "health_summary"), _fabric)


def link_count(nv, gpu):
    return field_value(nv, gpu, _LINK_COUNT)


def switch_link_count(nv, gpu):
    return field_value(nv, gpu, _SWITCH_LINK_COUNT)


def empty(index):
    """A link of which nothing is known."""
    return {"link": index, "active": None, "speed_mb_s": None, "version": None, "remote": None, "errors": None}


def link(nv, gpu, index):
    """One NVLink: ``{link, active, speed_mb_s, version, remote: {type, address}, errors}``; None where unknown."""

    def ask(read, convert=None):
        try:
            value = read()
        except nv.NVMLError as error:
            if error.value == nv.NVML_ERROR_GPU_IS_LOST:
                raise
            return None
        return convert(value) if convert else value

    answer = dict(empty(index), active=ask(lambda: nv.nvmlDeviceGetNvLinkState(gpu, index), bool))
    if answer["active"]:
        answer["speed_mb_s"] = ask(lambda: field_value(nv, gpu, _SPEED, index))
        answer["version"] = ask(lambda: nv.nvmlDeviceGetNvLinkVersion(gpu, index))
        answer["remote"] = {
            "type": ask(
                lambda: nv.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, index),
                lambda number: values.word(values.REMOTE_TYPES, number),
            ),
            "address": ask(lambda: nv.nvmlDeviceGetNvLinkRemotePciInfo(gpu, index).busId, values.address),
        }
        answer["errors"] = {
            name: ask(lambda counter=counter: nv.nvmlDeviceGetNvLinkErrorCounter(gpu, index, counter))
            for counter, name in enumerate(_ERRORS)
        }
    return answer


def relation(nv, gpu, other):
    """How two GPUs reach each other: ``{ancestor, read, write, nvlink, atomics, pci}``, words; None where unknown."""

    def ask(read, table):
        try:
            return values.word(table, read())
        except nv.NVMLError as error:
            if error.value == nv.NVML_ERROR_GPU_IS_LOST:
                raise
            return None

    answer = {"ancestor": ask(lambda: nv.nvmlDeviceGetTopologyCommonAncestor(gpu, other), values.ANCESTORS)}
    for name, index in _P2P:
        answer[name] = ask(lambda index=index: nv.nvmlDeviceGetP2PStatus(gpu, other, index), values.P2P_STATUSES)
    return answer
