/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Field values, NVLink, fabric, P2P and topology, CPU and memory affinity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

enum {
    FIELD_COUNT = 296, /* of driver branch 580 */
    NVLINK_MAX_LINKS = 18,
    ERROR_COUNTERS = 4,
    P2P_INDEXES = 5,
    P2P_NOT_SUPPORTED = 5,
    REMOTE_SWITCH = 2,
    /* fields that answer from a link's or the GPU's own description; the others have a key `field.<id>` */
    FIELD_LINK_SPEED_COMMON = 90,
    FIELD_LINK_COUNT = 91,
    FIELD_SWITCH_LINKS = 147,
    FIELD_LINK_SPEED = 164,
    FIELD_LINK_STATE = 165,
    FIELD_LINK_VERSION = 166,
};

/* One attribute of one NVLink: `nvlink.<link>.<attribute>`. */
static nvmlReturn_t link_number(unsigned gpu, unsigned link, const char *attribute, unsigned long long *number)
{
    char key[MAX_KEY];
    unsigned long long count;
    nvmlReturn_t result = gpu_number(gpu, "nvlink.count", 0, &count);
    if (result != NVML_SUCCESS)
        return result;
    if (link >= count)
        return link < NVLINK_MAX_LINKS ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink.%u.%s", link, attribute);
    return gpu_number(gpu, key, 0, number);
}

static nvmlReturn_t switch_links(unsigned gpu, unsigned long long *found)
{
    unsigned long long count, type;
    nvmlReturn_t result = gpu_number(gpu, "nvlink.count", 0, &count);
    *found = 0;
    for (unsigned link = 0; result == NVML_SUCCESS && link < count; link++)
        if (link_number(gpu, link, "remote_type", &type) == NVML_SUCCESS && type == REMOTE_SWITCH)
            (*found)++;
    return result;
}

static nvmlReturn_t described_field(unsigned gpu, struct field_value *field)
{
    char key[MAX_KEY];
    unsigned long long type = 0, number = 0;
    snprintf(key, sizeof key, "field.%u", field->field);
    nvmlReturn_t result = gpu_number(gpu, key, 0, &type);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, key, 1, &number);
    if (result != NVML_SUCCESS)
        return result;
    field->value_type = (unsigned)type;
    if (type == FIELD_VALUE_DOUBLE)
        field->value.as_double = (double)number;
    else
        field->value.as_ulonglong = number;
    return NVML_SUCCESS;
}

static nvmlReturn_t read_field(unsigned gpu, struct field_value *field)
{
    nvmlReturn_t result;
    unsigned long long number = 0;
    switch (field->field) {
    case FIELD_LINK_COUNT:
        result = gpu_number(gpu, "nvlink.count", 0, &number);
        break;
    case FIELD_SWITCH_LINKS:
        result = switch_links(gpu, &number);
        if (result != NVML_SUCCESS)
            return described_field(gpu, field);
        break;
    case FIELD_LINK_SPEED_COMMON:
        result = link_number(gpu, 0, "speed_mbps", &number);
        break;
    case FIELD_LINK_SPEED:
        result = link_number(gpu, field->scope, "speed_mbps", &number);
        break;
    case FIELD_LINK_STATE:
        result = link_number(gpu, field->scope, "state", &number);
        break;
    case FIELD_LINK_VERSION:
        result = link_number(gpu, field->scope, "version", &number);
        break;
    default:
        return field->field < FIELD_COUNT ? described_field(gpu, field) : NVML_ERROR_INVALID_ARGUMENT;
    }
    field->value_type = FIELD_VALUE_UINT;
    field->value.as_ulonglong = number;
    return result;
}

API nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, struct field_value *fields)
{
    struct timespec now;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        fields[i].latency = 0;
        fields[i].value.as_ulonglong = 0;
        fields[i].result = read_field(gpu, &fields[i]);
    }
    return NVML_SUCCESS;
}

#define LINK_NUMBER(call, attribute)                                                                                   \
    API call(nvmlDevice_t handle, unsigned link, unsigned *value)                                                      \
    {                                                                                                                  \
        unsigned gpu;                                                                                                  \
        unsigned long long number = 0;                                                                                 \
        nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);                                                       \
        if (result == NVML_SUCCESS)                                                                                    \
            result = link_number(gpu, link, attribute, &number);                                                       \
        if (result == NVML_SUCCESS)                                                                                    \
            *value = (unsigned)number;                                                                                 \
        return result;                                                                                                 \
    }

LINK_NUMBER(nvmlDeviceGetNvLinkState, "state")
LINK_NUMBER(nvmlDeviceGetNvLinkVersion, "version")
LINK_NUMBER(nvmlDeviceGetNvLinkRemoteDeviceType, "remote_type")

API nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, unsigned link, unsigned counter, unsigned long long *value)
{
    unsigned gpu;
    char attribute[32];
    unsigned long long state = 0;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = counter >= ERROR_COUNTERS ? NVML_ERROR_INVALID_ARGUMENT : link_number(gpu, link, "state", &state);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(attribute, sizeof attribute, "error.%u", counter);
    if (link_number(gpu, link, attribute, value) != NVML_SUCCESS)
        *value = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned link, struct pci_info *info)
{
    char key[MAX_KEY];
    unsigned long long state;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = link_number(gpu, link, "state", &state);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(key, sizeof key, "nvlink.%u.remote_pci", link);
    const char *address = gpu_value(gpu, key);
    if (address == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    if (sscanf(address, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
        return NVML_ERROR_UNKNOWN;
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus & 0xFF,
             info->device & 0x1F);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF,
             info->bus & 0xFF, info->device & 0x1F);
    return NVML_SUCCESS;
}

static nvmlReturn_t fabric_of(const char *function, nvmlDevice_t handle, struct fabric_info_v3 *info)
{
    static const struct {
        const char *key;
        size_t offset;
    } numbers[] = {
        {"fabric.state", offsetof(struct fabric_info_v3, state)},
        {"fabric.status", offsetof(struct fabric_info_v3, status)},
        {"fabric.clique_id", offsetof(struct fabric_info_v3, clique_id)},
        {"fabric.health_mask", offsetof(struct fabric_info_v3, health_mask)},
    };
    unsigned gpu;
    unsigned long long number = 0;
    nvmlReturn_t result = enter_gpu(function, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        unsigned value = gpu_number(gpu, numbers[i].key, 0, &number) == NVML_SUCCESS ? (unsigned)number : 0;
        memcpy((char *)info + numbers[i].offset, &value, sizeof value);
    }
    if (gpu_number(gpu, "fabric.health_summary", 0, &number) == NVML_SUCCESS)
        info->health_summary = (unsigned char)number;
    const char *uuid = gpu_value(gpu, "fabric.cluster_uuid");
    for (unsigned i = 0; uuid != NULL && i < UUID_SIZE && strlen(uuid) == 2 * UUID_SIZE; i++) {
        char byte[3] = {uuid[2 * i], uuid[2 * i + 1], '\0'};
        info->cluster_uuid[i] = (unsigned char)strtoul(byte, NULL, 16);
    }
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, struct fabric_info *info)
{
    struct fabric_info_v3 full = {0};
    nvmlReturn_t result = fabric_of(__func__, handle, &full);
    if (result != NVML_SUCCESS)
        return result;
    memcpy(info->cluster_uuid, full.cluster_uuid, sizeof info->cluster_uuid);
    info->status = full.status;
    info->clique_id = full.clique_id;
    info->state = full.state;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, struct fabric_info_v2 *info)
{
    struct fabric_info_v3 full = {0};
    nvmlReturn_t result = fabric_of(__func__, handle, &full);
    if (result != NVML_SUCCESS)
        return result;
    full.version = info->version;
    if (info->version == VERSIONED(struct fabric_info_v3, 3))
        memcpy(info, &full, sizeof full);
    else if (info->version == VERSIONED(struct fabric_info_v2, 2)) /* the same layout, without the summary */
        memcpy(info, &full, sizeof *info);
    else
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return NVML_SUCCESS;
}

static nvmlReturn_t enter_pair(const char *function, nvmlDevice_t one, nvmlDevice_t other, unsigned *gpu,
                               unsigned *peer)
{
    nvmlReturn_t result = enter_gpu(function, one, gpu);
    return result != NVML_SUCCESS ? result : enter_gpu(function, other, peer);
}

API nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned *level)
{
    char key[MAX_KEY];
    unsigned gpu, peer;
    unsigned long long number = 0;
    nvmlReturn_t result = enter_pair(__func__, one, other, &gpu, &peer);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(key, sizeof key, "topology.%u", peer);
    result = gpu_number(gpu, key, 0, &number);
    if (result == NVML_SUCCESS)
        *level = (unsigned)number;
    return result;
}

API nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned index, unsigned *status)
{
    char key[MAX_KEY];
    unsigned gpu, peer;
    unsigned long long number = 0;
    nvmlReturn_t result = enter_pair(__func__, one, other, &gpu, &peer);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(key, sizeof key, "p2p.%u", peer);
    if (index >= P2P_INDEXES)
        *status = 0;
    else if (mig_is_enabled(gpu) || mig_is_enabled(peer) || gpu_number(gpu, key, index, &number) != NVML_SUCCESS)
        *status = P2P_NOT_SUPPORTED;
    else
        *status = (unsigned)number;
    return NVML_SUCCESS;
}

/* Sets the bits that a list such as "0-15,32-47" or "0 1" names. */
static void set_bits(const char *list, unsigned words, unsigned long *set)
{
    const unsigned bits = 8 * sizeof *set;
    memset(set, 0, words * sizeof *set);
    while (list != NULL && *list != '\0') {
        char *rest;
        unsigned long first = strtoul(list, &rest, 10), last = first;
        if (*rest == '-')
            last = strtoul(rest + 1, &rest, 10);
        for (unsigned long bit = first; bit <= last && bit / bits < words; bit++)
            set[bit / bits] |= 1UL << bit % bits;
        list = *rest == '\0' ? NULL : rest + 1;
    }
}

static nvmlReturn_t affinity(const char *function, nvmlDevice_t handle, const char *key, unsigned words, unsigned scope,
                             unsigned long *set)
{
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(function, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (words == 0 || set == NULL || scope > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    set_bits(gpu_value(gpu, key), words, set);
    return NVML_SUCCESS;
}

API nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned words, unsigned long *set)
{
    return affinity(__func__, handle, "cpus", words, 0, set);
}

API nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t handle, unsigned words, unsigned long *set, unsigned scope)
{
    return affinity(__func__, handle, "cpus", words, scope, set);
}

API nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, unsigned words, unsigned long *set, unsigned scope)
{
    return affinity(__func__, handle, "nodes", words, scope, set);
}
