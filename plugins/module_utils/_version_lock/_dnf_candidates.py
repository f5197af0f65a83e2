# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of packages that only hosts with rpm know. What is locked besides is in ``_candidates``."""

import re

#: Kernel packages. Those of user space (kernel-headers, kernel-tools) are free to move: nothing is built against them.
KERNEL = re.compile(
    r"kernel(-(rt|64k|uek|uki-virt|lt|ml|longterm|debug))*"
    r"(-(core|modules|modules-(core|extra|internal|partner)|devel|devel-matched))?"
)
#: What dnf is told to refuse with a runfile driver: names and glob(7) patterns. None may be a package's name, a
#: dash and a star ("nvidia-driver-*"): dnf takes what follows the last dash for a version when there is such a package.
REFUSED = (
    # everything that is called libnvidia-, but libnvidia-container* and libnvidia-nscq*
    "libnvidia-[!cn]*",
    "libnvidia-c[!o]*",
    "libnvidia-com*",
    "libnvidia-n[!s]*",
    # kernel modules, from NVIDIA's repository and from others
    "akmod-nvidia*",
    "dkms-nvidia*",
    "kmod-nvidia*",
    "nvidia-kmod*",
    # programs, libraries, and what pulls them in
    "cuda",
    "cuda-demo-suite*",
    "cuda-drivers*",
    "cuda-runtime*",
    "nvidia-driver",
    "nvidia-driver-N*",
    "nvidia-driver-cuda*",
    "nvidia-driver-devel*",
    "nvidia-driver-libs*",
    "nvidia-libXNVCtrl*",
    "nvidia-modprobe*",
    "nvidia-open*",
    "nvidia-persistenced*",
    "nvidia-settings*",
    "nvidia-x11-drv*",
    "nvidia-xconfig*",
    "xorg-x11-drv-nvidia*",
    "xorg-x11-nvidia*",
)
