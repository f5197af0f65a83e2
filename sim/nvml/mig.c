/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The rules of MIG: which instances fit beside which, where the driver puts one, and how the layout is stored.
 *
 * Stored as one value a GPU, `gpu.<n>.mig.instances`: blank-separated words
 *   gi <id> <profile id> <start>            a GPU instance
 *   ci <id> <profile> <start> <size> <index>  a compute instance of the GPU instance before it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static bool read_profile(const char *line, struct mig_profile *profile)
{
    int used;
    memset(profile, 0, sizeof *profile);
    if (sscanf(line, "%u %u %31s %u %u %u %u %u %u %u %u %u %u%n", &profile->profile_enum, &profile->id, profile->name,
               &profile->slices, &profile->max_instances, &profile->multiprocessors, &profile->memory_mib,
               &profile->copy_engines, &profile->decoders, &profile->encoders, &profile->jpeg, &profile->ofa,
               &profile->size, &used) != 13)
        return false;
    for (line += used; profile->start_count < MAX_PLACEMENTS; line += used) {
        if (sscanf(line, "%u%n", &profile->starts[profile->start_count], &used) != 1)
            break;
        profile->start_count++;
    }
    return true;
}

static void read_instances(struct mig *mig, const char *text)
{
    struct compute_instance compute;
    unsigned id, profile, start;
    int used;
    struct gpu_instance *last = NULL;
    while (text != NULL && *text != '\0') {
        used = 0;
        if (sscanf(text, " gi %u %u %u%n", &id, &profile, &start, &used) == 3 && mig->instance_count < MAX_INSTANCES) {
            last = &mig->instances[mig->instance_count++];
            *last = (struct gpu_instance){.id = id, .profile = mig_profile_by_id(mig, profile), .start = start};
            if (last->profile == NULL) {
                mig->instance_count--;
                return;
            }
        } else if (sscanf(text, " ci %u %u %u %u %u%n", &compute.id, &compute.profile, &compute.start, &compute.size,
                          &compute.index, &used) == 5 && last != NULL && last->compute_count < MAX_INSTANCES) {
            last->compute[last->compute_count++] = compute;
        } else {
            return;
        }
        text += used;
    }
}

bool mig_read(struct mig *mig, unsigned gpu)
{
    char key[MAX_KEY];
    const char *profiles = gpu_value(gpu, "mig.profiles");
    memset(mig, 0, sizeof *mig);
    mig->gpu = gpu;
    if (profiles == NULL)
        return false;
    for (; mig->profile_count < MAX_PROFILES; mig->profile_count++) {
        struct mig_profile *profile = &mig->profiles[mig->profile_count];
        snprintf(key, sizeof key, "mig.%s.%u", profiles, mig->profile_count);
        const char *line = machine_value(key);
        if (line == NULL || !read_profile(line, profile))
            break;
        if (profile->starts[0] + profile->size > mig->axis)
            mig->axis = profile->starts[0] + profile->size;
    }
    if (mig_is_enabled(gpu))
        read_instances(mig, gpu_value(gpu, "mig.instances"));
    return true;
}

bool mig_is_enabled(unsigned gpu)
{
    unsigned long long mode;
    return gpu_number(gpu, "mig.mode", 0, &mode) == NVML_SUCCESS && mode == 1;
}

void mig_write(const struct mig *mig, struct table *state)
{
    char key[MAX_KEY], text[4096] = "";
    size_t used = 0;
    for (unsigned i = 0; i < mig->instance_count; i++) {
        const struct gpu_instance *instance = &mig->instances[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "gi %u %u %u ", instance->id, instance->profile->id,
                                 instance->start);
        for (unsigned j = 0; j < instance->compute_count; j++) {
            const struct compute_instance *compute = &instance->compute[j];
            used += (size_t)snprintf(text + used, sizeof text - used, "ci %u %u %u %u %u ", compute->id,
                                     compute->profile, compute->start, compute->size, compute->index);
        }
    }
    if (used > 0)
        text[used - 1] = '\0';
    snprintf(key, sizeof key, "gpu.%u.mig.instances", mig->gpu);
    table_set(state, key, text);
}

const struct mig_profile *mig_profile_by_id(const struct mig *mig, unsigned id)
{
    for (unsigned i = 0; i < mig->profile_count; i++)
        if (mig->profiles[i].id == id)
            return &mig->profiles[i];
    return NULL;
}

const struct mig_profile *mig_profile_by_enum(const struct mig *mig, unsigned profile_enum)
{
    for (unsigned i = 0; i < mig->profile_count; i++)
        if (mig->profiles[i].profile_enum == profile_enum)
            return &mig->profiles[i];
    return NULL;
}

struct gpu_instance *mig_instance(struct mig *mig, unsigned id)
{
    for (unsigned i = 0; i < mig->instance_count; i++)
        if (mig->instances[i].id == id)
            return &mig->instances[i];
    return NULL;
}

struct compute_instance *mig_compute_instance(struct gpu_instance *instance, unsigned id)
{
    for (unsigned i = 0; i < instance->compute_count; i++)
        if (instance->compute[i].id == id)
            return &instance->compute[i];
    return NULL;
}

static bool overlap(unsigned one, unsigned one_size, unsigned other, unsigned other_size)
{
    return one < other + other_size && other < one + one_size;
}

static unsigned count_of(const struct mig *mig, const struct mig_profile *profile)
{
    unsigned count = 0;
    for (unsigned i = 0; i < mig->instance_count; i++)
        count += mig->instances[i].profile->id == profile->id;
    return count;
}

/* True when one more instance of the profile may stand at `start` beside those that exist. */
static bool fits(const struct mig *mig, const struct mig_profile *profile, unsigned start)
{
    const unsigned ofa_engines = 1;
    unsigned ofa_used = 0;
    if (count_of(mig, profile) >= profile->max_instances)
        return false;
    for (unsigned i = 0; i < mig->instance_count; i++) {
        const struct gpu_instance *other = &mig->instances[i];
        if (overlap(start, profile->size, other->start, other->profile->size))
            return false;
        ofa_used += other->profile->ofa;
    }
    return profile->ofa == 0 || ofa_used < ofa_engines;
}

unsigned mig_remaining(const struct mig *mig, const struct mig_profile *profile)
{
    struct mig trial = *mig;
    unsigned id, count = 0;
    while (mig_add(&trial, profile, -1, &id) == NVML_SUCCESS)
        count++;
    return count;
}

/* How many (profile, placement) pairs an instance of `profile` at `start` would take away from those still possible. */
static unsigned cost(const struct mig *mig, const struct mig_profile *profile, unsigned start)
{
    unsigned lost = 0;
    for (unsigned i = 0; i < mig->profile_count; i++) {
        const struct mig_profile *other = &mig->profiles[i];
        for (unsigned j = 0; j < other->start_count; j++)
            lost += fits(mig, other, other->starts[j]) && overlap(start, profile->size, other->starts[j], other->size);
    }
    return lost;
}

static int driver_choice(const struct mig *mig, const struct mig_profile *profile)
{
    int best = -1;
    unsigned best_cost = 0;
    for (unsigned i = 0; i < profile->start_count; i++) {
        unsigned start = profile->starts[i];
        if (!fits(mig, profile, start))
            continue;
        unsigned this_cost = cost(mig, profile, start);
        if (best < 0 || this_cost < best_cost) {
            best = (int)start;
            best_cost = this_cost;
        }
    }
    return best;
}

nvmlReturn_t mig_add(struct mig *mig, const struct mig_profile *profile, int start, unsigned *id)
{
    bool known = start < 0;
    for (unsigned i = 0; i < profile->start_count; i++)
        known = known || profile->starts[i] == (unsigned)start;
    if (!known)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (start < 0)
        start = driver_choice(mig, profile);
    if (start < 0 || !fits(mig, profile, (unsigned)start) || mig->instance_count == MAX_INSTANCES)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    *id = mig->axis / profile->size - 1 + (unsigned)start / profile->size;
    mig->instances[mig->instance_count++] =
        (struct gpu_instance){.id = *id, .profile = profile, .start = (unsigned)start};
    return NVML_SUCCESS;
}

void mig_remove(struct mig *mig, unsigned id)
{
    struct gpu_instance *instance = mig_instance(mig, id);
    struct gpu_instance *last = &mig->instances[--mig->instance_count];
    memmove(instance, instance + 1, (size_t)(last - instance) * sizeof *instance);
}

unsigned compute_slices(const struct gpu_instance *instance, unsigned profile)
{
    static const unsigned slices[COMPUTE_PROFILES] = {1, 2, 3, 4, 7}; /* profiles 5 to 8 exist on no card known here */
    unsigned wanted = profile < COMPUTE_PROFILES ? slices[profile] : 0, whole = instance->profile->slices;
    bool offered = wanted <= whole && !(wanted == 3 && whole == 4); /* NVIDIA's table has no 3c.4g */
    return offered ? wanted : 0;
}

static bool compute_fits(const struct gpu_instance *instance, unsigned start, unsigned size)
{
    if (start + size > instance->profile->slices)
        return false;
    for (unsigned i = 0; i < instance->compute_count; i++)
        if (overlap(start, size, instance->compute[i].start, instance->compute[i].size))
            return false;
    return true;
}

unsigned compute_remaining(const struct gpu_instance *instance, unsigned profile)
{
    unsigned size = compute_slices(instance, profile), count = 0;
    for (unsigned start = 0; size > 0 && start < instance->profile->slices;) {
        bool free = compute_fits(instance, start, size);
        count += free;
        start += free ? size : 1;
    }
    return count;
}

/* Lowest number for which `taken` is not set. */
static unsigned lowest_free(unsigned long taken)
{
    unsigned number = 0;
    while (taken >> number & 1)
        number++;
    return number;
}

nvmlReturn_t mig_add_compute(struct mig *mig, struct gpu_instance *instance, unsigned profile, int start, unsigned *id)
{
    unsigned size = compute_slices(instance, profile);
    unsigned long ids = 0, indexes = 0;
    if (size == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (start >= 0 && (unsigned)start + size > instance->profile->slices)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned at = 0; start < 0 && at < instance->profile->slices; at++)
        if (compute_fits(instance, at, size))
            start = (int)at;
    if (start < 0 || !compute_fits(instance, (unsigned)start, size) || instance->compute_count == MAX_INSTANCES)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    for (unsigned i = 0; i < instance->compute_count; i++)
        ids |= 1UL << instance->compute[i].id;
    for (unsigned i = 0; i < mig->instance_count; i++)
        for (unsigned j = 0; j < mig->instances[i].compute_count; j++)
            indexes |= 1UL << mig->instances[i].compute[j].index;
    *id = lowest_free(ids);
    instance->compute[instance->compute_count++] =
        (struct compute_instance){*id, profile, (unsigned)start, size, lowest_free(indexes)};
    return NVML_SUCCESS;
}

void mig_remove_compute(struct gpu_instance *instance, unsigned id)
{
    struct compute_instance *compute = mig_compute_instance(instance, id);
    struct compute_instance *last = &instance->compute[--instance->compute_count];
    memmove(compute, compute + 1, (size_t)(last - compute) * sizeof *compute);
}

void mig_device_name(const struct gpu_instance *instance, const struct compute_instance *compute, char *name,
                     size_t size)
{
    if (compute->size == instance->profile->slices)
        snprintf(name, size, "%s", instance->profile->name);
    else
        snprintf(name, size, "%uc.%s", compute->size, instance->profile->name);
}

/* FNV-1a: the same place on the same GPU always has the same UUID, as with the real driver. */
static unsigned long long hash(const char *text, unsigned long long seed)
{
    for (seed ^= 0xcbf29ce484222325ULL; *text != '\0'; text++)
        seed = (seed ^ (unsigned char)*text) * 0x100000001b3ULL;
    return seed;
}

void mig_uuid(unsigned gpu, unsigned gpu_instance, unsigned compute_instance, char *uuid, size_t size)
{
    char place[128];
    const char *parent = gpu_value(gpu, "uuid");
    snprintf(place, sizeof place, "%s/%u/%u", parent == NULL ? "" : parent, gpu_instance, compute_instance);
    unsigned long long high = hash(place, 1), low = hash(place, 2);
    snprintf(uuid, size, "MIG-%08llx-%04llx-5%03llx-8%03llx-%012llx", high >> 32, high >> 16 & 0xFFFF, high & 0xFFF,
             low >> 48 & 0xFFF, low & 0xFFFFFFFFFFFF);
}
