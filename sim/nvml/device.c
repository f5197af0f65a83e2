/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Identity, memory, power, temperatures, clocks and modes of one GPU. Most calls are one line of a table. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

/* A call that gives one number: column `column` of the GPU's value `key`. */
#define NUMBER(call, type, key, column)                                                                                \
    API call(nvmlDevice_t handle, type *value)                                                                         \
    {                                                                                                                  \
        unsigned long long number = 0;                                                                                 \
        unsigned gpu;                                                                                                  \
        nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);                                                       \
        if (result == NVML_SUCCESS && value == NULL)                                                                   \
            result = NVML_ERROR_INVALID_ARGUMENT;                                                                      \
        if (result == NVML_SUCCESS)                                                                                    \
            result = gpu_number(gpu, key, column, &number);                                                            \
        if (result == NVML_SUCCESS)                                                                                    \
            *value = (type)number;                                                                                     \
        return result;                                                                                                 \
    }

/* A call that gives two numbers. */
#define TWO_NUMBERS(call, type, key, other_key, other_column)                                                          \
    API call(nvmlDevice_t handle, type *value, type *other)                                                            \
    {                                                                                                                  \
        unsigned long long number = 0, second = 0;                                                                     \
        unsigned gpu;                                                                                                  \
        nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);                                                       \
        if (result == NVML_SUCCESS)                                                                                    \
            result = gpu_number(gpu, key, 0, &number);                                                                 \
        if (result == NVML_SUCCESS)                                                                                    \
            result = gpu_number(gpu, other_key, other_column, &second);                                                \
        if (result == NVML_SUCCESS && (value == NULL || other == NULL))                                                \
            result = NVML_ERROR_INVALID_ARGUMENT;                                                                      \
        if (result == NVML_SUCCESS) {                                                                                  \
            *value = (type)number;                                                                                     \
            *other = (type)second;                                                                                     \
        }                                                                                                              \
        return result;                                                                                                 \
    }

/* A call that gives a number for an index below `limit`: value `key.<index>`. */
#define NUMBER_BY_INDEX(call, key, limit)                                                                              \
    API call(nvmlDevice_t handle, unsigned index, unsigned *value)                                                     \
    {                                                                                                                  \
        unsigned gpu;                                                                                                  \
        nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);                                                       \
        return result != NVML_SUCCESS ? result : number_by_index(gpu, key, index, limit, value);                       \
    }

/* A call that fills a caller's buffer with a text. */
#define TEXT(call, key)                                                                                                \
    API call(nvmlDevice_t handle, char *text, unsigned size)                                                           \
    {                                                                                                                  \
        unsigned gpu;                                                                                                  \
        nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);                                                       \
        return result != NVML_SUCCESS ? result : gpu_text(gpu, key, text, size);                                       \
    }

static nvmlReturn_t number_by_index(unsigned gpu, const char *key, unsigned index, unsigned limit, unsigned *value)
{
    char full[MAX_KEY];
    unsigned long long number;
    if (index >= limit || value == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(full, sizeof full, "%s.%u", key, index);
    nvmlReturn_t result = gpu_number(gpu, full, 0, &number);
    if (result == NVML_SUCCESS)
        *value = (unsigned)number;
    return result;
}

/* identity */
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom.image")
NUMBER(nvmlDeviceGetBrand, unsigned, "brand", 0)
NUMBER(nvmlDeviceGetArchitecture, unsigned, "architecture", 0)
NUMBER(nvmlDeviceGetBoardId, unsigned, "board_id", 0)
NUMBER(nvmlDeviceGetModuleId, unsigned, "module_id", 0)
NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned, "multi_gpu_board", 0)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, "minor", 0)
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, "cores", 0)
NUMBER(nvmlDeviceGetInforomConfigurationChecksum, unsigned, "inforom_checksum", 0)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, "virtualization_mode", 0)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned, "coherent_numa_node", 0)
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, int, "compute_capability", "compute_capability", 1)
TWO_NUMBERS(nvmlDeviceGetGspFirmwareMode, unsigned, "gsp", "gsp", 1)

/* PCI */
NUMBER(nvmlDeviceGetIrqNum, unsigned, "irq", 0)
NUMBER(nvmlDeviceGetBusType, unsigned, "bus_type", 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "link.gen", 0)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "link.width", 0)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, "link.max_gen", 0)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "link.max_width", 0)
NUMBER(nvmlDeviceGetPcieLinkMaxSpeed, unsigned, "link.max_gen", 0)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, "pcie_replay", 0)

/* memory and utilisation */
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, "memory.bus_width", 0)
TWO_NUMBERS(nvmlDeviceGetDecoderUtilization, unsigned, "decoder_utilization", "decoder_utilization", 1)
TWO_NUMBERS(nvmlDeviceGetEncoderUtilization, unsigned, "decoder_utilization", "decoder_utilization", 1)
TWO_NUMBERS(nvmlDeviceGetJpgUtilization, unsigned, "decoder_utilization", "decoder_utilization", 1)
TWO_NUMBERS(nvmlDeviceGetOfaUtilization, unsigned, "decoder_utilization", "decoder_utilization", 1)

/* power and temperature */
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power.usage", 0)
NUMBER(nvmlDeviceGetPowerManagementMode, unsigned, "power.mode", 0)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, "power.limit", 0)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power.limit", 0)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, "power.default", 0)
TWO_NUMBERS(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, "power.min", "power.max", 0)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, "energy", 0)
NUMBER_BY_INDEX(nvmlDeviceGetTemperatureThreshold, "threshold", 8)
NUMBER(nvmlDeviceGetNumFans, unsigned, "fans", 0)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, "fan_speed", 0)

/* clocks */
NUMBER_BY_INDEX(nvmlDeviceGetClockInfo, "clock", 4)
NUMBER_BY_INDEX(nvmlDeviceGetMaxClockInfo, "max_clock", 4)
NUMBER_BY_INDEX(nvmlDeviceGetApplicationsClock, "app_clock", 4)
NUMBER_BY_INDEX(nvmlDeviceGetDefaultApplicationsClock, "app_clock", 4)
NUMBER_BY_INDEX(nvmlDeviceGetMaxCustomerBoostClock, "boost_clock", 4)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "event_reasons", 0)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "event_reasons", 0)
NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, "event_reasons_supported", 0)
NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, "event_reasons_supported", 0)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, "performance_state", 0)
NUMBER(nvmlDeviceGetPowerState, unsigned, "performance_state", 0)

/* modes */
NUMBER(nvmlDeviceGetComputeMode, unsigned, "compute_mode", 0)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, "persistence", 0)
NUMBER(nvmlDeviceGetDisplayMode, unsigned, "display", 0)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, "display", 1)

API nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
    return enter_gpu(__func__, handle, index);
}

API nvmlDeviceGetName(nvmlDevice_t handle, char *text, unsigned size)
{
    struct device device;
    struct mig mig;
    char name[80] = "", slice[48], full[160];
    nvmlReturn_t result = enter_device(__func__, handle, &device);
    if (result == NVML_SUCCESS)
        result = gpu_text(device.gpu, "name", name, sizeof name);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(full, sizeof full, "%s", name);
    if (device.is_mig) {
        mig_read(&mig, device.gpu);
        struct gpu_instance *instance = mig_instance(&mig, device.gpu_instance);
        struct compute_instance *compute = instance ? mig_compute_instance(instance, device.compute_instance) : NULL;
        if (compute == NULL)
            return NVML_ERROR_NOT_FOUND;
        mig_device_name(instance, compute, slice, sizeof slice);
        snprintf(full, sizeof full, "%s MIG %s", name, slice);
    }
    return (unsigned)snprintf(text, size, "%s", full) < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlDeviceGetUUID(nvmlDevice_t handle, char *text, unsigned size)
{
    struct device device;
    nvmlReturn_t result = enter_device(__func__, handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    if (!device.is_mig)
        return gpu_text(device.gpu, "uuid", text, size);
    mig_uuid(device.gpu, device.gpu_instance, device.compute_instance, text, size);
    return NVML_SUCCESS;
}

API nvmlDeviceGetInforomVersion(nvmlDevice_t handle, unsigned object, char *text, unsigned size)
{
    char key[MAX_KEY];
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (object >= 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "inforom.%u", object);
    return gpu_text(gpu, key, text, size);
}

API nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t handle, char *version)
{
    unsigned long long enabled;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "gsp", 0, &enabled);
    if (result == NVML_SUCCESS)
        snprintf(version, 64, "%s", loaded_driver());
    return result;
}

/* Memory of a GPU or of a MIG device, in bytes. */
static nvmlReturn_t memory_of(const char *function, nvmlDevice_t handle, struct memory_v2 *memory)
{
    struct device device;
    struct mig mig;
    unsigned long long busy = 0;
    nvmlReturn_t result = enter_device(function, handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    if (device.is_mig) {
        mig_read(&mig, device.gpu);
        struct gpu_instance *instance = mig_instance(&mig, device.gpu_instance);
        if (instance == NULL)
            return NVML_ERROR_NOT_FOUND;
        memory->total = instance->profile->memory_mib * 1048576ULL;
        memory->reserved = 0;
    } else {
        result = gpu_number(device.gpu, "memory.total", 0, &memory->total);
        if (result == NVML_SUCCESS)
            result = gpu_number(device.gpu, "memory.reserved", 0, &memory->reserved);
        if (result != NVML_SUCCESS)
            return result;
        gpu_number(device.gpu, "memory.used", 0, &busy);
    }
    memory->used = busy;
    memory->free = memory->total - memory->reserved - busy;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, struct memory *memory)
{
    struct memory_v2 full;
    nvmlReturn_t result = memory_of(__func__, handle, &full);
    if (result == NVML_SUCCESS)
        *memory = (struct memory){full.total, full.free, full.used + full.reserved};
    return result;
}

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, struct memory_v2 *memory)
{
    struct memory_v2 full = {.version = memory->version};
    nvmlReturn_t result = memory_of(__func__, handle, &full);
    if (result != NVML_SUCCESS)
        return result;
    if (memory->version != VERSIONED(struct memory_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *memory = full;
    return NVML_SUCCESS;
}

API nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, struct bar1_memory *memory)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "bar1.total", 0, &memory->total);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "bar1.used", 0, &memory->used);
    if (result == NVML_SUCCESS)
        memory->free = memory->total - memory->used;
    return result;
}

API nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, struct utilization *rates)
{
    unsigned long long compute = 0, memory = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && mig_is_enabled(gpu))
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "utilization", 0, &compute);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "utilization", 1, &memory);
    if (result == NVML_SUCCESS)
        *rates = (struct utilization){(unsigned)compute, (unsigned)memory};
    return result;
}

static nvmlReturn_t temperature(const char *function, nvmlDevice_t handle, unsigned sensor, unsigned *degrees)
{
    unsigned long long number = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(function, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = sensor != 0 ? NVML_ERROR_INVALID_ARGUMENT : gpu_number(gpu, "temperature", 0, &number);
    if (result == NVML_SUCCESS)
        *degrees = (unsigned)number;
    return result;
}

API nvmlDeviceGetTemperature(nvmlDevice_t handle, unsigned sensor, unsigned *degrees)
{
    return temperature(__func__, handle, sensor, degrees);
}

API nvmlDeviceGetTemperatureV(nvmlDevice_t handle, struct temperature_v1 *reading)
{
    unsigned degrees = 0;
    nvmlReturn_t result = temperature(__func__, handle, reading->sensor, &degrees);
    if (result == NVML_SUCCESS && reading->version != VERSIONED(struct temperature_v1, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        reading->temperature = (int)degrees;
    return result;
}

API nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, struct versioned_int *margin)
{
    unsigned long long number = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && margin->version != VERSIONED(struct versioned_int, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "margin_temperature", 0, &number);
    if (result == NVML_SUCCESS)
        margin->value = (int)number;
    return result;
}

API nvmlDeviceGetAddressingMode(nvmlDevice_t handle, struct versioned_uint *mode)
{
    unsigned long long number = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && mode->version != VERSIONED(struct versioned_uint, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "addressing_mode", 0, &number);
    if (result == NVML_SUCCESS)
        mode->value = (unsigned)number;
    return result;
}

API nvmlDeviceGetPlatformInfo(nvmlDevice_t handle, struct platform_info_v2 *info)
{
    unsigned long long module = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && info->version != VERSIONED(struct platform_info_v2, 2))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "platform.module_id", 0, &module);
    if (result != NVML_SUCCESS)
        return result;
    unsigned version = info->version;
    memset(info, 0, sizeof *info);
    info->version = version;
    info->module_id = (unsigned char)module;
    return NVML_SUCCESS;
}

API nvmlDeviceSetPersistenceMode(nvmlDevice_t handle, unsigned mode)
{
    struct edit edit;
    char key[MAX_KEY];
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && mode > 1)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        result = state_begin(&edit);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(key, sizeof key, "gpu.%u.persistence", gpu);
    table_set(edit.volatile_state, key, mode ? "1" : "0");
    return state_commit(&edit);
}
