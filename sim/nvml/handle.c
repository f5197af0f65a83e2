/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Handles, and how every call begins.
 *
 * A handle is a number, never a pointer to anything: a tag, then GPU, GPU instance and compute instance, a byte each.
 * So a stale or wrong handle is an error to the caller, not a crash. */
#include "sim.h"

enum { TAG_GPU = 0xD0, TAG_MIG = 0xD1, TAG_GPU_INSTANCE = 0xD2, TAG_COMPUTE_INSTANCE = 0xD3 };

static void *pack(unsigned tag, unsigned gpu, unsigned gpu_instance, unsigned compute_instance)
{
    return (void *)(uintptr_t)((uintptr_t)tag << 24 | gpu << 16 | gpu_instance << 8 | compute_instance);
}

static bool unpack(const void *handle, unsigned tag, struct device *device)
{
    uintptr_t number = (uintptr_t)handle;
    if (number >> 24 != tag || (number >> 16 & 0xFF) >= gpu_count())
        return false;
    device->gpu = number >> 16 & 0xFF;
    device->gpu_instance = number >> 8 & 0xFF;
    device->compute_instance = number & 0xFF;
    device->is_mig = tag == TAG_MIG;
    return true;
}

nvmlDevice_t gpu_handle(unsigned gpu)
{
    return pack(TAG_GPU, gpu, 0, 0);
}

nvmlDevice_t mig_handle(unsigned gpu, unsigned gpu_instance, unsigned compute_instance)
{
    return pack(TAG_MIG, gpu, gpu_instance, compute_instance);
}

nvmlGpuInstance_t gpu_instance_handle(unsigned gpu, unsigned id)
{
    return pack(TAG_GPU_INSTANCE, gpu, id, 0);
}

nvmlComputeInstance_t compute_instance_handle(unsigned gpu, unsigned gpu_instance, unsigned id)
{
    return pack(TAG_COMPUTE_INSTANCE, gpu, gpu_instance, id);
}

nvmlReturn_t enter(const char *function)
{
    nvmlReturn_t forced = fault_in_call(function, -1);
    if (forced != NVML_SUCCESS)
        return forced;
    return library_is_initialised() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t enter_on(const char *function, unsigned gpu)
{
    nvmlReturn_t forced = fault_in_call(function, (int)gpu);
    if (forced != NVML_SUCCESS)
        return forced;
    return fault_is_lost(gpu) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

static nvmlReturn_t begin(const char *function, const void *handle, unsigned tag, struct device *device)
{
    if (!library_is_initialised())
        return enter(function);
    if (!unpack(handle, tag, device))
        return NVML_ERROR_INVALID_ARGUMENT;
    return enter_on(function, device->gpu);
}

nvmlReturn_t enter_device(const char *function, nvmlDevice_t handle, struct device *device)
{
    bool is_gpu = library_is_initialised() && unpack(handle, TAG_GPU, device);
    return begin(function, handle, is_gpu ? TAG_GPU : TAG_MIG, device);
}

nvmlReturn_t enter_gpu(const char *function, nvmlDevice_t handle, unsigned *gpu)
{
    struct device device = {0};
    nvmlReturn_t result = enter_device(function, handle, &device);
    *gpu = device.gpu;
    return result == NVML_SUCCESS && device.is_mig ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t enter_gpu_instance(const char *function, nvmlGpuInstance_t handle, unsigned *gpu, unsigned *id)
{
    struct device device = {0};
    nvmlReturn_t result = begin(function, handle, TAG_GPU_INSTANCE, &device);
    *gpu = device.gpu;
    *id = device.gpu_instance;
    return result;
}

nvmlReturn_t enter_compute_instance(const char *function, nvmlComputeInstance_t handle, struct device *instance)
{
    return begin(function, handle, TAG_COMPUTE_INSTANCE, instance);
}
