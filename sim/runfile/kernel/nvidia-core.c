// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * nvidia: no hardware access. Takes the real module's parameters, binds to the vendor's GPUs, offers the character device
 * 195 and shows /proc/driver/nvidia/{version,params}. As the real one, it does not load where no GPU is left for it.
 */
#include <linux/fs.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "nv.h"

NV_MODULE("Stand-in for the NVIDIA core module");

/* Same match as the real module, so that modules.alias offers it for display and 3D controllers of the vendor. */
static const struct pci_device_id nv_pci_table[] = {
    { PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
    { PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
    { }
};
MODULE_DEVICE_TABLE(pci, nv_pci_table);

#define NV_MAJOR 195

/* X(name, default): numbers, in the order of /proc/driver/nvidia/params. */
#define NV_NUMBERS(X)                           \
    X(ModifyDeviceFiles, 1)                     \
    X(DeviceFileUID, 0)                         \
    X(DeviceFileGID, 0)                         \
    X(DeviceFileMode, 438)                      \
    X(InitializeSystemMemoryAllocations, 1)     \
    X(UsePageAttributeTable, ~0U)               \
    X(EnablePCIeGen3, 0)                        \
    X(EnableMSI, 1)                             \
    X(EnableStreamMemOPs, 0)                    \
    X(RestrictProfilingToAdminUsers, 1)         \
    X(PreserveVideoMemoryAllocations, 0)        \
    X(EnableS0ixPowerManagement, 0)             \
    X(DynamicPowerManagement, 3)                \
    X(RegisterPCIDriver, 1)                     \
    X(EnablePCIERelaxedOrderingMode, 0)         \
    X(EnableResizableBar, 0)                    \
    X(EnableGpuFirmware, 18)                    \
    X(EnableGpuFirmwareLogs, 2)                 \
    X(EnableDbgBreakpoint, 0)                   \
    X(OpenRmEnableUnsupportedGpus, 1)           \
    X(NvLinkDisable, 0)                         \
    X(ImexChannelCount, 2048)                   \
    X(CreateImexChannel0, 0)                    \
    X(GrdmaPciTopoCheckOverride, 0)

#define NV_TEXTS(X)         \
    X(TemporaryFilePath)    \
    X(ExcludedGpus)         \
    X(CoherentGPUMemoryMode) \
    X(RegistryDwords)       \
    X(RegistryDwordsPerDevice) \
    X(RmMsg)

#define DECLARE_NUMBER(name, value) \
    static unsigned int NVreg_##name = value; \
    module_param(NVreg_##name, uint, 0444);
#define DECLARE_TEXT(name) \
    static char *NVreg_##name; \
    module_param(NVreg_##name, charp, 0444);
NV_NUMBERS(DECLARE_NUMBER)
NV_TEXTS(DECLARE_TEXT)

static struct proc_dir_entry *nv_proc;

static int show_version(struct seq_file *m, void *unused)
{
    seq_printf(m, "NVRM version: %s\n", NV_BANNER);
    seq_printf(m, "GCC version:  gcc version %s\n", __VERSION__);
    return 0;
}

static int show_params(struct seq_file *m, void *unused)
{
#define SHOW_NUMBER(name, value) seq_printf(m, #name ": %u\n", NVreg_##name);
#define SHOW_TEXT(name) seq_printf(m, #name ": \"%s\"\n", NVreg_##name ? NVreg_##name : "");
    NV_NUMBERS(SHOW_NUMBER)
    NV_TEXTS(SHOW_TEXT)
    return 0;
}

int nvidia_core_attach(const char *user)
{
    pr_info("NVRM: %s attached\n", user);
    return 0;
}
EXPORT_SYMBOL(nvidia_core_attach);

void nvidia_core_detach(const char *user)
{
    pr_info("NVRM: %s detached\n", user);
}
EXPORT_SYMBOL(nvidia_core_detach);

static int nv_gpus;

static int nv_probe(struct pci_dev *device, const struct pci_device_id *unused)
{
    nv_gpus++;
    return 0;
}

static void nv_remove(struct pci_dev *device)
{
    nv_gpus--;
}

static struct pci_driver nv_pci_driver = {
    .name = "nvidia",
    .id_table = nv_pci_table,
    .probe = nv_probe,
    .remove = nv_remove,
};

/* Whoever has /dev/nvidia* open holds the module: the owner below counts. */
static int nv_open(struct inode *inode, struct file *file)
{
    return 0;
}

static const struct file_operations nv_operations = { .owner = THIS_MODULE, .open = nv_open };

static int nv_show(void)
{
    nv_proc = proc_mkdir("driver/nvidia", NULL);
    if (!nv_proc)
        return -ENOMEM;
    if (!proc_create_single("version", 0444, nv_proc, show_version) ||
        !proc_create_single("params", 0444, nv_proc, show_params)) {
        proc_remove(nv_proc);
        return -ENOMEM;
    }
    return 0;
}

static int __init nv_init(void)
{
    int error = register_chrdev(NV_MAJOR, "nvidia", &nv_operations);

    if (error)
        return error;
    error = pci_register_driver(&nv_pci_driver);
    if (error)
        goto no_driver;
    error = -ENODEV;
    if (!nv_gpus) {
        pr_err("NVRM: No NVIDIA GPU found.\n");
        goto no_gpu;
    }
    error = nv_show();
    if (error)
        goto no_gpu;
    pr_info("NVRM: loading %s\n", NV_BANNER);
    return 0;

no_gpu:
    pci_unregister_driver(&nv_pci_driver);
no_driver:
    unregister_chrdev(NV_MAJOR, "nvidia");
    return error;
}

static void __exit nv_exit(void)
{
    proc_remove(nv_proc);
    pci_unregister_driver(&nv_pci_driver);
    unregister_chrdev(NV_MAJOR, "nvidia");
}

module_init(nv_init);
module_exit(nv_exit);
