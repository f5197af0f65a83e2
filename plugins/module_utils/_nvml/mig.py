# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Multi-Instance GPU: the profiles a GPU offers, where they fit, and the instances that exist."""

import ctypes

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import values
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml.fields import sequence

#: Profile enumerations grow with the driver: ask until it calls one an invalid argument, and no further than this.
_PROFILE_LIMIT = 64
_COMPUTE_PROFILES = 16
_SHARED_ENGINES = 0


def profiles(nv, gpu):
    """GPU instance profiles: list of ``{enum, id, name, slices, max_instances, remaining, multiprocessors, memory_mib,
    copy_engines, decoders, encoders, jpeg_engines, ofa_engines, placements: {size, starts}}``."""
    found = []
    for enum in range(_PROFILE_LIMIT):
        try:
            info = _profile(nv, gpu, enum)
        except nv.NVMLError as error:
            if error.value == nv.NVML_ERROR_INVALID_ARGUMENT:
                break
            if error.value != nv.NVML_ERROR_NOT_SUPPORTED:
                raise
            continue
        name = values.text(getattr(info, "name", b""))
        found.append(
            {
                "enum": enum,
                "id": info.id,
                "name": name[len("MIG ") :] if name and name.startswith("MIG ") else name,
                "slices": info.sliceCount,
                "max_instances": info.instanceCount,
                "remaining": _or_none(nv, lambda info=info: nv.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, info.id)),
                "multiprocessors": info.multiprocessorCount,
                "memory_mib": info.memorySizeMB,
                "copy_engines": info.copyEngineCount,
                "decoders": info.decoderCount,
                "encoders": info.encoderCount,
                "jpeg_engines": info.jpegCount,
                "ofa_engines": info.ofaCount,
                "placements": _or_none(nv, lambda info=info: _placements(nv, gpu, info.id)),
            }
        )
    return found


def _profile(nv, gpu, enum):
    """The newer call also tells the name; a driver that lacks it answers the older one."""
    try:
        return nv.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enum, version=2)
    except nv.NVMLError as error:
        if error.value not in (nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
            raise
    return nv.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enum, version=1)


def _placements(nv, gpu, profile):
    count = ctypes.c_uint(0)
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, None, ctypes.byref(count))
    if not count.value:
        return {"size": None, "starts": []}
    places = (nv.c_nvmlGpuInstancePlacement_t * count.value)()
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, places, ctypes.byref(count))
    used = places[: count.value]
    return {"size": used[0].size, "starts": sorted(place.start for place in used)}


def instances(nv, gpu):
    """Existing GPU instances: list of ``{id, profile_id, placement: {start, size}, compute_instances}``.

    ``compute_instances`` is a list of ``{id, profile_id}``. Ids are the driver's and opaque.
    """
    found = []
    for profile in profiles(nv, gpu):
        handles = (nv.c_nvmlGpuInstance_t * max(profile["max_instances"], 1))()
        count = ctypes.c_uint(len(handles))
        nv.nvmlDeviceGetGpuInstances(gpu, profile["id"], handles, ctypes.byref(count))
        for handle in handles[: count.value]:
            info = nv.nvmlGpuInstanceGetInfo(handle)
            found.append(
                {
                    "id": info.id,
                    "profile_id": info.profileId,
                    "placement": {"start": info.placement.start, "size": info.placement.size},
                    "compute_instances": _compute_instances(nv, handle),
                }
            )
    return sorted(found, key=lambda instance: instance["placement"]["start"])


def _compute_instances(nv, instance):
    found = []
    for enum in range(_COMPUTE_PROFILES):
        try:
            profile = nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enum, _SHARED_ENGINES, version=1)
        except nv.NVMLError as error:
            if error.value == nv.NVML_ERROR_INVALID_ARGUMENT:
                break
            if error.value != nv.NVML_ERROR_NOT_SUPPORTED:
                raise
            continue
        handles = (nv.c_nvmlComputeInstance_t * max(profile.instanceCount, 1))()
        count = ctypes.c_uint(len(handles))
        nv.nvmlGpuInstanceGetComputeInstances(instance, profile.id, handles, ctypes.byref(count))
        for handle in handles[: count.value]:
            info = nv.nvmlComputeInstanceGetInfo(handle)
            found.append({"id": info.id, "profile_id": info.profileId})
    return sorted(found, key=lambda entry: entry["id"])


def devices(nv, gpu):
    """MIG devices as programs see them: list of ``{uuid, name, gpu_instance_id, compute_instance_id, memory_mib,
    multiprocessors}``."""
    found = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            device = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except nv.NVMLError as error:
            if error.value == nv.NVML_ERROR_NOT_FOUND:  # a hole: later indexes may exist
                continue
            raise
        found.append(
            {
                "uuid": values.text(nv.nvmlDeviceGetUUID(device)),
                "name": _or_none(nv, lambda device=device: values.text(nv.nvmlDeviceGetName(device))),
                "gpu_instance_id": nv.nvmlDeviceGetGpuInstanceId(device),
                "compute_instance_id": nv.nvmlDeviceGetComputeInstanceId(device),
                "memory_mib": _or_none(nv, lambda device=device: nv.nvmlDeviceGetAttributes(device).memorySizeMB),
                "multiprocessors": _or_none(
                    nv, lambda device=device: nv.nvmlDeviceGetAttributes(device).multiprocessorCount
                ),
            }
        )
    return found


def _or_none(nv, read):
    """The answer, or None when this driver or GPU has none; a lost GPU is not "none"."""
    try:
        return read()
    except nv.NVMLError as error:
        if error.value == nv.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


#: A GPU that does not support these knows no MIG, and is not asked further.
MODE_FIELDS = (("mig", sequence("nvmlDeviceGetMigMode", enabled=bool, pending=bool)),)
FIELDS = (
    ("mig.profiles", profiles),
    ("mig.max_devices", lambda nv, gpu: nv.nvmlDeviceGetMaxMigDeviceCount(gpu)),
)
#: Without MIG mode there are none, and drivers differ in what they answer.
DISABLED_FIELDS = (("mig.instances", lambda nv, gpu: []), ("mig.devices", lambda nv, gpu: []))
#: Asked only while MIG mode is on.
ENABLED_FIELDS = (("mig.instances", instances), ("mig.devices", devices))
