# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make recorded NVML calls again and print the answers in the recording's form (run by test_conformance.py).

python replay.py tests/fixtures/h200/nvml.json
"""

import ctypes
import json
import sys

import pynvml

STRUCTURES = {"c_nvmlGpuFabricInfo_t", "c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t"}
#: calls on the library or the machine, not on a GPU; the others get the GPU's handle first
WITHOUT_HANDLE = ("nvmlSystem", "nvmlUnit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleBy")
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def plain(value):
    """A binding's answer as JSON can hold it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, ctypes.Array):
        return [plain(item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, (int, float, str)) or value is None:
        return value
    return "<%s>" % type(value).__name__


def fields(handle, field):
    answer = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    if answer.nvmlReturn:
        return {"rc": answer.nvmlReturn, "type": None, "result": None}
    value = getattr(answer.value, VALUE_MEMBERS[answer.valueType])
    return {"rc": 0, "type": answer.valueType, "result": value}


def raw(name, handle, profile):
    """Calls that the binding leaves to its user's arrays."""
    count = ctypes.c_uint()
    array = (pynvml.c_nvmlGpuInstancePlacement_t * 16)()
    symbol = pynvml._nvmlGetFunctionPointer(name)
    if name.endswith("RemainingCapacity"):
        rc = symbol(handle, profile, ctypes.byref(count))
        return {"rc": rc, "result": count.value}
    rc = symbol(handle, profile, array, ctypes.byref(count))
    placements = [[item.start, item.size] for item in array[: count.value]]
    if name.endswith("GetGpuInstances"):
        return {"rc": rc, "result": count.value}
    return {"rc": rc, "result": None if rc else placements}


def call(record, handle):
    name, arguments = record["call"], record["args"]
    if name == "nvmlDeviceGetFieldValues":
        return fields(handle, *arguments)
    if "rc" in record:
        return raw(name, handle, *arguments)
    function = getattr(pynvml, name, None)
    if function is None:
        return {"missing": True}
    arguments = [handle if argument == "self" else argument for argument in arguments]
    if arguments == ["nvmlMemory_v2"]:
        arguments = [pynvml.nvmlMemory_v2]
    if not name.startswith(WITHOUT_HANDLE):
        arguments.insert(0, handle)
    try:
        if record["args"] and record["args"][0] in STRUCTURES:
            name_of_structure = arguments.pop()
            if not hasattr(pynvml, name_of_structure):
                return {"missing": True}
            structure = getattr(pynvml, name_of_structure)()
            function(*arguments, ctypes.byref(structure))
            return {"result": plain(structure)}
        return {"result": plain(function(*arguments))}
    except pynvml.NVMLError as error:
        return {"error": {"code": error.value}}


def main():
    with open(sys.argv[1]) as stream:
        records = json.load(stream)["records"]
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    json.dump([call(record, handle) for record in records], sys.stdout)


if __name__ == "__main__":
    main()
