# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that use a GPU, as the driver lists them."""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import values

_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
#: The kernel's own upper limit of process ids.
_PID_LIMIT = 1 << 22
#: No GPU has so many bytes.
_MEMORY_LIMIT = 1 << 44


class Implausible(Exception):
    """The driver's structure is not the one that the binding expects, as with drivers 535 before 535.98."""


def processes(nv, gpu):
    """List of ``{pid, type, memory_mib, gpu_instance_id, compute_instance_id}``; ``type`` is compute, graphics or mps.

    :raises Implausible: when an entry cannot be true, so that nobody acts on a wrong process id.
    """
    found = []
    answered = False
    refusal = None
    for kind, name in _LISTS:
        try:
            entries = getattr(nv, name)(gpu)
        except nv.NVMLError as error:
            if error.value not in (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_FUNCTION_NOT_FOUND):
                raise
            refusal = error
            continue
        answered = True
        for entry in entries:
            if not 0 < entry.pid < _PID_LIMIT:
                raise Implausible(f"process id {entry.pid} cannot be true: the driver fills in another structure")
            memory = None if entry.usedGpuMemory is None else values.number(entry.usedGpuMemory)
            if memory is not None and not 0 <= memory < _MEMORY_LIMIT:
                raise Implausible(f"{memory} bytes cannot be true: the driver fills in another structure")
            found.append(
                {
                    "pid": entry.pid,
                    "type": kind,
                    "memory_mib": None if memory is None else values.mib(memory),
                    "gpu_instance_id": values.number(entry.gpuInstanceId),
                    "compute_instance_id": values.number(entry.computeInstanceId),
                }
            )
    if not answered:
        raise refusal
    return sorted(found, key=lambda entry: (entry["pid"], entry["type"]))


FIELDS = (("processes", processes),)
