/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* PCI address and identifiers, link and throughput; what is one number is in device.c. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

static void bus_id(unsigned gpu, char *text, size_t size, const char *format, unsigned *domain, unsigned *bus,
                   unsigned *device)
{
    const char *address = gpu_value(gpu, "pci");
    *domain = *bus = *device = 0;
    if (address != NULL)
        sscanf(address, "%x:%x:%x", domain, bus, device);
    snprintf(text, size, format, *domain, *bus, *device);
}

static nvmlReturn_t pci_info(const char *function, nvmlDevice_t handle, struct pci_info *info)
{
    unsigned gpu;
    unsigned long long number = 0;
    nvmlReturn_t result = enter_gpu(function, handle, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    bus_id(gpu, info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", &info->domain, &info->bus,
           &info->device);
    bus_id(gpu, info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", &info->domain, &info->bus, &info->device);
    gpu_number(gpu, "pci_device_id", 0, &number);
    info->device_id = (unsigned)number;
    gpu_number(gpu, "pci_subsystem_id", 0, &number);
    info->subsystem_id = (unsigned)number;
    return NVML_SUCCESS;
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, struct pci_info *info)
{
    return pci_info(__func__, handle, info);
}

API nvmlDeviceGetPciInfoExt(nvmlDevice_t handle, struct pci_info_ext *info)
{
    struct pci_info plain;
    nvmlReturn_t result = pci_info(__func__, handle, &plain);
    if (result == NVML_SUCCESS && info->version != VERSIONED(struct pci_info_ext, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result != NVML_SUCCESS)
        return result;
    info->domain = plain.domain;
    info->bus = plain.bus;
    info->device = plain.device;
    info->device_id = plain.device_id;
    info->subsystem_id = plain.subsystem_id;
    info->base_class = 3;
    info->sub_class = 2;
    memcpy(info->bus_id, plain.bus_id, sizeof info->bus_id);
    return NVML_SUCCESS;
}

/* What card and slot can do together. */
API nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t handle, unsigned *generation)
{
    unsigned long long card = 0, slot = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "link.max_gen", 0, &card);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "upstream.max_gen", 0, &slot);
    if (result == NVML_SUCCESS)
        *generation = (unsigned)(card < slot ? card : slot);
    return result;
}

/* MT/s of one lane */
API nvmlDeviceGetPcieSpeed(nvmlDevice_t handle, unsigned *speed)
{
    static const unsigned lane[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    unsigned long long generation = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = gpu_number(gpu, "link.gen", 0, &generation);
    if (result == NVML_SUCCESS)
        *speed = lane[generation % (sizeof lane / sizeof *lane)];
    return result;
}

API nvmlDeviceGetPcieThroughput(nvmlDevice_t handle, unsigned counter, unsigned *value)
{
    unsigned long long number = 0;
    unsigned gpu;
    nvmlReturn_t result = enter_gpu(__func__, handle, &gpu);
    if (result == NVML_SUCCESS)
        result = counter > 1 ? NVML_ERROR_INVALID_ARGUMENT : gpu_number(gpu, "pcie_throughput", counter, &number);
    if (result == NVML_SUCCESS)
        *value = (unsigned)number;
    return result;
}
