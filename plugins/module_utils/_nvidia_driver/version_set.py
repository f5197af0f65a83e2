# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version set: everything that has to be of one version with the driver, resolved before anything is changed.

:func:`resolve` is pure: from the GPUs, the NVSwitches and the driver's version to the parts, the units and the kernel
modules that the machine needs. :func:`offers` asks the package manager what there is, :func:`choose` picks from it.

Sources (read 2026-12): the install scripts of NVIDIA/gpu-driver-container for package names by branch and for what
NVLink 5 needs; the Fabric Manager user guide for the platforms; packages.ubuntu.com for Ubuntu's own names, which keep
the branch in every release; NVIDIA/yum-packaging-fabric-manager for those of rpm.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf, _driver_version, _pci
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import flavour

#: From this branch on NVIDIA's packages are called alike in every branch; before, the branch is part of the name.
UNSUFFIXED_SINCE = 580
NVSDM_SINCE = 570
FABRIC_MANAGER, IMEX = "nvidia-fabricmanager", "nvidia-imex"
#: PCI device ids of GPUs on HGX boards with NVLink 5 (B200, B300). Their NVSwitches are no PCI devices of the host: the
#: fabric manager reaches them through ConnectX functions, with nvlsm.
NVLINK5 = (0x2901, 0x3182)
#: PCI device ids of GPUs in NVL72 racks (GB200, GB300): the fabric manager runs in the rack's switch trays.
RACK = (0x2941, 0x31C2)
#: What nvlsm talks to the switches through (J5).
NVLINK5_MODULES = ("ib_umad", "mlx5_ib")
#: What the vital product data of a ConnectX function say that leads to NVSwitches.
SWITCH_MANAGEMENT = b"SW_MNG"
MELLANOX = "0x15b3"
#: What NVIDIA's repositories for rpm called a package before :data:`UNSUFFIXED_SINCE`.
RPM_NAMES = {FABRIC_MANAGER: "nvidia-fabric-manager"}
APT_LISTS = "/var/lib/apt/lists"


def platform(gpus, nvswitches, bridges=0):
    """The NVLink fabric that the GPUs hang on: ``none``, ``nvswitch``, ``nvlink5`` or ``rack``.

    :param gpus: the GPUs that the host's driver drives, as :mod:`_pci` answers.
    :param nvswitches: as :mod:`_pci` answers; those of a virtual machine do not count.
    :param bridges: how many functions lead to NVSwitches of NVLink 5. It matters for a single GPU only, which may be
        one of eight that was handed to this machine without them.
    """
    devices = [int(gpu["device"], 16) for gpu in gpus if gpu["device"]]
    if any(device in RACK for device in devices):
        return "rack"
    count = sum(device in NVLINK5 for device in devices)
    if count > 1 or (count and bridges):
        return "nvlink5"
    own = [switch for switch in nvswitches if switch["driver"] != _pci.PASSTHROUGH_DRIVER]
    return "nvswitch" if gpus and own else "none"


def resolve(kind, version, architecture, manager):
    """What the fabric of a machine needs beside the driver.

    :param kind: from :func:`platform`.
    :param architecture: ``x86_64`` or ``aarch64``.
    :param manager: ``apt`` or ``dnf``.
    :returns: ``{parts, unit, modules}``. A part is ``{what, names, version}``: package names of which one is enough,
        the first preferred, and the upstream version that it must have exactly, or None for one with numbers of its
        own. ``unit`` is the one that must run, or None.
    """
    if kind == "none":
        return {"parts": [], "unit": None, "modules": ()}
    branch = _driver_version.branch(version)

    def part(what, base):
        return {"what": what, "names": names(base, branch, manager), "version": version}

    if kind == "rack":
        return {"parts": [part("IMEX", IMEX)], "unit": None, "modules": ()}
    parts = [part("fabric manager", FABRIC_MANAGER), part("NVSwitch query library", "libnvidia-nscq")]
    if kind == "nvlink5":
        if branch >= NVSDM_SINCE and architecture == "x86_64":  # there is none for aarch64
            parts.append(part("NVSwitch device monitoring library", "libnvsdm"))
        parts.append({"what": "NVLink subnet manager", "names": ["nvlsm"], "version": None})
        # the fabric manager's start script finds the switches with ibstat
        parts.append({"what": "InfiniBand diagnostics", "names": ["infiniband-diags"], "version": None})
    return {
        "parts": parts,
        "unit": FABRIC_MANAGER + ".service",
        "modules": NVLINK5_MODULES if kind == "nvlink5" else (),
    }


def names(base, branch, manager):
    """The names under which repositories have a package of the set in a branch."""
    suffixed = "%s-%d" % (base, branch)
    if manager == "dnf":
        return [base] if branch >= UNSUFFIXED_SINCE else [RPM_NAMES.get(base, base), suffixed]
    return [base, suffixed] if branch >= UNSUFFIXED_SINCE else [suffixed]


def upstream(version):
    """The upstream part of a package's version: ``580.95.05`` of ``580.95.05-0ubuntu1`` or ``3:580.95.05-1``."""
    return re.sub(r"^\d+:", "", version).split("-")[0].split("~")[0]


def fits(part, version):
    """True when a package of this version is what the part asks for: the whole version, not the branch alone (J1)."""
    return part["version"] is None or upstream(version) == part["version"]


def choose(part, offered):
    """``(name, version)`` of the first offer that fits, or None.

    :param offered: from :func:`offers`.
    """
    for name in part["names"]:
        for version in offered.get(name, []):
            if fits(part, version):
                return name, version
    return None


def listed(host):
    """True when apt has package lists on this host (an image builder may have cleared them)."""
    return any(name.endswith("_Packages") for name in host.listdir(APT_LISTS))


def offers(host, manager, packages):
    """What the repositories have: name -> full versions, newest first; None when that is not known on this host."""
    if manager == "apt" and listed(host):
        text = host.run(["apt-cache", "madison"] + packages, timeout=60).out
        rows = [[field.strip() for field in line.split("|")] for line in text.splitlines()]
        rows = [row[:2] for row in rows if len(row) == 3]
    elif manager == "dnf":
        argv = [_dnf.command(host), "--quiet", "repoquery", "--queryformat", "%{name} %{version}-%{release}\n"]
        answer = host.run(argv + packages, timeout=300)
        if not answer.ok:
            return None
        rows = [line.split() for line in reversed(answer.out.splitlines()) if len(line.split()) == 2]
    else:
        return None
    offered: dict = {name: [] for name in packages}
    for name, version in rows:
        if name in offered and version not in offered[name]:
            offered[name].append(version)
    return offered


def management_bridges(host):
    """How many ConnectX functions of this host lead to NVSwitches; their data are slow to read."""
    count = 0
    for address in host.listdir(_pci.DEVICES):
        if host.read_value(_pci.DEVICES + address + "/vendor") == MELLANOX:
            count += SWITCH_MANAGEMENT in (host.read_bytes(_pci.DEVICES + address + "/vpd") or b"")
    return count


def machine_platform(host, gpus):
    """:func:`platform` of this host, whose driver drives ``gpus``."""
    single = len(gpus) == 1 and gpus[0]["device"] and int(gpus[0]["device"], 16) in NVLINK5
    return platform(gpus, _pci.read(host)["nvswitches"], management_bridges(host) if single else 0)


def described(driver, gpus, state):
    """The one resolved object, for reports: what this host gets, each with its version.

    :param driver: the desired document of ``nvidia_driver``.
    :param state: of the fabric, from :meth:`fabric.Fabric.read`.
    """
    return {
        "driver": driver["version"],
        "flavour": flavour.choose(gpus, driver["version"], driver["kernel_module_type"])[0],
        "persistence_daemon": driver["version"] if driver["persistence"] else None,
        "platform": state["platform"],
        "packages": [
            {"what": part["what"], "name": found[0], "version": found[1]}
            for part in state["parts"]
            for found in [part["installed"] if part["fits"] else part["offer"]]
            if found
        ],
        "unit": state["unit"],
        "modules": list(state["modules"]),
    }
