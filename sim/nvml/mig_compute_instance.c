/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The NVML calls about compute instances, and about the MIG devices they make. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { ENGINE_PROFILES = 1 };

static unsigned share(const struct gpu_instance *instance, unsigned slices)
{
    return instance->profile->multiprocessors * slices / instance->profile->slices;
}

static nvmlReturn_t compute_profile_info(const char *function, nvmlGpuInstance_t handle, unsigned profile,
                                         unsigned engine_profile, struct compute_instance_profile_v2 *info)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = mig_enter_instance(function, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    if (profile >= COMPUTE_PROFILES || engine_profile >= ENGINE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned slices = compute_slices(instance, profile);
    if (slices == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (struct compute_instance_profile_v2){
        .id = profile,
        .slices = slices,
        .instances = instance->profile->slices / slices,
        .multiprocessors = share(instance, slices),
        .copy_engines = instance->profile->copy_engines,
        .decoders = instance->profile->decoders,
        .encoders = instance->profile->encoders,
        .jpeg = instance->profile->jpeg,
        .ofa = instance->profile->ofa,
    };
    struct compute_instance whole = {.size = slices};
    char name[48];
    mig_device_name(instance, &whole, name, sizeof name);
    snprintf(info->name, sizeof info->name, "MIG %s", name);
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned profile, unsigned engine_profile,
                                                 struct compute_instance_profile *info)
{
    struct compute_instance_profile_v2 full;
    nvmlReturn_t result = compute_profile_info(__func__, handle, profile, engine_profile, &full);
    if (result == NVML_SUCCESS)
        *info = (struct compute_instance_profile){full.id,       full.slices,   full.instances, full.multiprocessors,
                                                  full.copy_engines, full.decoders, full.encoders, full.jpeg, full.ofa};
    return result;
}

API nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned profile, unsigned engine_profile,
                                                  struct compute_instance_profile_v2 *info)
{
    struct compute_instance_profile_v2 full;
    nvmlReturn_t result = compute_profile_info(__func__, handle, profile, engine_profile, &full);
    if (result != NVML_SUCCESS)
        return result;
    if (info->version != VERSIONED(struct compute_instance_profile_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = full;
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned profile, unsigned *count)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = mig_enter_instance(__func__, handle, &mig, &instance);
    if (result == NVML_SUCCESS && compute_slices(instance, profile) == 0)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *count = compute_remaining(instance, profile);
    return result;
}

API nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned profile,
                                                        struct placement *placements, unsigned *count)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = mig_enter_instance(__func__, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    unsigned size = compute_slices(instance, profile), found = 0;
    if (size == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned start = 0; start + size <= instance->profile->slices; start++, found++)
        if (placements != NULL)
            placements[found] = (struct placement){start, size};
    *count = found;
    return NVML_SUCCESS;
}

static nvmlReturn_t create_compute(const char *function, nvmlGpuInstance_t handle, unsigned profile, int start,
                                   nvmlComputeInstance_t *compute)
{
    struct mig mig;
    struct edit edit;
    struct gpu_instance *instance;
    unsigned id = 0;
    nvmlReturn_t result = mig_enter_instance(function, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    unsigned gpu_instance = instance->id;
    result = mig_begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    instance = mig_instance(&mig, gpu_instance);
    result = instance == NULL ? NVML_ERROR_NOT_FOUND : mig_add_compute(&mig, instance, profile, start, &id);
    result = mig_end_change(&mig, &edit, result);
    if (result == NVML_SUCCESS)
        *compute = compute_instance_handle(mig.gpu, gpu_instance, id);
    return result;
}

API nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned profile, nvmlComputeInstance_t *compute)
{
    return create_compute(__func__, handle, profile, -1, compute);
}

API nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t handle, unsigned profile,
                                                      const struct placement *placement, nvmlComputeInstance_t *compute)
{
    return create_compute(__func__, handle, profile, (int)(placement->start & 0xFFFF), compute);
}

static nvmlReturn_t enter_compute(const char *function, nvmlComputeInstance_t handle, struct mig *mig,
                                  struct gpu_instance **instance, struct compute_instance **compute)
{
    struct device device = {0};
    nvmlReturn_t result = enter_compute_instance(function, handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    if (!mig_read(mig, device.gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    *instance = mig_instance(mig, device.gpu_instance);
    *compute = *instance == NULL ? NULL : mig_compute_instance(*instance, device.compute_instance);
    return *compute == NULL ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

API nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle)
{
    struct mig mig;
    struct edit edit;
    struct gpu_instance *instance;
    struct compute_instance *compute;
    nvmlReturn_t result = enter_compute(__func__, handle, &mig, &instance, &compute);
    if (result != NVML_SUCCESS)
        return result;
    unsigned gpu_instance = instance->id, id = compute->id;
    result = mig_begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    instance = mig_instance(&mig, gpu_instance);
    if (instance == NULL || mig_compute_instance(instance, id) == NULL)
        return mig_end_change(&mig, &edit, NVML_ERROR_NOT_FOUND);
    if (gpu_has_client(mig.gpu, (int)gpu_instance))
        return mig_end_change(&mig, &edit, NVML_ERROR_IN_USE);
    mig_remove_compute(instance, id);
    return mig_end_change(&mig, &edit, NVML_SUCCESS);
}

API nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned profile, nvmlComputeInstance_t *instances,
                                       unsigned *count)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = mig_enter_instance(__func__, handle, &mig, &instance);
    if (result == NVML_SUCCESS && compute_slices(instance, profile) == 0)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS)
        return result;
    *count = 0;
    for (unsigned i = 0; i < instance->compute_count; i++)
        if (instance->compute[i].profile == profile)
            instances[(*count)++] = compute_instance_handle(mig.gpu, instance->id, instance->compute[i].id);
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned id, nvmlComputeInstance_t *compute)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = mig_enter_instance(__func__, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    *compute = compute_instance_handle(mig.gpu, instance->id, id & 0xFF);
    return mig_compute_instance(instance, id) == NULL ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

API nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, struct compute_instance_info *info)
{
    struct mig mig;
    struct gpu_instance *instance;
    struct compute_instance *compute;
    nvmlReturn_t result = enter_compute(__func__, handle, &mig, &instance, &compute);
    if (result == NVML_SUCCESS)
        *info = (struct compute_instance_info){mig_handle(mig.gpu, instance->id, compute->id),
                                               gpu_instance_handle(mig.gpu, instance->id),
                                               compute->id,
                                               compute->profile,
                                               {compute->start, compute->size}};
    return result;
}

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *is_mig)
{
    struct device device;
    nvmlReturn_t result = enter_device(__func__, handle, &device);
    if (result == NVML_SUCCESS)
        *is_mig = device.is_mig;
    return result;
}

/* Indexes are given once and leave a hole (Not Found) when a MIG device goes. */
API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t *device)
{
    struct mig mig;
    nvmlReturn_t result = mig_enter(__func__, handle, &mig);
    if (result != NVML_SUCCESS)
        return result;
    if (!mig_is_enabled(mig.gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= mig_profile_by_enum(&mig, 0)->max_instances)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < mig.instance_count; i++)
        for (unsigned j = 0; j < mig.instances[i].compute_count; j++)
            if (mig.instances[i].compute[j].index == index) {
                *device = mig_handle(mig.gpu, mig.instances[i].id, mig.instances[i].compute[j].id);
                return NVML_SUCCESS;
            }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t enter_mig_device(const char *function, nvmlDevice_t handle, struct device *device)
{
    nvmlReturn_t result = enter_device(function, handle, device);
    return result == NVML_SUCCESS && !device->is_mig ? NVML_ERROR_INVALID_ARGUMENT : result;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t *parent)
{
    struct device device;
    nvmlReturn_t result = enter_mig_device(__func__, handle, &device);
    if (result == NVML_SUCCESS)
        *parent = gpu_handle(device.gpu);
    return result;
}

API nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *id)
{
    struct device device;
    nvmlReturn_t result = enter_mig_device(__func__, handle, &device);
    if (result == NVML_SUCCESS)
        *id = device.gpu_instance;
    return result;
}

API nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned *id)
{
    struct device device;
    nvmlReturn_t result = enter_mig_device(__func__, handle, &device);
    if (result == NVML_SUCCESS)
        *id = device.compute_instance;
    return result;
}

API nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, struct device_attributes *attributes)
{
    struct device device;
    struct mig mig;
    nvmlReturn_t result = enter_device(__func__, handle, &device);
    if (result == NVML_SUCCESS && !device.is_mig)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS)
        return result;
    mig_read(&mig, device.gpu);
    struct gpu_instance *instance = mig_instance(&mig, device.gpu_instance);
    struct compute_instance *compute = instance ? mig_compute_instance(instance, device.compute_instance) : NULL;
    if (compute == NULL)
        return NVML_ERROR_NOT_FOUND;
    const struct mig_profile *profile = instance->profile;
    *attributes = (struct device_attributes){share(instance, compute->size), profile->copy_engines, profile->decoders,
                                             profile->encoders, profile->jpeg, profile->ofa, profile->slices,
                                             compute->size, profile->memory_mib};
    return NVML_SUCCESS;
}
