/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The NVML calls about MIG. The rules are in mig.c; changes happen under the lock of all processes. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { PROFILE_ENUMS = 17, COMPUTE_PROFILE_ENUMS = 9, ENGINE_PROFILES = 1 };

static nvmlReturn_t enter_mig(const char *function, nvmlDevice_t handle, struct mig *mig)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(function, handle, &gpu);
    if (result == NVML_SUCCESS && !mig_read(mig, gpu))
        result = NVML_ERROR_NOT_SUPPORTED;
    return result;
}

API nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    struct mig mig;
    unsigned long long number = 0;
    nvmlReturn_t result = enter_mig(__func__, handle, &mig);
    if (result != NVML_SUCCESS)
        return result;
    *current = mig_is_enabled(mig.gpu);
    *pending = gpu_number(mig.gpu, "mig.pending", 0, &number) == NVML_SUCCESS ? (unsigned)number : *current;
    return NVML_SUCCESS;
}

/* What stops a change of mode from taking effect at once. */
static nvmlReturn_t activation(const struct mig *mig, bool is_ampere)
{
    unsigned long long number = 0;
    if (gpu_has_client(mig->gpu, -1) || mig->instance_count > 0)
        return NVML_ERROR_IN_USE;
    if (gpu_number(mig->gpu, "mig.reset_required", 0, &number) == NVML_SUCCESS && number == 1)
        return NVML_ERROR_RESET_REQUIRED;
    /* Ampere changes mode by a reset, which a guest of a virtual machine cannot do */
    if (is_ampere && gpu_number(mig->gpu, "virtualization_mode", 0, &number) == NVML_SUCCESS && number == 1)
        return NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

static void set_for(struct table *table, unsigned gpu, const char *key, const char *value)
{
    char full[MAX_KEY];
    snprintf(full, sizeof full, "gpu.%u.%s", gpu, key);
    table_set(table, full, value);
}

API nvmlDeviceSetMigMode(nvmlDevice_t handle, unsigned mode, unsigned *activation_status)
{
    struct mig mig;
    struct edit edit;
    unsigned long long number = 0;
    const char *text = mode ? "1" : "0";
    nvmlReturn_t result = enter_mig(__func__, handle, &mig);
    if (result == NVML_SUCCESS && (mode > 1 || activation_status == NULL))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        result = state_begin(&edit);
    if (result != NVML_SUCCESS)
        return result;
    mig_read(&mig, mig.gpu);
    bool is_ampere = gpu_number(mig.gpu, "mig.persistent", 0, &number) == NVML_SUCCESS && number == 1;
    *activation_status = mode == mig_is_enabled(mig.gpu) ? NVML_SUCCESS : activation(&mig, is_ampere);
    set_for(edit.volatile_state, mig.gpu, "mig.pending", text);
    if (*activation_status == NVML_SUCCESS)
        set_for(edit.volatile_state, mig.gpu, "mig.mode", text);
    if (is_ampere)
        set_for(edit.kept, mig.gpu, "mig.mode", text);
    return state_commit(&edit);
}

API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count)
{
    struct mig mig;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    *count = 0;
    if (mig_read(&mig, gpu) && mig_is_enabled(gpu))
        *count = mig_profile_by_enum(&mig, 0)->max_instances;
    return NVML_SUCCESS;
}

static nvmlReturn_t profile_info(const char *function, nvmlDevice_t handle, unsigned profile_enum,
                                 struct gpu_instance_profile_v2 *info)
{
    struct mig mig;
    nvmlReturn_t result = enter_mig(function, handle, &mig);
    if (result != NVML_SUCCESS)
        return result;
    if (profile_enum >= PROFILE_ENUMS)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct mig_profile *profile = mig_profile_by_enum(&mig, profile_enum);
    if (profile == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (struct gpu_instance_profile_v2){
        .id = profile->id,
        .slices = profile->slices,
        .instances = profile->max_instances,
        .multiprocessors = profile->multiprocessors,
        .copy_engines = profile->copy_engines,
        .decoders = profile->decoders,
        .encoders = profile->encoders,
        .jpeg = profile->jpeg,
        .ofa = profile->ofa,
        .memory_mib = profile->memory_mib,
    };
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned profile_enum, struct gpu_instance_profile *info)
{
    struct gpu_instance_profile_v2 full;
    nvmlReturn_t result = profile_info(__func__, handle, profile_enum, &full);
    if (result == NVML_SUCCESS)
        *info = (struct gpu_instance_profile){full.id,           full.p2p_supported, full.slices, full.instances,
                                              full.multiprocessors, full.copy_engines, full.decoders, full.encoders,
                                              full.jpeg,         full.ofa,           full.memory_mib};
    return result;
}

/* Like the real library, it leaves 0 in `version`. */
API nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned profile_enum, struct gpu_instance_profile_v2 *info)
{
    struct gpu_instance_profile_v2 full;
    nvmlReturn_t result = profile_info(__func__, handle, profile_enum, &full);
    if (result != NVML_SUCCESS)
        return result;
    if (info->version != VERSIONED(struct gpu_instance_profile_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = full;
    return NVML_SUCCESS;
}

static nvmlReturn_t enter_profile(const char *function, nvmlDevice_t handle, unsigned id, struct mig *mig,
                                  const struct mig_profile **profile)
{
    nvmlReturn_t result = enter_mig(function, handle, mig);
    if (result != NVML_SUCCESS)
        return result;
    *profile = mig_profile_by_id(mig, id);
    return *profile == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

/* All placements the profile knows, whether free or not. */
API nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t handle, unsigned id, struct placement *placements,
                                                  unsigned *count)
{
    struct mig mig;
    const struct mig_profile *profile;
    nvmlReturn_t result = enter_profile(__func__, handle, id, &mig, &profile);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; placements != NULL && i < profile->start_count; i++)
        placements[i] = (struct placement){profile->starts[i], profile->size};
    *count = profile->start_count;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t handle, unsigned id, unsigned *count)
{
    struct mig mig;
    const struct mig_profile *profile;
    nvmlReturn_t result = enter_profile(__func__, handle, id, &mig, &profile);
    if (result == NVML_SUCCESS)
        *count = mig_remaining(&mig, profile);
    return result;
}

/* Begins a change of a GPU's instances: MIG must be on; afterwards `mig` is what every process agrees on. */
static nvmlReturn_t begin_change(struct mig *mig, struct edit *edit)
{
    if (!mig_is_enabled(mig->gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t result = state_begin(edit);
    if (result == NVML_SUCCESS)
        mig_read(mig, mig->gpu);
    return result;
}

static nvmlReturn_t end_change(const struct mig *mig, struct edit *edit, nvmlReturn_t result)
{
    if (result != NVML_SUCCESS) {
        state_abandon(edit);
        return result;
    }
    mig_write(mig, edit->volatile_state);
    return state_commit(edit);
}

static nvmlReturn_t create(const char *function, nvmlDevice_t handle, unsigned profile_id, int start,
                           nvmlGpuInstance_t *instance)
{
    struct mig mig;
    struct edit edit;
    const struct mig_profile *profile;
    unsigned id = 0;
    nvmlReturn_t result = enter_profile(function, handle, profile_id, &mig, &profile);
    if (result == NVML_SUCCESS)
        result = begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    result = end_change(&mig, &edit, mig_add(&mig, mig_profile_by_id(&mig, profile_id), start, &id));
    if (result == NVML_SUCCESS)
        *instance = gpu_instance_handle(mig.gpu, id);
    return result;
}

API nvmlDeviceCreateGpuInstance(nvmlDevice_t handle, unsigned profile_id, nvmlGpuInstance_t *instance)
{
    return create(__func__, handle, profile_id, -1, instance);
}

API nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t handle, unsigned profile_id, const struct placement *placement,
                                             nvmlGpuInstance_t *instance)
{
    return create(__func__, handle, profile_id, (int)(placement->start & 0xFFFF), instance);
}

/* The GPU instance behind a handle. */
static nvmlReturn_t enter_instance(const char *function, nvmlGpuInstance_t handle, struct mig *mig,
                                   struct gpu_instance **instance)
{
    unsigned gpu, id;
    nvmlReturn_t result = enter_gpu_instance(function, handle, &gpu, &id);
    if (result != NVML_SUCCESS)
        return result;
    if (!mig_read(mig, gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    *instance = mig_instance(mig, id);
    return *instance == NULL ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

API nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle)
{
    struct mig mig;
    struct edit edit;
    struct gpu_instance *instance;
    nvmlReturn_t result = enter_instance(__func__, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    unsigned id = instance->id;
    result = begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    instance = mig_instance(&mig, id);
    if (instance == NULL)
        return end_change(&mig, &edit, NVML_ERROR_NOT_FOUND);
    if (instance->compute_count > 0 || gpu_has_client(mig.gpu, (int)id))
        return end_change(&mig, &edit, NVML_ERROR_IN_USE);
    mig_remove(&mig, id);
    return end_change(&mig, &edit, NVML_SUCCESS);
}

API nvmlDeviceGetGpuInstances(nvmlDevice_t handle, unsigned profile_id, nvmlGpuInstance_t *instances, unsigned *count)
{
    struct mig mig;
    const struct mig_profile *profile;
    nvmlReturn_t result = enter_profile(__func__, handle, profile_id, &mig, &profile);
    if (result != NVML_SUCCESS)
        return result;
    *count = 0;
    for (unsigned i = 0; i < mig.instance_count; i++)
        if (mig.instances[i].profile->id == profile->id)
            instances[(*count)++] = gpu_instance_handle(mig.gpu, mig.instances[i].id);
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, unsigned id, nvmlGpuInstance_t *instance)
{
    struct mig mig;
    nvmlReturn_t result = enter_mig(__func__, handle, &mig);
    if (result != NVML_SUCCESS)
        return result;
    *instance = gpu_instance_handle(mig.gpu, id & 0xFF);
    return mig_instance(&mig, id) == NULL ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

API nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, struct gpu_instance_info *info)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = enter_instance(__func__, handle, &mig, &instance);
    if (result == NVML_SUCCESS)
        *info = (struct gpu_instance_info){gpu_handle(mig.gpu), instance->id, instance->profile->id,
                                           {instance->start, instance->profile->size}};
    return result;
}

static unsigned share(const struct gpu_instance *instance, unsigned slices)
{
    return instance->profile->multiprocessors * slices / instance->profile->slices;
}

static nvmlReturn_t compute_profile_info(const char *function, nvmlGpuInstance_t handle, unsigned profile,
                                         unsigned engine_profile, struct compute_instance_profile_v2 *info)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = enter_instance(function, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    if (profile >= COMPUTE_PROFILE_ENUMS || engine_profile >= ENGINE_PROFILES)
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
    nvmlReturn_t result = enter_instance(__func__, handle, &mig, &instance);
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
    nvmlReturn_t result = enter_instance(__func__, handle, &mig, &instance);
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
    nvmlReturn_t result = enter_instance(function, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    unsigned gpu_instance = instance->id;
    result = begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    instance = mig_instance(&mig, gpu_instance);
    result = instance == NULL ? NVML_ERROR_NOT_FOUND : mig_add_compute(&mig, instance, profile, start, &id);
    result = end_change(&mig, &edit, result);
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
    result = begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    instance = mig_instance(&mig, gpu_instance);
    if (instance == NULL || mig_compute_instance(instance, id) == NULL)
        return end_change(&mig, &edit, NVML_ERROR_NOT_FOUND);
    if (gpu_has_client(mig.gpu, (int)gpu_instance))
        return end_change(&mig, &edit, NVML_ERROR_IN_USE);
    mig_remove_compute(instance, id);
    return end_change(&mig, &edit, NVML_SUCCESS);
}

API nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned profile, nvmlComputeInstance_t *instances,
                                       unsigned *count)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = enter_instance(__func__, handle, &mig, &instance);
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
    nvmlReturn_t result = enter_instance(__func__, handle, &mig, &instance);
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
    nvmlReturn_t result = enter_mig(__func__, handle, &mig);
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
