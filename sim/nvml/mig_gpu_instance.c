/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The NVML calls about MIG mode, profiles and GPU instances. The rules are in mig.c; changes happen under the lock of
 * all processes. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { PROFILE_ENUMS = 17 };

nvmlReturn_t mig_enter(const char *function, nvmlDevice_t handle, struct mig *mig)
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
    nvmlReturn_t result = mig_enter(__func__, handle, &mig);
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
    nvmlReturn_t result = mig_enter(__func__, handle, &mig);
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
    nvmlReturn_t result = mig_enter(function, handle, &mig);
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
API nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned profile_enum,
                                         struct gpu_instance_profile_v2 *info)
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
    nvmlReturn_t result = mig_enter(function, handle, mig);
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

nvmlReturn_t mig_begin_change(struct mig *mig, struct edit *edit)
{
    if (!mig_is_enabled(mig->gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t result = state_begin(edit);
    if (result == NVML_SUCCESS)
        mig_read(mig, mig->gpu);
    return result;
}

nvmlReturn_t mig_end_change(const struct mig *mig, struct edit *edit, nvmlReturn_t result)
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
        result = mig_begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    result = mig_end_change(&mig, &edit, mig_add(&mig, mig_profile_by_id(&mig, profile_id), start, &id));
    if (result == NVML_SUCCESS)
        *instance = gpu_instance_handle(mig.gpu, id);
    return result;
}

API nvmlDeviceCreateGpuInstance(nvmlDevice_t handle, unsigned profile_id, nvmlGpuInstance_t *instance)
{
    return create(__func__, handle, profile_id, -1, instance);
}

API nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t handle, unsigned profile_id,
                                             const struct placement *placement, nvmlGpuInstance_t *instance)
{
    return create(__func__, handle, profile_id, (int)(placement->start & 0xFFFF), instance);
}

/* The GPU instance behind a handle. */
nvmlReturn_t mig_enter_instance(const char *function, nvmlGpuInstance_t handle, struct mig *mig,
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
    nvmlReturn_t result = mig_enter_instance(__func__, handle, &mig, &instance);
    if (result != NVML_SUCCESS)
        return result;
    unsigned id = instance->id;
    result = mig_begin_change(&mig, &edit);
    if (result != NVML_SUCCESS)
        return result;
    instance = mig_instance(&mig, id);
    if (instance == NULL)
        return mig_end_change(&mig, &edit, NVML_ERROR_NOT_FOUND);
    if (instance->compute_count > 0 || gpu_has_client(mig.gpu, (int)id))
        return mig_end_change(&mig, &edit, NVML_ERROR_IN_USE);
    mig_remove(&mig, id);
    return mig_end_change(&mig, &edit, NVML_SUCCESS);
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
    nvmlReturn_t result = mig_enter(__func__, handle, &mig);
    if (result != NVML_SUCCESS)
        return result;
    *instance = gpu_instance_handle(mig.gpu, id & 0xFF);
    return mig_instance(&mig, id) == NULL ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

API nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, struct gpu_instance_info *info)
{
    struct mig mig;
    struct gpu_instance *instance;
    nvmlReturn_t result = mig_enter_instance(__func__, handle, &mig, &instance);
    if (result == NVML_SUCCESS)
        *info = (struct gpu_instance_info){gpu_handle(mig.gpu), instance->id, instance->profile->id,
                                           {instance->start, instance->profile->size}};
    return result;
}
