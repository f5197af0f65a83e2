# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages belong together with the driver: what is locked when it is there, and what must never come in.

The lock names packages, never patterns: patterns only choose among the packages that are installed. Names are those of
Debian, of Ubuntu and of NVIDIA's repositories for both.
"""

import fnmatch
import re

#: The container toolkit's packages, and those of its predecessors.
TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-runtime",
    "nvidia-docker2",
)
#: Packages that must have the driver's version on machines with NVSwitch or IMEX.
FABRIC = re.compile(
    r"nvidia-fabricmanager(-dev)?(-\d+)?|cuda-drivers-fabricmanager(-\d+)?|libnvidia-nscq(-\d+)?"
    r"|libnvsdm(-dev)?(-\d+)?|nvlsm|nvidia-imex(-\d+)?"
)
#: Kernel packages, including the meta-packages that pull in the next kernel.
KERNEL = re.compile(
    r"linux-(image|headers|modules|kbuild|compiler-gcc)-.+"
    r"|linux-(generic|virtual|lowlatency|oem|kvm|aws|azure|gcp|oracle|ibm|nvidia)(-.+)?"
)
#: apt patterns (glob(7)) of packages that install a driver, a part of one or a tool that removes one. They are refused
#: where the driver comes from a runfile, and on any host they tell which installed packages are parts of a driver.
DRIVER_PATTERNS = (
    # meta-packages (``cuda`` and ``cuda-12-4`` depend on the driver, ``cuda-toolkit-12-4`` does not)
    "cuda",
    "cuda-[0-9]*",
    "cuda-runtime-*",
    "cuda-demo-suite-*",
    "cuda-drivers",
    "cuda-drivers-[0-9]*",
    "nvidia-driver",
    "nvidia-driver-[0-9]*",
    "nvidia-driver-bin",
    "nvidia-driver-cuda",
    "nvidia-driver-full",
    "nvidia-driver-libs*",
    "nvidia-driver-local-repo-*",
    "nvidia-headless-*",
    "nvidia-open",
    "nvidia-open-[0-9]*",
    "nvidia-legacy-*",
    "nvidia-tesla-*",
    # kernel modules and firmware
    "nvidia-dkms-*",
    "nvidia-kernel-*",
    "nvidia-open-kernel-*",
    "nvidia-firmware-*",
    "firmware-nvidia-gsp*",
    "firmware-nvidia-tesla-*",
    "linux-modules-nvidia-*",
    "linux-objects-nvidia-*",
    "linux-signatures-nvidia-*",
    # libraries
    "libcuda1*",
    "libcudadebugger1",
    "libegl-nvidia*",
    "libegl1-nvidia*",
    "libgl1-nvidia*",
    "libgles-nvidia*",
    "libgles1-nvidia*",
    "libgles2-nvidia*",
    "libglx-nvidia*",
    "libnvcuvid1*",
    "libnvoptix1*",
    "libnvidia-allocator*",
    "libnvidia-api*",
    "libnvidia-cbl*",
    "libnvidia-cfg1*",
    "libnvidia-common-*",
    "libnvidia-compiler*",
    "libnvidia-compute-*",
    "libnvidia-decode-*",
    "libnvidia-eglcore*",
    "libnvidia-encode*",
    "libnvidia-extra-*",
    "libnvidia-fatbinaryloader*",
    "libnvidia-fbc1*",
    "libnvidia-gl-*",
    "libnvidia-glcore*",
    "libnvidia-glvkspirv*",
    "libnvidia-gpucomp*",
    "libnvidia-ifr1*",
    "libnvidia-ml1*",
    "libnvidia-ngx1*",
    "libnvidia-nvvm*",
    "libnvidia-opticalflow1*",
    "libnvidia-pkcs11*",
    "libnvidia-present*",
    "libnvidia-ptxjitcompiler*",
    "libnvidia-rtcore*",
    "libnvidia-sandboxutils*",
    "libnvidia-vksc-core*",
    "xserver-xorg-video-nvidia*",
    # programs of the driver, and Debian's glue, which removes what a runfile installed
    "glx-alternative-nvidia",
    "nvidia-alternative*",
    "nvidia-compute-utils-*",
    "nvidia-cuda-mps",
    "nvidia-egl-common",
    "nvidia-egl-icd*",
    "nvidia-installer-cleanup",
    "nvidia-libopencl1*",
    "nvidia-modprobe",
    "nvidia-opencl-icd*",
    "nvidia-persistenced",
    "nvidia-settings*",
    "nvidia-smi*",
    "nvidia-support",
    "nvidia-suspend-common",
    "nvidia-utils-*",
    "nvidia-vdpau-driver*",
    "nvidia-vulkan-common",
    "nvidia-vulkan-icd*",
    "nvidia-xconfig",
)
_DRIVER = re.compile("|".join(fnmatch.translate(pattern) for pattern in DRIVER_PATTERNS))


def is_driver(name):
    """True for a package that :data:`DRIVER_PATTERNS` refuses; ``name`` may carry ``:arch``."""
    return _DRIVER.match(name.split(":")[0]) is not None


def group(name, kernel, extra):
    """Why an installed package is locked: ``toolkit``, ``fabric``, ``driver``, ``kernel``, ``extra``, or None.

    :param kernel: whether the kernel packages are locked, too.
    :param extra: the operator's own package names.
    """
    if name in TOOLKIT:
        return "toolkit"
    if FABRIC.fullmatch(name):
        return "fabric"
    if is_driver(name) or name.startswith("libnvidia-"):
        return "driver"
    if kernel and KERNEL.fullmatch(name):
        return "kernel"
    return "extra" if name in extra else None
