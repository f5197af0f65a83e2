# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's PCI device ids: model, chip, architecture, and which drivers can run them.

Sources (read 2026-12): the PCI ID repository (pci.ids) and the product table of NVIDIA/open-gpu-kernel-modules for
names and chips; NVIDIA's data-center driver release notes and MIG user guide (release 620) for the first versions; its
announcement that branch 580 is the last for Maxwell, Pascal and Volta, and branch 470 the last for Kepler.
"""

VENDOR = "0x10de"

#: device id -> marketing name, for the boards that servers carry.
MODELS = {
    0x15F7: "Tesla P100 PCIe 12GB",
    0x15F8: "Tesla P100 PCIe 16GB",
    0x15F9: "Tesla P100 SXM2 16GB",
    0x1B38: "Tesla P40",
    0x1BB3: "Tesla P4",
    0x1DB1: "Tesla V100 SXM2 16GB",
    0x1DB4: "Tesla V100 PCIe 16GB",
    0x1DB5: "Tesla V100 SXM2 32GB",
    0x1DB6: "Tesla V100 PCIe 32GB",
    0x1DB8: "Tesla V100 SXM3 32GB",
    0x1DF6: "Tesla V100S PCIe 32GB",
    0x1E30: "Quadro RTX 6000/8000",
    0x1EB8: "Tesla T4",
    0x20B0: "A100 SXM4 40GB",
    0x20B1: "A100 PCIe 40GB",
    0x20B2: "A100 SXM4 80GB",
    0x20B3: "A100 SXM 64GB",
    0x20B5: "A100 PCIe 80GB",
    0x20B7: "A30",
    0x20B8: "A100X",
    0x20B9: "A30X",
    0x20F1: "A100 PCIe 40GB",
    0x20F3: "A800 SXM4 80GB",
    0x20F5: "A800 PCIe 80GB",
    0x20F6: "A800 PCIe 40GB",
    0x2230: "RTX A6000",
    0x2231: "RTX A5000",
    0x2233: "RTX A5500",
    0x2235: "A40",
    0x2236: "A10",
    0x2237: "A10G",
    0x2238: "A10M",
    0x24B0: "RTX A4000",
    0x25B6: "A2 / A16",
    0x2321: "H100 NVL",
    0x2322: "H800 PCIe",
    0x2324: "H800",
    0x2329: "H20",
    0x2330: "H100 SXM5 80GB",
    0x2331: "H100 PCIe",
    0x2335: "H200 SXM 141GB",
    0x2336: "H100 SXM5 96GB",
    0x2339: "H100 SXM5 94GB",
    0x233B: "H200 NVL",
    0x2342: "GH200 96GB",
    0x2348: "GH200 144GB",
    0x26B1: "RTX 6000 Ada Generation",
    0x26B2: "RTX 5000 Ada Generation",
    0x26B5: "L40",
    0x26B8: "L40G",
    0x26B9: "L40S",
    0x26BA: "L20",
    0x27B6: "L2",
    0x27B8: "L4",
    0x2901: "B200",
    0x2941: "GB200",
    0x2BB1: "RTX PRO 6000 Blackwell Workstation Edition",
    0x2BB3: "RTX PRO 5000 Blackwell",
    0x2BB4: "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    0x2BB5: "RTX PRO 6000 Blackwell Server Edition",
    0x2E12: "GB10",
    0x3182: "B300",
    0x31C2: "GB300",
}

#: (first id, last id, chip, architecture, first driver version of that chip or None for the architecture's).
CHIPS = (
    (0x0FC0, 0x12FF, "GK10x/GK11x/GK20x", "kepler", None),
    (0x1340, 0x15EF, "GM10x/GM20x", "maxwell", None),
    (0x15F0, 0x15FF, "GP100", "pascal", None),
    (0x1617, 0x17FF, "GM20x", "maxwell", None),
    (0x1B00, 0x1D7F, "GP10x", "pascal", None),
    (0x1D80, 0x1DFF, "GV100", "volta", None),
    (0x1E00, 0x1FFF, "TU10x", "turing", None),
    (0x2080, 0x20FF, "GA100", "ampere", None),
    (0x2180, 0x21FF, "TU116", "turing", None),
    (0x2200, 0x22FF, "GA102", "ampere", "455.23.04"),
    (0x2300, 0x233A, "GH100", "hopper", None),
    (0x233B, 0x237F, "GH100", "hopper", None),
    (0x2400, 0x25FF, "GA10x", "ampere", "455.23.04"),
    (0x2680, 0x28FF, "AD10x", "ada", None),
    (0x2900, 0x29FF, "GB100", "blackwell", "570.133.20"),
    (0x2B80, 0x2D7F, "GB20x", "blackwell", None),
    (0x2D80, 0x2DFF, "GB207", "blackwell", None),
    (0x2E00, 0x2E7F, "GB10", "blackwell", "580.65.06"),
    (0x2F00, 0x2FFF, "GB205", "blackwell", None),
    (0x3180, 0x31FF, "GB110", "blackwell", "580.82.07"),
)

#: architecture -> first and last driver branch (None: still supported) and the kernel-module flavours that run it. The
#: open flavour exists for data-center GPUs from branch 515; Blackwell runs on the open one only.
DRIVER_RULES = {
    "kepler": {"first_branch": 304, "last_branch": 470, "flavours": ("proprietary",)},
    "maxwell": {"first_branch": 346, "last_branch": 580, "flavours": ("proprietary",)},
    "pascal": {"first_branch": 367, "last_branch": 580, "flavours": ("proprietary",)},
    "volta": {"first_branch": 384, "last_branch": 580, "flavours": ("proprietary",)},
    "turing": {"first_branch": 410, "last_branch": None, "flavours": ("proprietary", "open")},
    "ampere": {"first_branch": 450, "last_branch": None, "flavours": ("proprietary", "open")},
    "ada": {"first_branch": 525, "last_branch": None, "flavours": ("proprietary", "open")},
    "hopper": {"first_branch": 525, "last_branch": None, "flavours": ("proprietary", "open")},
    "blackwell": {"first_branch": 570, "last_branch": None, "flavours": ("open",)},
}

#: The first branch that has an open flavour for data-center GPUs.
OPEN_FIRST_BRANCH = 515

#: device id -> first driver version, where a board is younger than its chip.
FIRST_VERSIONS = {
    0x2329: "535.161.07",
    0x2335: "550.90.07",
    0x233B: "550.90.07",
    0x2BB1: "570.124.06",
    0x2BB5: "575.51.03",
    0x2BB3: "575.57.08",
}


def _chip(device):
    number = int(device, 16)
    for first, last, chip, architecture, first_version in CHIPS:
        if first <= number <= last:
            return {"chip": chip, "architecture": architecture, "first_version": first_version}
    return {"chip": None, "architecture": None, "first_version": None}


def model(device):
    """The board's name for a PCI device id such as ``"0x2330"``, or None when it is not in the table."""
    return MODELS.get(int(device, 16))


def architecture(device):
    """The architecture's name in lower case (``"hopper"``), or None when the id lies in no known range."""
    return _chip(device)["architecture"]


def first_version(device):
    """The first driver version known to run this device (str), or None when only its architecture's branch is known."""
    return FIRST_VERSIONS.get(int(device, 16)) or _chip(device)["first_version"]
