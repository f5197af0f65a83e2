/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* ECC, row remapping, page retirement, repair, and the processes on a GPU. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { LOCATIONS = 8, USED_PER_PROCESS = 512 << 20 };

static nvmlReturn_t ecc_mode(unsigned gpu, unsigned *current, unsigned *pending)
{
    unsigned long long number = 0;
    nvmlReturn_t result = gpu_number(gpu, "ecc.mode", 0, &number);
    const char *kept = kept_value(gpu, "ecc.mode");
    *current = (unsigned)number;
    *pending = kept == NULL ? *current : (unsigned)(kept[0] == '1');
    return result;
}

API nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    return result != NVML_SUCCESS ? result : ecc_mode(gpu, current, pending);
}

API nvmlDeviceGetDefaultEccMode(nvmlDevice_t handle, unsigned *mode)
{
    unsigned gpu, current, pending;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = ecc_mode(gpu, &current, &pending);
    if (result == NVML_SUCCESS)
        *mode = 1;
    return result;
}

/* Takes effect at the next reset. */
API nvmlDeviceSetEccMode(nvmlDevice_t handle, unsigned mode)
{
    struct edit edit;
    char key[MAX_KEY];
    unsigned gpu, current, pending;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : ecc_mode(gpu, &current, &pending);
    if (result == NVML_SUCCESS)
        result = state_begin(&edit);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(key, sizeof key, "gpu.%u.ecc.mode", gpu);
    table_set(edit.kept, key, mode ? "1" : "0");
    return state_commit(&edit);
}

/* A counter is 0 unless the machine says otherwise: key ecc.<error type>.<counter type>.<location or "total">. */
static nvmlReturn_t counter(unsigned gpu, unsigned error, unsigned kind, const char *place, unsigned long long *count)
{
    char key[MAX_KEY];
    unsigned current, pending;
    nvmlReturn_t result = ecc_mode(gpu, &current, &pending);
    if (result != NVML_SUCCESS || error > 1 || kind > 1)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "ecc.%u.%u.%s", error, kind, place);
    if (gpu_number(gpu, key, 0, count) != NVML_SUCCESS)
        *count = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned error, unsigned kind, unsigned long long *count)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    return result != NVML_SUCCESS ? result : counter(gpu, error, kind, "total", count);
}

API nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned error, unsigned kind, unsigned location,
                                    unsigned long long *count)
{
    unsigned long long counted;
    char place[16];
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (location > LOCATIONS)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned column = 0; gpu_number(gpu, "ecc.locations", column, &counted) == NVML_SUCCESS; column++)
        if (counted == location) {
            snprintf(place, sizeof place, "%u", location);
            return counter(gpu, error, kind, place, count);
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t handle, struct sram_ecc_status *status)
{
    unsigned gpu, current, pending;
    unsigned long long number;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && status->version != VERSIONED(struct sram_ecc_status, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS && gpu_value(gpu, "remapped_rows") == NULL) /* before Ampere */
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        result = ecc_mode(gpu, &current, &pending);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < sizeof status->counters / sizeof *status->counters; i++)
        status->counters[i] = gpu_number(gpu, "ecc.sram", i, &number) == NVML_SUCCESS ? number : 0;
    status->threshold_exceeded = gpu_number(gpu, "ecc.sram_threshold", 0, &number) == NVML_SUCCESS && number != 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t numbers(unsigned gpu, const char *key, unsigned count, unsigned *const out[])
{
    unsigned long long number;
    for (unsigned i = 0; i < count; i++) {
        nvmlReturn_t result = gpu_number(gpu, key, i, &number);
        if (result != NVML_SUCCESS)
            return result;
        *out[i] = (unsigned)number;
    }
    return NVML_SUCCESS;
}

API nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failure)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    return numbers(gpu, "remapped_rows", 4, (unsigned *[]){correctable, uncorrectable, pending, failure});
}

API nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle, struct row_histogram *rows)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    return numbers(gpu, "row_histogram", 5,
                   (unsigned *[]){&rows->max, &rows->high, &rows->partial, &rows->low, &rows->none});
}

API nvmlDeviceGetRepairStatus(nvmlDevice_t handle, struct repair_status *status)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && status->version != VERSIONED(struct repair_status, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result != NVML_SUCCESS)
        return result;
    return numbers(gpu, "repair", 2, (unsigned *[]){&status->channel_pending, &status->tpc_pending});
}

API nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t handle, struct versioned_uint *flag)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && flag->version != VERSIONED(struct versioned_uint, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return result != NVML_SUCCESS ? result : numbers(gpu, "unrepairable_memory", 1, (unsigned *[]){&flag->value});
}

/* Cards from Ampere on remap rows instead of retiring pages. */
API nvmlDeviceGetRetiredPages(nvmlDevice_t handle, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    unsigned gpu;
    (void)addresses;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS && cause > 1)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && gpu_value(gpu, "retired_pages.pending") == NULL)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}

API nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t handle, unsigned *pending)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    return result != NVML_SUCCESS ? result : numbers(gpu, "retired_pages.pending", 1, (unsigned *[]){pending});
}

static nvmlReturn_t processes(const char *function, nvmlDevice_t handle, const char *kind, unsigned *count,
                              struct process_info *infos)
{
    struct device device;
    struct client client;
    unsigned cursor = 0, found = 0, room;
    nvmlReturn_t result = enter_device(function, handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    room = infos == NULL ? 0 : *count;
    while (fault_next_client(device.gpu, &cursor, &client)) {
        bool here = !device.is_mig || client.gpu_instance == (int)device.gpu_instance;
        if (!here || strcmp(client.kind, kind) != 0)
            continue;
        if (found < room)
            infos[found] = (struct process_info){client.pid, USED_PER_PROCESS, (unsigned)client.gpu_instance,
                                                 client.gpu_instance < 0 ? (unsigned)-1 : 0};
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESSES(call, kind)                                                                                          \
    API call(nvmlDevice_t handle, unsigned *count, struct process_info *infos)                                         \
    {                                                                                                                  \
        return processes(__func__, handle, kind, count, infos);                                                        \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")
