// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * PCI root buses whose functions exist in memory only. QEMU has no device with a GPU's vendor and device id; here the
 * kernel's own PCI core enumerates such functions, so that udev, modprobe by alias, driver binding and sysfs are real.
 * The functions have identity and a PCI Express capability, but no memory, no interrupt and no work to do.
 *
 * Parameter `devices`, one word a GPU: PORT/GPU/VENDOR:DEVICE/SUBVENDOR:SUBDEVICE/CLASS/GENxWIDTH/MAXGENxMAXWIDTH,
 * hexadecimal as lspci writes them, for example 20:03.1/21:00.0/10de:26b9/10de:1851/030200/4x16/4x16.
 */
#include <linux/module.h>
#include <linux/pci.h>

#define MAX_GPUS 16
#define CAPABILITY 0x40
#define CONFIG_SIZE 256
/* Each GPU: its root port, the port's function 0 (a slot needs one), and itself. */
#define FUNCTIONS_OF_ONE 3

struct function {
	u8 bus, devfn;
	u8 config[CONFIG_SIZE];
};

struct host {
	struct pci_sysdata sysdata;
	struct resource buses;
	struct pci_bus *root;
};

static char *devices[MAX_GPUS];
static int count;
module_param_array(devices, charp, &count, 0444);

static struct function functions[MAX_GPUS * FUNCTIONS_OF_ONE];
static int functions_used;
static struct host hosts[MAX_GPUS];

static struct function *find(struct pci_bus *bus, unsigned int devfn)
{
	for (int i = 0; i < functions_used; i++)
		if (functions[i].bus == bus->number && functions[i].devfn == devfn)
			return &functions[i];
	return NULL;
}

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct function *function = find(bus, devfn);

	*value = ~0;
	if (!function)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where + size > CONFIG_SIZE)
		return PCIBIOS_BAD_REGISTER_NUMBER;
	*value = 0;
	memcpy(value, function->config + where, size);
	return PCIBIOS_SUCCESSFUL;
}

/* What software may set: command, cache line, bus numbers of a bridge, interrupt line and bridge control, link control.
 * Everything else, the base addresses above all, reads as before: there is no memory to map. */
static bool writable(const struct function *function, int where)
{
	bool bridge = (function->config[PCI_HEADER_TYPE] & 0x7f) == PCI_HEADER_TYPE_BRIDGE;

	return where == PCI_COMMAND || where == PCI_COMMAND + 1 || where == PCI_CACHE_LINE_SIZE ||
	       where == PCI_INTERRUPT_LINE || where == CAPABILITY + PCI_EXP_DEVCTL || where == CAPABILITY + PCI_EXP_LNKCTL ||
	       (bridge && (where == PCI_BRIDGE_CONTROL || (where >= PCI_PRIMARY_BUS && where <= PCI_SUBORDINATE_BUS)));
}

static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct function *function = find(bus, devfn);

	if (!function)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where + size > CONFIG_SIZE)
		return PCIBIOS_BAD_REGISTER_NUMBER;
	for (int i = 0; i < size; i++)
		if (writable(function, where + i))
			function->config[where + i] = value >> (8 * i);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops operations = { .read = config_read, .write = config_write };

static void put16(u8 *config, int where, u16 value)
{
	config[where] = value;
	config[where + 1] = value >> 8;
}

static struct function *add(u8 bus, u8 devfn, u16 vendor, u16 device, u32 class, u8 header)
{
	struct function *function = &functions[functions_used++];

	function->bus = bus;
	function->devfn = devfn;
	put16(function->config, PCI_VENDOR_ID, vendor);
	put16(function->config, PCI_DEVICE_ID, device);
	function->config[PCI_REVISION_ID] = 0xa1;
	function->config[PCI_CLASS_PROG] = class;
	put16(function->config, PCI_CLASS_DEVICE, class >> 8);
	function->config[PCI_HEADER_TYPE] = header;
	return function;
}

static void add_link(struct function *function, u8 type, u8 gen, u8 width, u8 max_gen, u8 max_width)
{
	u8 *at = function->config + CAPABILITY;

	put16(function->config, PCI_STATUS, PCI_STATUS_CAP_LIST);
	function->config[PCI_CAPABILITY_LIST] = CAPABILITY;
	at[PCI_CAP_LIST_ID] = PCI_CAP_ID_EXP;
	put16(at, PCI_EXP_FLAGS, 2 | type << 4);
	put16(at, PCI_EXP_LNKCAP, max_gen | max_width << 4);
	put16(at, PCI_EXP_LNKSTA, gen | width << 4);
	at[PCI_EXP_LNKCAP2] = ((1 << max_gen) - 1) << 1;
	at[PCI_EXP_LNKCTL2] = max_gen;
}

static int describe(const char *text, struct resource *buses)
{
	unsigned int port_bus, port_slot, port_function, bus, slot, number, vendor, device, subvendor, subdevice, class;
	unsigned int gen, width, max_gen, max_width;
	struct function *port, *gpu;

	if (sscanf(text, "%x:%x.%x/%x:%x.%x/%x:%x/%x:%x/%x/%ux%u/%ux%u", &port_bus, &port_slot, &port_function, &bus,
		   &slot, &number, &vendor, &device, &subvendor, &subdevice, &class, &gen, &width, &max_gen,
		   &max_width) != 15) {
		pr_err("gpufleet-pcibus: cannot read '%s'\n", text);
		return -EINVAL;
	}
	if (port_function)
		add(port_bus, PCI_DEVFN(port_slot, 0), 0x1000, 0xc031, 0x060000, 0x80);
	port = add(port_bus, PCI_DEVFN(port_slot, port_function), 0x1000, 0xc030, 0x060400, PCI_HEADER_TYPE_BRIDGE);
	port->config[PCI_PRIMARY_BUS] = port_bus;
	port->config[PCI_SECONDARY_BUS] = port->config[PCI_SUBORDINATE_BUS] = bus;
	put16(port->config, PCI_MEMORY_BASE, 0xfff0); /* above the limit: closed */
	add_link(port, PCI_EXP_TYPE_ROOT_PORT, gen, width, max_gen, max_width);
	gpu = add(bus, PCI_DEVFN(slot, number), vendor, device, class, PCI_HEADER_TYPE_NORMAL);
	put16(gpu->config, PCI_SUBSYSTEM_VENDOR_ID, subvendor);
	put16(gpu->config, PCI_SUBSYSTEM_ID, subdevice);
	add_link(gpu, PCI_EXP_TYPE_ENDPOINT, gen, width, max_gen, max_width);
	*buses = (struct resource){ .start = port_bus, .end = bus, .flags = IORESOURCE_BUS, .name = "gpufleet" };
	return 0;
}

static int __init pcibus_init(void)
{
	for (int i = 0; i < count; i++) {
		struct host *host = &hosts[i];
		LIST_HEAD(resources);
		int error = describe(devices[i], &host->buses);

		if (error)
			return error;
		host->sysdata.node = NUMA_NO_NODE;
		pci_add_resource(&resources, &host->buses);
		pci_lock_rescan_remove();
		host->root = pci_scan_root_bus(NULL, host->buses.start, &operations, &host->sysdata, &resources);
		if (host->root)
			pci_bus_add_devices(host->root);
		pci_unlock_rescan_remove();
		if (!host->root)
			return -ENOMEM;
	}
	return 0;
}

/* No exit: these buses are as permanent as the board. */
module_init(pcibus_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PCI functions that exist in memory only");
