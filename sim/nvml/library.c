/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The library as a whole: its version, initialisation, and what concerns no single GPU. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

#ifndef LIBRARY_VERSION
#define LIBRARY_VERSION "580.95.05"
#endif
#define FILE_STEM "libnvidia-ml.so."

static atomic_uint initialised;
/* As with the real library, whoever has initialised it holds the kernel module. */
static int control_device = -1;

bool library_is_initialised(void)
{
    return atomic_load(&initialised) > 0;
}

/* The control tool's word; without it that of the kernel, which has no control tool. */
const char *loaded_driver(void)
{
    const char *version = table_get(volatile_state(), "driver.version");
    return version == NULL ? kernel_driver() : version;
}

/* The suffix of this library's own file name says which version it is; LIBRARY_VERSION when it has none. */
static void own_version(char *version, size_t size)
{
    Dl_info info;
    char *path = NULL;
    snprintf(version, size, "%s", LIBRARY_VERSION);
    if (dladdr((void *)(uintptr_t)own_version, &info) != 0)
        path = realpath(info.dli_fname, NULL);
    const char *suffix = path == NULL ? NULL : strstr(path, FILE_STEM);
    if (suffix != NULL && strchr(suffix + strlen(FILE_STEM), '.') != NULL)
        snprintf(version, size, "%s", suffix + strlen(FILE_STEM));
    free(path);
}

API nvmlInitWithFlags(unsigned flags)
{
    char version[80];
    (void)flags;
    nvmlReturn_t forced = fault_in_call("nvmlInit", -1);
    if (forced != NVML_SUCCESS)
        return forced;
    const char *loaded = loaded_driver();
    if (loaded == NULL || gpu_count() == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    own_version(version, sizeof version);
    if (strcmp(version, loaded) != 0 || fault_version_mismatch())
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if (atomic_fetch_add(&initialised, 1) == 0)
        control_device = open_control_device();
    return NVML_SUCCESS;
}

API nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlShutdown(void)
{
    nvmlReturn_t result = enter(__func__);
    if (result == NVML_SUCCESS && atomic_fetch_sub(&initialised, 1) == 1 && control_device >= 0)
        close(control_device);
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t code;
        const char *text;
    } texts[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
        {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
        {NVML_ERROR_IN_USE, "In use by another client"},
        {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == result)
            return texts[i].text;
    return "Unknown Error";
}

static nvmlReturn_t give_text(const char *value, char *text, unsigned size)
{
    if (text == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return (unsigned)snprintf(text, size, "%s", value) < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static unsigned long branch(void)
{
    return strtoul(loaded_driver(), NULL, 10);
}

API nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    nvmlReturn_t result = enter(__func__);
    return result != NVML_SUCCESS ? result : give_text(loaded_driver(), version, size);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    char full[96];
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    unsigned major = branch() >= 580 ? 13 : branch() >= 525 ? 12 : 11;
    snprintf(full, sizeof full, "%u.%s", major, loaded_driver());
    return give_text(full, version, size);
}

API nvmlSystemGetCudaDriverVersion(int *version)
{
    /* the CUDA version that each branch introduced: NVIDIA's CUDA compatibility table */
    static const struct {
        unsigned long branch;
        int cuda;
    } introduced[] = {
        {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060},
        {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000},
    };
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = 11040;
    for (size_t i = 0; i < sizeof introduced / sizeof *introduced; i++)
        if (branch() >= introduced[i].branch) {
            *version = introduced[i].cuda;
            break;
        }
    return NVML_SUCCESS;
}

API nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

API nvmlSystemGetDriverBranch(struct driver_branch *info, unsigned size)
{
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL || size > sizeof info->branch)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != VERSIONED(struct driver_branch, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const char *named = machine_value("driver.branch");
    if (named != NULL)
        return give_text(named, info->branch, size);
    snprintf(info->branch, sizeof info->branch, "r%lu_00", branch());
    return NVML_SUCCESS;
}

API nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    char text[64];
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof text, "/usr/bin/gpu-job-%u", pid);
    return give_text(text, name, size);
}

/* S-class units and excluded GPUs: no simulated machine has any. */
#define NONE(call)                                                                                                     \
    API call(unsigned *count)                                                                                          \
    {                                                                                                                  \
        nvmlReturn_t result = enter(__func__);                                                                         \
        if (result == NVML_SUCCESS)                                                                                    \
            *count = 0;                                                                                                \
        return result;                                                                                                 \
    }

NONE(nvmlUnitGetCount)
NONE(nvmlGetExcludedDeviceCount)

API nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = gpu_count();
    return NVML_SUCCESS;
}

static nvmlReturn_t find_gpu(const char *function, int gpu, nvmlReturn_t when_missing, nvmlDevice_t *handle)
{
    unsigned found;
    if (gpu < 0)
        return when_missing;
    *handle = gpu_handle((unsigned)gpu);
    return enter_gpu(function, *handle, &found);
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    return find_gpu(__func__, index < gpu_count() ? (int)index : -1, NVML_ERROR_INVALID_ARGUMENT, handle);
}

static int gpu_with(const char *key, const char *wanted)
{
    for (unsigned gpu = 0; gpu < gpu_count(); gpu++) {
        const char *value = gpu_value(gpu, key);
        if (value != NULL && strcmp(value, wanted) == 0)
            return (int)gpu;
    }
    return -1;
}

static bool find_mig_device(const char *wanted, nvmlDevice_t *handle)
{
    char uuid[64];
    struct mig mig;
    for (unsigned gpu = 0; gpu < gpu_count(); gpu++) {
        if (!mig_read(&mig, gpu))
            continue;
        for (unsigned i = 0; i < mig.instance_count; i++)
            for (unsigned j = 0; j < mig.instances[i].compute_count; j++) {
                mig_uuid(gpu, mig.instances[i].id, mig.instances[i].compute[j].id, uuid, sizeof uuid);
                *handle = mig_handle(gpu, mig.instances[i].id, mig.instances[i].compute[j].id);
                if (strcmp(uuid, wanted) == 0)
                    return true;
            }
    }
    return false;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (uuid == NULL || handle == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strncmp(uuid, "MIG-", 4) == 0)
        return find_mig_device(uuid, handle) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    return find_gpu(__func__, gpu_with("uuid", uuid), NVML_ERROR_NOT_FOUND, handle);
}

API nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *handle)
{
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    return find_gpu(__func__, gpu_with("serial", serial), NVML_ERROR_NOT_FOUND, handle);
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *handle)
{
    char wanted[32];
    unsigned domain, bus, device;
    nvmlReturn_t result = enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (address == NULL || sscanf(address, "%x:%x:%x.0", &domain, &bus, &device) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(wanted, sizeof wanted, "%04x:%02x:%02x.0", domain, bus, device);
    return find_gpu(__func__, gpu_with("pci", wanted), NVML_ERROR_NOT_FOUND, handle);
}
