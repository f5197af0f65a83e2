/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The part of NVML's binary interface that this library offers: own declarations of the types its callers pass.
 * A versioned structure starts with `version`: its size in the low 24 bits, its version number above. */
#ifndef SIM_NVML_API_H
#define SIM_NVML_API_H

#include <stdint.h>

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* Handles are opaque to the caller; see handle.c for what they hold. */
typedef void *nvmlDevice_t;
typedef void *nvmlGpuInstance_t;
typedef void *nvmlComputeInstance_t;

#define VERSIONED(type, number) ((unsigned)sizeof(type) | (unsigned)(number) << 24)

enum {
    NAME_SIZE = 96,      /* profile names */
    UUID_SIZE = 16,      /* a fabric cluster's UUID, raw */
    FIELD_VALUE_DOUBLE = 0,
    FIELD_VALUE_UINT = 1,
    FIELD_VALUE_ULONGLONG = 3,
    FIELD_VALUE_INT = 5,
};

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct pci_info_ext {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct driver_branch {
    unsigned version;
    char branch[80];
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct bar1_memory {
    unsigned long long total, free, used;
};

struct utilization {
    unsigned gpu, memory;
};

struct versioned_uint {
    unsigned version, value;
};

struct versioned_int {
    unsigned version;
    int value;
};

struct versioned_ulonglong {
    unsigned version;
    unsigned long long value;
};

struct temperature_v1 {
    unsigned version, sensor;
    int temperature;
};

struct repair_status {
    unsigned version, channel_pending, tpc_pending;
};

struct row_histogram {
    unsigned max, high, partial, low, none;
};

/* counters: aggregate uncorrectable parity, SECDED, correctable; the same three volatile; then the aggregate
 * uncorrectable ones by source: L2, SM, PCIe, microcontroller, other */
struct sram_ecc_status {
    unsigned version;
    unsigned long long counters[11];
    unsigned threshold_exceeded;
};

struct platform_info_v2 {
    unsigned version;
    unsigned char ib_guid[16], chassis_serial[16];
    unsigned char slot, tray, host_id, peer_type, module_id;
};

struct process_info {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};

struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned value_type, result;
    union {
        double as_double;
        unsigned as_uint;
        unsigned long long as_ulonglong;
        int as_int;
    } value;
};

struct fabric_info {
    unsigned char cluster_uuid[UUID_SIZE];
    unsigned status, clique_id, state;
};

struct fabric_info_v2 {
    unsigned version;
    unsigned char cluster_uuid[UUID_SIZE];
    unsigned status, clique_id, state, health_mask;
};

struct fabric_info_v3 {
    unsigned version;
    unsigned char cluster_uuid[UUID_SIZE];
    unsigned status, clique_id, state, health_mask;
    unsigned char health_summary;
};

struct placement {
    unsigned start, size;
};

struct gpu_instance_profile {
    unsigned id, p2p_supported, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
};

struct gpu_instance_profile_v2 {
    unsigned version;
    unsigned id, p2p_supported, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
    char name[NAME_SIZE];
};

struct gpu_instance_info {
    nvmlDevice_t device;
    unsigned id, profile;
    struct placement placement;
};

struct compute_instance_profile {
    unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
};

struct compute_instance_profile_v2 {
    unsigned version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    char name[NAME_SIZE];
};

struct compute_instance_info {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpu_instance;
    unsigned id, profile;
    struct placement placement;
};

struct device_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

#endif
