#!/usr/bin/python3
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's side of a simulated host: builds and changes what lies under /sys, /proc/driver and /dev.

Everything is a plain file under /run/gpufleet-sim/view, written from /etc/gpufleet-sim/machine.json and the state of
the modules (/run/gpufleet-sim/modules.json), and mounted over the real thing by boot.py. The machine that carries the
host is not asked and not touched.
"""

import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

MACHINE = Path("/etc/gpufleet-sim/machine.json")
STATE = Path("/run/gpufleet-sim/modules.json")
VIEW = Path("/run/gpufleet-sim/view")
SYS = VIEW / "sys"
DRIVER = VIEW / "proc-driver"

SPEED = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
SPEED[6] = "64.0 GT/s PCIe"
NVIDIA = "0x10de"
#: Which device nodes belong to which module.
NODES = {"nvidia": r"/dev/nvidia(\d+|ctl)", "nvidia_uvm": "/dev/nvidia-uvm.*", "nvidia_modeset": "/dev/nvidia-modeset"}
#: Which drivers bind to a GPU, and which to an NVSwitch.
DISPLAY_DRIVERS = ("nouveau", "nova_core", "nvidia")
BANNER = {"open": "NVIDIA UNIX Open Kernel Module for x86_64", "proprietary": "NVIDIA UNIX x86_64 Kernel Module"}
#: What /proc/driver/nvidia/params shows when nothing is asked for. Source: a host with driver 580.159.04.
PARAMETERS = {
    "ResmanDebugLevel": "4294967295",
    "RmLogonRC": "1",
    "ModifyDeviceFiles": "1",
    "DeviceFileUID": "0",
    "DeviceFileGID": "0",
    "DeviceFileMode": "438",
    "InitializeSystemMemoryAllocations": "1",
    "UsePageAttributeTable": "4294967295",
    "EnableMSI": "1",
    "EnablePCIeGen3": "0",
    "MemoryPoolSize": "0",
    "KMallocHeapMaxSize": "0",
    "VMallocHeapMaxSize": "0",
    "IgnoreMMIOCheck": "0",
    "EnableStreamMemOPs": "0",
    "EnableUserNUMAManagement": "1",
    "NvLinkDisable": "0",
    "RmProfilingAdminOnly": "1",
    "PreserveVideoMemoryAllocations": "0",
    "EnableS0ixPowerManagement": "0",
    "S0ixPowerManagementVideoMemoryThreshold": "256",
    "DynamicPowerManagement": "3",
    "DynamicPowerManagementVideoMemoryThreshold": "200",
    "RegisterPCIDriver": "1",
    "EnablePCIERelaxedOrderingMode": "0",
    "EnableResizableBar": "0",
    "EnableGpuFirmware": "18",
    "EnableGpuFirmwareLogs": "2",
    "RmNvlinkBandwidthLinkCount": "0",
    "EnableDbgBreakpoint": "0",
    "OpenRmEnableUnsupportedGpus": "1",
    "DmaRemapPeerMmio": "1",
    "ImexChannelCount": "2048",
    "CreateImexChannel0": "0",
    "GrdmaPciTopoCheckOverride": "0",
    "CoherentGPUMemoryMode": '""',
    "RegistryDwords": '""',
    "RegistryDwordsPerDevice": '""',
    "RmMsg": '""',
    "GpuBlacklist": '""',
    "TemporaryFilePath": '""',
    "ExcludedGpus": '""',
}
#: Options whose name in modprobe.d is not the one shown in params.
PARAMETER_NAMES = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
#: Parameters of other modules that the kernel shows under /sys/module/<name>/parameters.
SHOWN = {"nvidia_drm": {"modeset": "N", "fbdev": "Y"}, "nvidia_uvm": {}, "nouveau": {"modeset": "-1"}}


def machine():
    return json.loads(MACHINE.read_text())


def modules():
    """The loaded modules, oldest first: name -> {path, version, options, uses: [name]}."""
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def save(loaded):
    STATE.parent.mkdir(parents=True, exist_ok=True)
    draft = STATE.with_suffix(".new")
    draft.write_text(json.dumps(loaded, indent=1))
    draft.replace(STATE)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path, target):
    """A relative link at `path` to `target`, both inside the view."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    path.symlink_to(os.path.relpath(target, path.parent))


# --- the parts that stay the same until the next boot ------------------------------------------------------------


def build(hardware):
    """Write the parts of the view that no driver changes."""
    for directory in ("bus/pci/devices", "bus/pci/drivers", "module", "class/drm", "class/block", "block", "firmware"):
        (SYS / directory).mkdir(parents=True, exist_ok=True)
    DRIVER.mkdir(parents=True, exist_ok=True)
    write(SYS / "module/module/parameters/sig_enforce", "N\n")
    write(SYS / "kernel/security/lockdown", "[none] integrity confidentiality\n")
    for key, value in hardware.get("dmi", {}).items():
        write(SYS / "devices/virtual/dmi/id" / key, f"{value}\n")
    link(SYS / "class/dmi/id", SYS / "devices/virtual/dmi/id")
    for node in hardware.get("numa_nodes", []):
        write(SYS / f"devices/system/node/node{node['node']}/cpulist", f"{node['cpus']}\n")
    numbers = [str(node["node"]) for node in hardware.get("numa_nodes", [])]
    write(SYS / "devices/system/node/online", ",".join(numbers) + "\n")
    for number, gpu in enumerate(hardware["gpus"]):
        _device(hardware, gpu, gpu.get("iommu_group") if gpu.get("iommu_group") is not None else number + 1)
    for switch in hardware.get("nvswitches", []):
        _device(hardware, {"class": "0x068000", "numa_node": -1, **switch}, None)


def _device(hardware, device, group):
    """One PCI device, its upstream bridge, and the links that lead to both."""
    address = device["pci"]
    upstream = device.get("upstream") or {}
    bridge = upstream.get("pci")
    top = (bridge or address).rsplit(":", 1)[0]
    path = SYS / "devices" / f"pci{top}"
    if bridge:
        path = path / bridge
        if not path.exists():
            maximum = {"max_gen": upstream.get("max_gen"), "max_width": upstream.get("max_width")}
            current = {key: device["link"][key] for key in ("gen", "width")}
            port = {"device_id": "0xc030", "vendor": "0x1000", "class": "0x060400", "numa_node": device["numa_node"]}
            port["acs_control"] = upstream.get("acs_control", 0)
            _attributes(hardware, path, {**port, "pci": bridge, "link": {**maximum, **current}})
    path = path / address
    _attributes(hardware, path, device)
    if group is not None:
        members = SYS / "kernel/iommu_groups" / str(group)
        link(members / "devices" / address, path)
        link(path / "iommu_group", members)


def _attributes(hardware, path, device):
    values = {
        "vendor": device.get("vendor", NVIDIA),
        "device": device["device_id"],
        "subsystem_vendor": device.get("subsystem_vendor", NVIDIA),
        "subsystem_device": device.get("subsystem_device", "0x0000"),
        "class": device["class"],
        "revision": "0xa1",
        "numa_node": str(device["numa_node"]),
        "local_cpulist": _cpus(hardware, device["numa_node"]),
        "enable": "1",
        "driver_override": "(null)",
    }
    port = device.get("link") or {}
    for kind, prefix in (("current", ""), ("max", "max_")):
        if port.get(f"{prefix}gen"):
            values[f"{kind}_link_speed"] = SPEED[port[f"{prefix}gen"]]
            values[f"{kind}_link_width"] = str(port[f"{prefix}width"])
    numeric = ("vendor", "device", "subsystem_vendor", "subsystem_device", "class")
    number = {key: int(values[key], 16) for key in numeric}
    values["modalias"] = (
        f"pci:v{number['vendor']:08X}d{number['device']:08X}sv{number['subsystem_vendor']:08X}"
        f"sd{number['subsystem_device']:08X}bc{number['class'] >> 16:02X}sc{number['class'] >> 8 & 255:02X}"
        f"i{number['class'] & 255:02X}"
    )
    for name, value in values.items():
        write(path / name, f"{value}\n")
    (path / "config").write_bytes(_configuration(number) + _extended_configuration(device.get("acs_control")))
    link(SYS / "bus/pci/devices" / device["pci"], path)
    link(path / "subsystem", SYS / "bus/pci")


def _configuration(number):
    """The first 64 bytes of the PCI configuration space, as lspci reads them (PCI 3.0, section 6.1)."""
    bridge = number["class"] >> 8 == 0x0604
    head = struct.pack(
        "<HHHHBBHBBBB",
        number["vendor"],
        number["device"],
        0x0406,
        0x0010,
        0xA1,
        number["class"] & 255,
        number["class"] >> 8,
        0,
        0,
        1 if bridge else 0,
        0,
    )
    body = bytearray(head.ljust(64, b"\0"))
    if not bridge:
        struct.pack_into("<HH", body, 0x2C, number["subsystem_vendor"], number["subsystem_device"])
    return bytes(body)


def _extended_configuration(acs_control):
    """What follows: nothing, or at 0x100 access control services and their control register (PCIe 6.0, 7.7.11)."""
    if acs_control is None:
        return b""
    capability = struct.pack("<HHHH", 0x000D, 0x0001, 0x007F, acs_control)
    return bytes(0x100 - 64) + capability + bytes(4096 - 0x108)


def _cpus(hardware, node):
    return ",".join(entry["cpus"] for entry in hardware.get("numa_nodes", []) if node in (-1, entry["node"]))


# --- the parts that loading and unloading changes ----------------------------------------------------------------


def gpu_driver(loaded):
    """The module that has the GPUs: the first display driver that was loaded and registered itself."""
    return next((name for name in loaded if name in DISPLAY_DRIVERS and not idle(name, loaded)), None)


def idle(name, loaded):
    """True for a nouveau that was told not to drive anything."""
    return name == "nouveau" and "modeset=0" in loaded[name]["options"]


def holders(name, loaded):
    return [other for other, entry in loaded.items() if name in entry["uses"]]


def users(name):
    """What keeps a module besides other modules: open files on its device nodes; the console that runs on nouveau."""
    if name == "nouveau":
        return int(machine()["nouveau_in_use"] and gpu_driver(modules()) == "nouveau")
    pattern = re.compile(NODES.get(name, "(?!)"))
    count = 0
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        try:
            count += sum(bool(pattern.fullmatch(os.readlink(path))) for path in descriptors.iterdir())
        except OSError:  # the process has ended, or is not ours to look into
            continue
    return count


def refresh():
    """Bring the changing parts of the view in line with the loaded modules."""
    loaded = modules()
    _modules(loaded)
    _bind(loaded)
    _proc(loaded)
    _nodes(loaded)


def _modules(loaded):
    for path in (SYS / "module").iterdir():
        if path.name not in loaded and path.name != "module":
            shutil.rmtree(path)
    for name, entry in loaded.items():
        path = SYS / "module" / name
        # The file stays as it is when a process opens or closes a device: open files are counted when it matters.
        inside = users(name) if name == "nouveau" else 0
        write(path / "refcnt", f"{len(holders(name, loaded)) + inside}\n")
        write(path / "initstate", "live\n")
        write(path / "coresize", "16384\n")
        if entry["version"]:
            write(path / "version", f"{entry['version']}\n")
        shutil.rmtree(path / "holders", ignore_errors=True)
        (path / "holders").mkdir()
        for other in holders(name, loaded):
            link(path / "holders" / other, SYS / "module" / other)
        given = dict(option.split("=", 1) for option in entry["options"] if "=" in option)
        for key, default in SHOWN.get(name, {}).items():
            value = given.get(key, default)
            if default in ("Y", "N"):
                value = {"1": "Y", "0": "N"}.get(value, value)
            write(path / "parameters" / key, f"{value}\n")


def _bind(loaded):
    shutil.rmtree(SYS / "bus/pci/drivers")
    (SYS / "bus/pci/drivers").mkdir()
    for name in loaded:
        if name in DISPLAY_DRIVERS:
            (SYS / "bus/pci/drivers" / name).mkdir()
            link(SYS / "bus/pci/drivers" / name / "module", SYS / "module" / name)
    driver = gpu_driver(loaded)
    for path in (SYS / "bus/pci/devices").iterdir():
        kind = (path / "class").read_text().strip()
        vendor = (path / "vendor").read_text().strip()
        bound = path.resolve() / "driver"
        if bound.is_symlink():
            bound.unlink()
        wanted = None
        if vendor == NVIDIA:
            wanted = driver if kind.startswith("0x03") else "nvidia-nvswitch" if "nvidia" in loaded else None
        if wanted:
            directory = SYS / "bus/pci/drivers" / wanted
            directory.mkdir(exist_ok=True)
            link(directory / path.name, path.resolve())
            link(bound, directory)


def _proc(loaded):
    """/proc/driver/nvidia, as the loaded driver shows it."""
    top = DRIVER / "nvidia"
    shutil.rmtree(top, ignore_errors=True)
    if "nvidia" not in loaded:
        return
    entry = loaded["nvidia"]
    kind = BANNER[entry["flavour"]]
    write(
        top / "version",
        f"NVRM version: {kind}  {entry['version']}  Release Build  (builder@lab)\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
    )
    shown = dict(PARAMETERS)
    for option in entry["options"]:
        key, _, value = option.partition("=")
        key = key[len("NVreg_") :] if key.startswith("NVreg_") else key
        key = PARAMETER_NAMES.get(key, key)
        if key in shown:
            quoted = shown[key].startswith('"')
            shown[key] = '"{}"'.format(value.strip('"')) if quoted else str(int(value, 0))
    write(top / "params", "".join(f"{key}: {value}\n" for key, value in shown.items()))
    write(top / "registry", "")
    for kind in ("config", "monitor"):
        write(
            top / "capabilities/mig" / kind,
            "DeviceFileMinor: {}\nDeviceFileMode: 256\nDeviceFileModify: 1\n".format(1 if kind == "config" else 2),
        )
    for gpu in machine()["gpus"]:
        write(top / "gpus" / gpu["pci"] / "information", _information(gpu, entry))


def _information(gpu, entry):
    rows = [
        ("Model: \t\t", gpu["name"]),
        ("IRQ:   \t\t", 40 + gpu["index"]),
        ("GPU UUID: \t", gpu["uuid"]),
        ("Video BIOS: \t", gpu.get("nvml", {}).get("vbios", "??.??.??.??.??")),
        ("Bus Type: \t", "PCIe"),
        ("DMA Size: \t", "52 bits"),
        ("DMA Mask: \t", "0xfffffffffffff"),
        ("Bus Location: \t", gpu["pci"]),
        ("Device Minor: \t", gpu["minor"]),
        ("GPU Firmware: \t", entry["version"]),
        ("GPU Excluded:\t", "No"),
    ]
    return "".join(f"{label} {value}\n" for label, value in rows)


def _nodes(loaded):
    """The device nodes of the loaded modules: each is the null device under another name."""
    wanted = set()
    if "nvidia" in loaded:
        wanted = {"nvidiactl", *(f"nvidia{gpu['minor']}" for gpu in machine()["gpus"])}
        wanted |= {f"nvidia-nvswitch{number}" for number in range(len(machine().get("nvswitches", [])))}
    if "nvidia_uvm" in loaded:
        wanted |= {"nvidia-uvm", "nvidia-uvm-tools"}
    if "nvidia_modeset" in loaded:
        wanted |= {"nvidia-modeset"}
    present = {path.name for path in Path("/dev").glob("nvidia*")}
    for name in sorted(present - wanted):
        subprocess.run(["umount", "--lazy", f"/dev/{name}"], check=False, capture_output=True)
        os.unlink(f"/dev/{name}")
    for name in sorted(wanted - present):
        Path("/dev", name).touch()
        subprocess.run(["mount", "--bind", "/dev/null", f"/dev/{name}"], check=True)
