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


def pick(name, index, convert=None, *arguments):
    """A reader for one part of the sequence that an NVML function answers."""

    def read(nv, gpu):
        value = getattr(nv, name)(gpu, *arguments)[index]
        return convert(value) if convert else value

    return read


def member(name, attribute, convert=None, *arguments):
    """A reader for one member of the structure that an NVML function answers."""

    def read(nv, gpu):
        value = getattr(getattr(nv, name)(gpu, *arguments), attribute)
        return convert(value) if convert else value

    return read


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


def memory(attribute):
    """A reader for the framebuffer's numbers; the newer call tells reserved from used, the older does not know it."""

    def read(nv, gpu):
        try:
            info = nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2)
        except nv.NVMLError as error:
            if error.value not in (nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
                raise
            info = nv.nvmlDeviceGetMemoryInfo(gpu)
        if not hasattr(info, attribute):
            raise NotSupported("this driver does not tell it")
        return values.mib(getattr(info, attribute))

    return read


def pci(attribute, convert):
    return member("nvmlDeviceGetPciInfo", attribute, convert)


def pci_device(number):
    """NVML packs the device id above the vendor id."""
    return "0x%04x" % (number >> 16)


def pci_subsystem(number):
    """Subsystem as ``vendor:device``, as the PCI facts have it."""
    return f"0x{number & 0xFFFF:04x}:0x{number >> 16:04x}"


def sram(attribute):
    def read(nv, gpu):
        status = nv.c_nvmlEccSramErrorStatus_v1_t()
        nv.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
        return getattr(status, attribute)

    return read


def platform(nv, gpu):
    """Where the GPU sits in a rack-scale machine: chassis serial number, slot, tray, host."""
    info = nv.c_nvmlPlatformInfo_v2_t()
    nv.nvmlDeviceGetPlatformInfo(gpu, ctypes.byref(info))
    return {
        "chassis_serial_number": values.text(info.chassisSerialNumber),
        "slot": values.number(info.slotNumber),
        "tray": values.number(info.trayIndex),
        "host": values.number(info.hostId),
        "module": values.number(info.moduleId),
    }


def compute_capability(nv, gpu):
    major, minor = nv.nvmlDeviceGetCudaComputeCapability(gpu)
    return {"major": major, "minor": minor}


def clock_reasons(nv, gpu):
    newer = getattr(nv, "nvmlDeviceGetCurrentClocksEventReasons", None)
    try:
        if newer:
            return values.reasons(newer(gpu))
    except nv.NVMLError as error:
        if error.value != nv.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return values.reasons(nv.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


def rows(index, convert=None):
    return pick("nvmlDeviceGetRemappedRows", index, convert)


def histogram(attribute):
    return member("nvmlDeviceGetRowRemapperHistogram", attribute)


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
ADDRESS = ("pci.address", pci("busId", values.address))

FIELDS = (
    ADDRESS,
    ("name", call("nvmlDeviceGetName", values.text)),
    ("uuid", call("nvmlDeviceGetUUID", values.text)),
    ("serial", call("nvmlDeviceGetSerial", values.text)),
    ("minor", call("nvmlDeviceGetMinorNumber")),
    ("board.id", call("nvmlDeviceGetBoardId")),
    ("board.part_number", call("nvmlDeviceGetBoardPartNumber", values.text)),
    ("module_id", call("nvmlDeviceGetModuleId", values.number)),
    ("brand", call("nvmlDeviceGetBrand", named(values.BRANDS))),
    ("architecture", call("nvmlDeviceGetArchitecture", named(values.ARCHITECTURES))),
    ("compute_capability", compute_capability),
    ("versions.vbios", call("nvmlDeviceGetVbiosVersion", values.text)),
    ("versions.gsp_firmware", call("nvmlDeviceGetGspFirmwareVersion", values.text)),
    ("versions.inforom.image", call("nvmlDeviceGetInforomImageVersion", values.text)),
    ("versions.inforom.oem", call("nvmlDeviceGetInforomVersion", values.text, 0)),
    ("versions.inforom.ecc", call("nvmlDeviceGetInforomVersion", values.text, 1)),
    ("versions.inforom.power", call("nvmlDeviceGetInforomVersion", values.text, 2)),
    ("virtualization_mode", call("nvmlDeviceGetVirtualizationMode", named(values.VIRTUALIZATION_MODES))),
    ("platform", platform),
    ("pci.device", pci("pciDeviceId", pci_device)),
    ("pci.subsystem", pci("pciSubSystemId", pci_subsystem)),
    ("pci.link.generation", call("nvmlDeviceGetCurrPcieLinkGeneration")),
    ("pci.link.max_generation", call("nvmlDeviceGetMaxPcieLinkGeneration")),
    ("pci.link.gpu_max_generation", call("nvmlDeviceGetGpuMaxPcieLinkGeneration")),
    ("pci.link.width", call("nvmlDeviceGetCurrPcieLinkWidth")),
    ("pci.link.max_width", call("nvmlDeviceGetMaxPcieLinkWidth")),
    ("pci.replay_count", call("nvmlDeviceGetPcieReplayCounter")),
    ("bar1.total_mib", member("nvmlDeviceGetBAR1MemoryInfo", "bar1Total", values.mib)),
    ("bar1.used_mib", member("nvmlDeviceGetBAR1MemoryInfo", "bar1Used", values.mib)),
    ("memory.total_mib", memory("total")),
    ("memory.reserved_mib", memory("reserved")),
    ("memory.used_mib", memory("used")),
    ("memory.free_mib", memory("free")),
    ("ecc.enabled", pick("nvmlDeviceGetEccMode", 0, values.flag)),
    ("ecc.pending", pick("nvmlDeviceGetEccMode", 1, values.flag)),
    ("ecc.volatile.corrected", call("nvmlDeviceGetTotalEccErrors", None, _CORRECTED, _VOLATILE)),
    ("ecc.volatile.uncorrected", call("nvmlDeviceGetTotalEccErrors", None, _UNCORRECTED, _VOLATILE)),
    ("ecc.volatile.dram_corrected", call("nvmlDeviceGetMemoryErrorCounter", None, _CORRECTED, _VOLATILE, _DRAM)),
    ("ecc.volatile.dram_uncorrected", call("nvmlDeviceGetMemoryErrorCounter", None, _UNCORRECTED, _VOLATILE, _DRAM)),
    ("ecc.volatile.sram_corrected", sram("volatileCor")),
    ("ecc.volatile.sram_uncorrected_parity", sram("volatileUncParity")),
    ("ecc.volatile.sram_uncorrected_secded", sram("volatileUncSecDed")),
    ("ecc.aggregate.corrected", call("nvmlDeviceGetTotalEccErrors", None, _CORRECTED, _AGGREGATE)),
    ("ecc.aggregate.uncorrected", call("nvmlDeviceGetTotalEccErrors", None, _UNCORRECTED, _AGGREGATE)),
    ("ecc.aggregate.dram_corrected", call("nvmlDeviceGetMemoryErrorCounter", None, _CORRECTED, _AGGREGATE, _DRAM)),
    ("ecc.aggregate.dram_uncorrected", call("nvmlDeviceGetMemoryErrorCounter", None, _UNCORRECTED, _AGGREGATE, _DRAM)),
    ("ecc.aggregate.sram_corrected", sram("aggregateCor")),
    ("ecc.aggregate.sram_uncorrected_parity", sram("aggregateUncParity")),
    ("ecc.aggregate.sram_uncorrected_secded", sram("aggregateUncSecDed")),
    ("ecc.aggregate.sram_threshold_exceeded", lambda nv, gpu: bool(sram("bThresholdExceeded")(nv, gpu))),
    ("remapped_rows.corrected", rows(0)),
    ("remapped_rows.uncorrected", rows(1)),
    ("remapped_rows.pending", rows(2, values.flag)),
    ("remapped_rows.failure", rows(3, values.flag)),
    ("remapped_rows.banks.max", histogram("max")),
    ("remapped_rows.banks.high", histogram("high")),
    ("remapped_rows.banks.partial", histogram("partial")),
    ("remapped_rows.banks.low", histogram("low")),
    ("remapped_rows.banks.none", histogram("none")),
    ("repair.channel_pending", pick("nvmlDeviceGetRepairStatus", 0, values.flag)),
    ("repair.tpc_pending", pick("nvmlDeviceGetRepairStatus", 1, values.flag)),
    ("retired_pages.single_bit", retired_pages(0)),
    ("retired_pages.double_bit", retired_pages(1)),
    ("retired_pages.pending", call("nvmlDeviceGetRetiredPagesPendingStatus", values.flag)),
    ("power.draw_w", call("nvmlDeviceGetPowerUsage", values.watts)),
    ("power.average_w", numbered(185, values.watts)),
    ("power.instant_w", numbered(186, values.watts)),
    ("power.module_average_w", numbered(185, values.watts, _MODULE_SCOPE)),
    ("power.module_instant_w", numbered(186, values.watts, _MODULE_SCOPE)),
    ("power.memory_average_w", numbered(185, values.watts, _MEMORY_SCOPE)),
    ("power.limit_w", call("nvmlDeviceGetPowerManagementLimit", values.watts)),
    ("power.default_limit_w", call("nvmlDeviceGetPowerManagementDefaultLimit", values.watts)),
    ("power.enforced_limit_w", call("nvmlDeviceGetEnforcedPowerLimit", values.watts)),
    ("power.min_limit_w", pick("nvmlDeviceGetPowerManagementLimitConstraints", 0, values.watts)),
    ("power.max_limit_w", pick("nvmlDeviceGetPowerManagementLimitConstraints", 1, values.watts)),
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
    ("utilization.gpu_percent", member("nvmlDeviceGetUtilizationRates", "gpu")),
    ("utilization.memory_percent", member("nvmlDeviceGetUtilizationRates", "memory")),
    ("compute_mode", call("nvmlDeviceGetComputeMode", named(values.COMPUTE_MODES))),
    ("persistence_mode", call("nvmlDeviceGetPersistenceMode", values.flag)),
    ("recovery_action", numbered(230, named(values.RECOVERY_ACTIONS))),
    ("affinity.cpus", cpu_affinity),
    ("affinity.memory_nodes", memory_affinity),
    ("affinity.numa_node", call("nvmlDeviceGetNumaNodeId")),
)
