# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of one GPU: a table of dotted name and reader, in the order in which they are asked.

A reader is ``reader(nv, gpu) -> value``; it may raise what the binding raises. The name says the unit. To add a field,
add a row here and describe it in the module's RETURN.
"""

import ctypes

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import values

#: 16 words hold the affinity of 1024 processors, one word the affinity of 64 memory nodes.
_CPU_WORDS = 16
_GPU_SCOPE, _MODULE_SCOPE, _MEMORY_SCOPE = 0, 1, 2
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_DRAM = 2


class NotSupported(Exception):
    """The driver answered without an answer."""


def call(name, convert=None, *arguments):
    """A reader for one NVML function, its answer converted."""

    def read(nv, gpu):
        value = getattr(nv, name)(gpu, *arguments)
        return convert(value) if convert else value

    return read


def sequence(name, **parts):
    """A reader for an NVML function that answers a sequence: one value a part, in order, each with its converter."""

    def read(nv, gpu):
        answer = getattr(nv, name)(gpu)
        return {part: _converted(convert, value) for (part, convert), value in zip(parts.items(), answer)}

    return Group(parts, read)


def structure(name, **parts):
    """A reader for an NVML function that answers a structure: ``part=(member, converter)``."""

    def read(nv, gpu):
        answer = getattr(nv, name)(gpu)
        return {part: _converted(convert, getattr(answer, member)) for part, (member, convert) in parts.items()}

    return Group(parts, read)


class Group:
    """A reader whose one NVML call answers several fields: ``keys`` below the group's name."""

    def __init__(self, keys, read):
        self.keys = tuple(keys)
        self._read = read

    def __call__(self, nv, gpu):
        return self._read(nv, gpu)


def _converted(convert, value):
    return convert(value) if convert else value


def named(table):
    return lambda number: values.word(table, number)


def field_value(nv, gpu, field, scope=0):
    """One of NVML's numbered field values as int or float."""
    answer = nv.nvmlDeviceGetFieldValues(gpu, [(field, scope)])[0]
    if answer.nvmlReturn != 0:
        raise nv.NVMLError(answer.nvmlReturn)
    member_name = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}.get(answer.valueType, "dVal")
    value = getattr(answer.value, member_name)
    # every field we ask for is an integer: a double of zero is a value that the driver has not filled in
    if member_name == "dVal":
        raise NotSupported(f"field {field} is empty")
    return value


def numbered(field, convert=None, scope=0):
    """A reader for a numbered field value."""

    def read(nv, gpu):
        value = field_value(nv, gpu, field, scope)
        return convert(value) if convert else value

    return read


def _memory(nv, gpu):
    """The framebuffer in MiB; the newer call tells reserved from used, the older does not know it."""
    try:
        info = nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2)
    except nv.NVMLError as error:
        if error.value not in (nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
            raise
        info = nv.nvmlDeviceGetMemoryInfo(gpu)
    return {
        "total_mib": values.mib(info.total),
        "reserved_mib": values.mib(info.reserved) if hasattr(info, "reserved") else None,
        "used_mib": values.mib(info.used),
        "free_mib": values.mib(info.free),
    }


def pci_device(number):
    """NVML packs the device id above the vendor id."""
    return f"0x{number >> 16:04x}"


def pci_subsystem(number):
    """Subsystem as ``vendor:device``, as the PCI facts have it."""
    return f"0x{number & 0xFFFF:04x}:0x{number >> 16:04x}"


_SRAM = {
    "volatile.sram_corrected": "volatileCor",
    "volatile.sram_uncorrected_parity": "volatileUncParity",
    "volatile.sram_uncorrected_secded": "volatileUncSecDed",
    "aggregate.sram_corrected": "aggregateCor",
    "aggregate.sram_uncorrected_parity": "aggregateUncParity",
    "aggregate.sram_uncorrected_secded": "aggregateUncSecDed",
    "aggregate.sram_threshold_exceeded": "bThresholdExceeded",
}


def _sram(nv, gpu):
    status = nv.c_nvmlEccSramErrorStatus_v1_t()
    nv.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
    answer = {part: getattr(status, member) for part, member in _SRAM.items()}
    answer["aggregate.sram_threshold_exceeded"] = bool(status.bThresholdExceeded)
    return answer


_PLATFORM = ("chassis_serial_number", "slot", "tray", "host", "module")


def _platform(nv, gpu):
    """Where the GPU sits in a rack-scale machine."""
    info = nv.c_nvmlPlatformInfo_v2_t()
    nv.nvmlDeviceGetPlatformInfo(gpu, ctypes.byref(info))
    numbers = (info.slotNumber, info.trayIndex, info.hostId, info.moduleId)
    return dict(zip(_PLATFORM, [values.text(info.chassisSerialNumber)] + [values.number(each) for each in numbers]))


def clock_reasons(nv, gpu):
    newer = getattr(nv, "nvmlDeviceGetCurrentClocksEventReasons", None)
    try:
        if newer:
            return values.reasons(newer(gpu))
    except nv.NVMLError as error:
        if error.value != nv.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return values.reasons(nv.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


def retired_pages(cause):
    return call("nvmlDeviceGetRetiredPages", len, cause)


def cpu_affinity(nv, gpu):
    return values.ranges(list(nv.nvmlDeviceGetCpuAffinity(gpu, _CPU_WORDS)))


def memory_affinity(nv, gpu):
    bits = list(nv.nvmlDeviceGetMemoryAffinity(gpu, 1, 0))[0]
    return [node for node in range(64) if bits >> node & 1]


def _clocks():
    for kind, name in enumerate(("graphics_mhz", "sm_mhz", "memory_mhz", "video_mhz")):
        yield "clocks.current." + name, call("nvmlDeviceGetClockInfo", None, kind)
        yield "clocks.max." + name, call("nvmlDeviceGetMaxClockInfo", None, kind)
    yield "clocks.max_customer_boost_mhz", call("nvmlDeviceGetMaxCustomerBoostClock", None, 0)
    yield "clocks.applications.graphics_mhz", call("nvmlDeviceGetApplicationsClock", None, 0)
    yield "clocks.applications.memory_mhz", call("nvmlDeviceGetApplicationsClock", None, 2)


#: The address comes first: it names the GPU in every report about it.
ADDRESS = (
    "pci",
    structure(
        "nvmlDeviceGetPciInfo",
        address=("busId", values.address),
        device=("pciDeviceId", pci_device),
        subsystem=("pciSubSystemId", pci_subsystem),
    ),
)

#: Asked whatever the subsets are.
IDENTITY = (ADDRESS, ("name", call("nvmlDeviceGetName", values.text)))

FIELDS = (
    ("uuid", call("nvmlDeviceGetUUID", values.text)),
    ("serial", call("nvmlDeviceGetSerial", values.text)),
    ("minor", call("nvmlDeviceGetMinorNumber")),
    ("board.id", call("nvmlDeviceGetBoardId")),
    ("board.part_number", call("nvmlDeviceGetBoardPartNumber", values.text)),
    ("module_id", call("nvmlDeviceGetModuleId", values.number)),
    ("brand", call("nvmlDeviceGetBrand", named(values.BRANDS))),
    ("architecture", call("nvmlDeviceGetArchitecture", named(values.ARCHITECTURES))),
    ("compute_capability", sequence("nvmlDeviceGetCudaComputeCapability", major=None, minor=None)),
    ("versions.vbios", call("nvmlDeviceGetVbiosVersion", values.text)),
    ("versions.gsp_firmware", call("nvmlDeviceGetGspFirmwareVersion", values.text)),
    ("versions.inforom.image", call("nvmlDeviceGetInforomImageVersion", values.text)),
    ("versions.inforom.oem", call("nvmlDeviceGetInforomVersion", values.text, 0)),
    ("versions.inforom.ecc", call("nvmlDeviceGetInforomVersion", values.text, 1)),
    ("versions.inforom.power", call("nvmlDeviceGetInforomVersion", values.text, 2)),
    ("virtualization_mode", call("nvmlDeviceGetVirtualizationMode", named(values.VIRTUALIZATION_MODES))),
    ("platform", Group(_PLATFORM, _platform)),
    ("pci.link.generation", call("nvmlDeviceGetCurrPcieLinkGeneration")),
    ("pci.link.max_generation", call("nvmlDeviceGetMaxPcieLinkGeneration")),
    ("pci.link.gpu_max_generation", call("nvmlDeviceGetGpuMaxPcieLinkGeneration")),
    ("pci.link.width", call("nvmlDeviceGetCurrPcieLinkWidth")),
    ("pci.link.max_width", call("nvmlDeviceGetMaxPcieLinkWidth")),
    ("pci.replay_count", call("nvmlDeviceGetPcieReplayCounter")),
    (
        "bar1",
        structure(
            "nvmlDeviceGetBAR1MemoryInfo", total_mib=("bar1Total", values.mib), used_mib=("bar1Used", values.mib)
        ),
    ),
    ("memory", Group(("total_mib", "reserved_mib", "used_mib", "free_mib"), _memory)),
    ("ecc", sequence("nvmlDeviceGetEccMode", enabled=bool, pending=bool)),
    ("ecc", Group(_SRAM, _sram)),
    ("ecc.volatile.corrected", call("nvmlDeviceGetTotalEccErrors", None, _CORRECTED, _VOLATILE)),
    ("ecc.volatile.uncorrected", call("nvmlDeviceGetTotalEccErrors", None, _UNCORRECTED, _VOLATILE)),
    ("ecc.volatile.dram_corrected", call("nvmlDeviceGetMemoryErrorCounter", None, _CORRECTED, _VOLATILE, _DRAM)),
    ("ecc.volatile.dram_uncorrected", call("nvmlDeviceGetMemoryErrorCounter", None, _UNCORRECTED, _VOLATILE, _DRAM)),
    ("ecc.aggregate.corrected", call("nvmlDeviceGetTotalEccErrors", None, _CORRECTED, _AGGREGATE)),
    ("ecc.aggregate.uncorrected", call("nvmlDeviceGetTotalEccErrors", None, _UNCORRECTED, _AGGREGATE)),
    ("ecc.aggregate.dram_corrected", call("nvmlDeviceGetMemoryErrorCounter", None, _CORRECTED, _AGGREGATE, _DRAM)),
    ("ecc.aggregate.dram_uncorrected", call("nvmlDeviceGetMemoryErrorCounter", None, _UNCORRECTED, _AGGREGATE, _DRAM)),
    (
        "remapped_rows",
        sequence("nvmlDeviceGetRemappedRows", corrected=None, uncorrected=None, pending=bool, failure=bool),
    ),
    (
        "remapped_rows.banks",
        structure(
            "nvmlDeviceGetRowRemapperHistogram",
            max=("max", None),
            high=("high", None),
            partial=("partial", None),
            low=("low", None),
            none=("none", None),
        ),
    ),
    ("repair", sequence("nvmlDeviceGetRepairStatus", channel_pending=bool, tpc_pending=bool)),
    ("retired_pages.single_bit", retired_pages(0)),
    ("retired_pages.double_bit", retired_pages(1)),
    ("retired_pages.pending", call("nvmlDeviceGetRetiredPagesPendingStatus", bool)),
    ("power.draw_w", call("nvmlDeviceGetPowerUsage", values.watts)),
    ("power.average_w", numbered(185, values.watts)),
    ("power.instant_w", numbered(186, values.watts)),
    ("power.module_average_w", numbered(185, values.watts, _MODULE_SCOPE)),
    ("power.module_instant_w", numbered(186, values.watts, _MODULE_SCOPE)),
    ("power.memory_average_w", numbered(185, values.watts, _MEMORY_SCOPE)),
    ("power.limit_w", call("nvmlDeviceGetPowerManagementLimit", values.watts)),
    ("power.default_limit_w", call("nvmlDeviceGetPowerManagementDefaultLimit", values.watts)),
    ("power.enforced_limit_w", call("nvmlDeviceGetEnforcedPowerLimit", values.watts)),
    (
        "power",
        sequence("nvmlDeviceGetPowerManagementLimitConstraints", min_limit_w=values.watts, max_limit_w=values.watts),
    ),
    ("temperature.gpu_c", call("nvmlDeviceGetTemperature", None, 0)),
    ("temperature.memory_c", numbered(82)),
    ("temperature.margin_c", call("nvmlDeviceGetMarginTemperature")),
    ("temperature.thresholds.shutdown_c", call("nvmlDeviceGetTemperatureThreshold", None, 0)),
    ("temperature.thresholds.slowdown_c", call("nvmlDeviceGetTemperatureThreshold", None, 1)),
    ("temperature.thresholds.memory_max_c", call("nvmlDeviceGetTemperatureThreshold", None, 2)),
    ("temperature.thresholds.gpu_max_c", call("nvmlDeviceGetTemperatureThreshold", None, 3)),
    ("temperature.margin_thresholds.shutdown_c", numbered(193)),
    ("temperature.margin_thresholds.slowdown_c", numbered(194)),
    ("temperature.margin_thresholds.memory_max_c", numbered(195)),
    ("temperature.margin_thresholds.gpu_max_c", numbered(196)),
    *_clocks(),
    ("clocks.event_reasons", clock_reasons),
    ("performance_state", call("nvmlDeviceGetPerformanceState", values.number)),
    (
        "utilization",
        structure("nvmlDeviceGetUtilizationRates", gpu_percent=("gpu", None), memory_percent=("memory", None)),
    ),
    ("compute_mode", call("nvmlDeviceGetComputeMode", named(values.COMPUTE_MODES))),
    ("persistence_mode", call("nvmlDeviceGetPersistenceMode", bool)),
    ("recovery_action", numbered(230, named(values.RECOVERY_ACTIONS))),
    ("affinity.cpus", cpu_affinity),
    ("affinity.memory_nodes", memory_affinity),
    ("affinity.numa_node", call("nvmlDeviceGetNumaNodeId")),
)
