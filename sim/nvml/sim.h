/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* What the parts of the simulated library share. */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>

#include "nvml_api.h"

/* Every exported symbol is defined with this; exports.map keeps everything else local. */
#define API nvmlReturn_t

enum { MAX_GPUS = 32, MAX_PATH = 1024, MAX_KEY = 96 };

/* table.c: a file of `key=value` lines, sorted by key. */
struct row {
    char *key, *value;
};

struct table {
    struct row *rows;
    size_t count;
    long long stamp[3]; /* of the file this was read from: size, mtime, inode */
};

void table_read(struct table *table, const char *path);
/* Reads the file again if it is not the one read last time. */
void table_refresh(struct table *table, const char *path);
const char *table_get(const struct table *table, const char *key);
void table_set(struct table *table, const char *key, const char *value);
/* Replaces the file in one step. */
bool table_write(const struct table *table, const char *path);
void table_clear(struct table *table);

/* state.c: where the files are, and what they say together. */
const char *machine_value(const char *key);
/* A GPU's value for `key`: from a fault, else the volatile state, else the machine; NULL when there is none. */
const char *gpu_value(unsigned gpu, const char *key);
/* Column `column` of a GPU's value as a number; an absent key is Not Supported, `!code` that error. */
nvmlReturn_t gpu_number(unsigned gpu, const char *key, unsigned column, unsigned long long *number);
nvmlReturn_t gpu_text(unsigned gpu, const char *key, char *text, unsigned size);
unsigned gpu_count(void);
/* InfoROM-like memory that outlives a reboot. */
const char *kept_value(unsigned gpu, const char *key);
const struct table *volatile_state(void);
/* The version that the kernel module tells, NULL when none is loaded. */
const char *kernel_driver(void);
/* A descriptor, -1 when there is no such device. */
int open_control_device(void);
bool may_change(void);

/* Exclusive access to the state of all processes, until state_commit. */
struct edit {
    int lock;
    struct table *volatile_state, *kept;
};
nvmlReturn_t state_begin(struct edit *edit);
nvmlReturn_t state_commit(struct edit *edit);
void state_abandon(struct edit *edit);

/* fault.c */
struct client {
    unsigned gpu;
    unsigned pid;
    char kind[16]; /* compute, graphics, mps; hidden: holds the GPU and shows in no list */
    int gpu_instance; /* -1: the whole GPU */
};
/* What a fault makes of a call: hangs or crashes here, or returns the error it forces. gpu < 0: not about a GPU. */
nvmlReturn_t fault_in_call(const char *function, int gpu);
bool fault_is_lost(unsigned gpu);
bool fault_version_mismatch(void);
const char *fault_value(unsigned gpu, const char *key);
/* The next client of a GPU after position *cursor (start at 0); false when there is none left. */
bool fault_next_client(unsigned gpu, unsigned *cursor, struct client *client);
bool gpu_has_client(unsigned gpu, int gpu_instance);

/* handle.c */
struct device {
    unsigned gpu;
    bool is_mig;
    unsigned gpu_instance, compute_instance;
};
nvmlDevice_t gpu_handle(unsigned gpu);
nvmlDevice_t mig_handle(unsigned gpu, unsigned gpu_instance, unsigned compute_instance);
nvmlGpuInstance_t gpu_instance_handle(unsigned gpu, unsigned id);
nvmlComputeInstance_t compute_instance_handle(unsigned gpu, unsigned gpu_instance, unsigned id);
/* Each of these begins a call: initialised? forced error? known and living GPU? */
nvmlReturn_t enter(const char *function);
nvmlReturn_t enter_device(const char *function, nvmlDevice_t handle, struct device *device);
nvmlReturn_t enter_gpu(const char *function, nvmlDevice_t handle, unsigned *gpu);
nvmlReturn_t enter_gpu_instance(const char *function, nvmlGpuInstance_t handle, unsigned *gpu, unsigned *id);
nvmlReturn_t enter_compute_instance(const char *function, nvmlComputeInstance_t handle, struct device *instance);

/* library.c */
bool library_is_initialised(void);
const char *loaded_driver(void);

/* mig.c: the rules, on one GPU's instances. */
enum { MAX_PROFILES = 32, MAX_PLACEMENTS = 12, MAX_INSTANCES = 16, COMPUTE_PROFILES = 9 };

struct mig_profile {
    unsigned profile_enum, id;
    char name[32];
    unsigned slices, max_instances, multiprocessors, memory_mib, copy_engines, decoders, encoders, jpeg, ofa, size;
    unsigned starts[MAX_PLACEMENTS], start_count;
};

struct compute_instance {
    unsigned id, profile, start, size, index; /* index: of the MIG device */
};

struct gpu_instance {
    unsigned id;
    const struct mig_profile *profile;
    unsigned start;
    struct compute_instance compute[MAX_INSTANCES];
    unsigned compute_count;
};

struct mig {
    unsigned gpu;
    struct mig_profile profiles[MAX_PROFILES];
    unsigned profile_count, axis; /* axis: units of the placement axis */
    struct gpu_instance instances[MAX_INSTANCES];
    unsigned instance_count;
};

/* The GPU's profiles and instances; false when the GPU does not know MIG. */
bool mig_read(struct mig *mig, unsigned gpu);
bool mig_is_enabled(unsigned gpu);
void mig_write(const struct mig *mig, struct table *state);
const struct mig_profile *mig_profile_by_id(const struct mig *mig, unsigned id);
const struct mig_profile *mig_profile_by_enum(const struct mig *mig, unsigned profile_enum);
struct gpu_instance *mig_instance(struct mig *mig, unsigned id);
struct compute_instance *mig_compute_instance(struct gpu_instance *instance, unsigned id);
unsigned mig_remaining(const struct mig *mig, const struct mig_profile *profile);
/* Adds an instance; start < 0 lets the driver choose. */
nvmlReturn_t mig_add(struct mig *mig, const struct mig_profile *profile, int start, unsigned *id);
void mig_remove(struct mig *mig, unsigned id);
/* Slices of a compute instance profile; 0 when the GPU instance does not offer it. */
unsigned compute_slices(const struct gpu_instance *instance, unsigned profile);
unsigned compute_remaining(const struct gpu_instance *instance, unsigned profile);
nvmlReturn_t mig_add_compute(struct mig *mig, struct gpu_instance *instance, unsigned profile, int start, unsigned *id);
void mig_remove_compute(struct gpu_instance *instance, unsigned id);
/* "1g.10gb", or "1c.3g.40gb" for a compute instance that is a part of its GPU instance. */
void mig_device_name(const struct gpu_instance *instance, const struct compute_instance *compute, char *name,
                     size_t size);
void mig_uuid(unsigned gpu, unsigned gpu_instance, unsigned compute_instance, char *uuid, size_t size);

/* mig_gpu_instance.c: how MIG calls begin, and how a change of instances begins (MIG must be on; afterwards `mig` is
 * what every process agrees on) and ends: stored, or abandoned when `result` is an error. */
nvmlReturn_t mig_enter(const char *function, nvmlDevice_t handle, struct mig *mig);
nvmlReturn_t mig_enter_instance(const char *function, nvmlGpuInstance_t handle, struct mig *mig,
                                struct gpu_instance **instance);
nvmlReturn_t mig_begin_change(struct mig *mig, struct edit *edit);
nvmlReturn_t mig_end_change(const struct mig *mig, struct edit *edit, nvmlReturn_t result);

#endif
