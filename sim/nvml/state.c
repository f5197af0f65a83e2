/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Where the simulated machine's files are, and what they say together. Tables are per thread: no locks are needed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "sim.h"

#define MACHINE "/etc/gpufleet-sim/machine.flat"
#define VOLATILE_DIRECTORY "/run/gpufleet-sim"
#define VOLATILE VOLATILE_DIRECTORY "/state"
#define LOCK VOLATILE_DIRECTORY "/lock"
#define KEPT "/var/lib/gpufleet-sim/state"
#define KERNEL_VERSION "/proc/driver/nvidia/version"
#define CONTROL_DEVICE "/dev/nvidiactl"

static _Thread_local struct table machine, present, kept;

static const char *under_root(const char *path)
{
    static _Thread_local char full[MAX_PATH];
    const char *root = getenv("GPUFLEET_SIM_ROOT");
    snprintf(full, sizeof full, "%s%s", root == NULL ? "" : root, path);
    return full;
}

static const struct table *described(void)
{
    table_refresh(&machine, under_root(MACHINE));
    return &machine;
}

const char *machine_value(const char *key)
{
    return table_get(described(), key);
}

unsigned gpu_count(void)
{
    const char *count = machine_value("gpu.count");
    unsigned number = count == NULL ? 0 : (unsigned)strtoul(count, NULL, 10);
    return number < MAX_GPUS ? number : MAX_GPUS;
}

const struct table *volatile_state(void)
{
    table_refresh(&present, under_root(VOLATILE));
    return &present;
}

/* What a loaded kernel module says of itself: the first word of the form 580.95.05 in its version file. */
const char *kernel_driver(void)
{
    static _Thread_local char line[256];
    FILE *file = fopen(under_root(KERNEL_VERSION), "re");
    if (file == NULL)
        return NULL;
    const char *read = fgets(line, sizeof line, file);
    fclose(file);
    for (char *rest = line, *word = NULL; read != NULL && (word = strtok_r(rest, " \n", &rest)) != NULL;)
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.') != NULL)
            return word;
    return NULL;
}

int open_control_device(void)
{
    return open(under_root(CONTROL_DEVICE), O_RDWR | O_CLOEXEC);
}

static const char *value_in(const struct table *table, unsigned gpu, const char *key)
{
    char full[MAX_KEY];
    snprintf(full, sizeof full, "gpu.%u.%s", gpu, key);
    return table_get(table, full);
}

const char *gpu_value(unsigned gpu, const char *key)
{
    const char *value = fault_value(gpu, key);
    if (value == NULL)
        value = value_in(volatile_state(), gpu, key);
    return value == NULL ? value_in(described(), gpu, key) : value;
}

const char *kept_value(unsigned gpu, const char *key)
{
    table_refresh(&kept, under_root(KEPT));
    return value_in(&kept, gpu, key);
}

/* A value `!code` stands for an error. */
static nvmlReturn_t error_in(const char *value)
{
    if (value == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    return value[0] == '!' ? (nvmlReturn_t)strtoul(value + 1, NULL, 10) : NVML_SUCCESS;
}

nvmlReturn_t gpu_number(unsigned gpu, const char *key, unsigned column, unsigned long long *number)
{
    const char *value = gpu_value(gpu, key);
    nvmlReturn_t result = error_in(value);
    char *rest = (char *)value;
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i <= column; i++) {
        const char *start = rest;
        long long parsed = strtoll(start, &rest, 10);
        if (rest == start)
            return NVML_ERROR_NOT_SUPPORTED;
        *number = (unsigned long long)parsed;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t gpu_text(unsigned gpu, const char *key, char *text, unsigned size)
{
    const char *value = gpu_value(gpu, key);
    nvmlReturn_t result = error_in(value);
    if (result != NVML_SUCCESS)
        return result;
    if (text == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return NVML_SUCCESS;
}

/* Whoever may write the simulated driver's state is its root. */
bool may_change(void)
{
    return access(under_root(VOLATILE_DIRECTORY), W_OK) == 0;
}

nvmlReturn_t state_begin(struct edit *edit)
{
    if (!may_change())
        return NVML_ERROR_NO_PERMISSION;
    edit->lock = open(under_root(LOCK), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (edit->lock < 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    while (flock(edit->lock, LOCK_EX) != 0) {
        if (errno != EINTR) {
            close(edit->lock);
            return NVML_ERROR_OPERATING_SYSTEM;
        }
    }
    table_read(&present, under_root(VOLATILE));
    table_read(&kept, under_root(KEPT));
    edit->volatile_state = &present;
    edit->kept = &kept;
    return NVML_SUCCESS;
}

void state_abandon(struct edit *edit)
{
    close(edit->lock);
}

nvmlReturn_t state_commit(struct edit *edit)
{
    bool written = table_write(&present, under_root(VOLATILE));
    written = table_write(&kept, under_root(KEPT)) && written;
    close(edit->lock);
    return written ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}
