# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages belong together with the driver: what is locked when it is there, and what must never come in.

The lock names packages, never patterns: patterns only choose among the packages that are installed. Names are those of
Debian, of Ubuntu, of EL and of NVIDIA's repositories for them.
"""

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
    r"nvidia-fabric-?manager(-dev(el)?)?(-\d+)?|cuda-drivers-fabricmanager(-\d+)?|libnvidia-nscq(-\d+)?"
    r"|libnvsdm(-dev(el)?)?(-\d+)?|nvlsm|nvidia-imex(-\d+)?"
)
#: Kernel packages, including the meta-packages that pull in the next kernel.
KERNEL = re.compile(
    r"linux-(image|headers|modules|kbuild|compiler-gcc)-.+"
    r"|linux-(generic|virtual|lowlatency|oem|kvm|aws|azure|gcp|oracle|ibm|nvidia)(-.+)?"
)
#: Packages that are a driver, a part of one or pull one in: tells which of the installed packages are the driver set,
#: and in a simulation, which must not come in. ``cuda`` and ``cuda-12-4`` depend on the driver, ``cuda-toolkit-12-4``
#: does not.
DRIVER = re.compile(
    r"cuda(-\d.*)?|cuda-(runtime|demo-suite)-.+|cuda-drivers(-\d+)?"
    r"|nvidia-(driver|driver-(\d|bin|cuda|full|libs|local-repo).*|headless-.+|open(-\d+)?|legacy-.+|tesla-.+)"
    r"|nvidia-(dkms|kernel|open-kernel|firmware)-.+|firmware-nvidia-(gsp|tesla).*"
    r"|linux-(modules|objects|signatures)-nvidia-.+"
    r"|libcuda1.*|libcudadebugger1|libnvcuvid1.*|libnvoptix1.*|lib(egl1?|gl1|glx|gles[12]?)-nvidia.*"
    r"|libnvidia-(?!container|nscq|egl-wayland).+|xserver-xorg-video-nvidia.*|glx-alternative-nvidia"
    r"|nvidia-(alternative|installer-cleanup|support|suspend-common|modprobe|persistenced).*"
    r"|nvidia-(settings|smi|xconfig|cuda-mps).*"
    r"|nvidia-(compute-utils|utils)-.+|nvidia-(egl|vulkan|vdpau|opencl-icd|libopencl1).*"
    # what hosts with rpm have besides
    r"|(a?kmod|dkms)-nvidia(-.+)?|nvidia-(kmod|x11-drv|libXNVCtrl).*|nvidia-driver-(N.+|devel)|xorg-x11-(drv-)?nvidia.*"
)
#: What apt is told to refuse, so that none of them comes in: names and a few glob(7) patterns. In every command apt
#: compares each pattern with every package that it knows (6 patterns: a fifth of a second; 100: four; one regular
#: expression for all: a minute). So patterns stand only for the pieces that every driver of any branch needs; what
#: depends on them is refused through them.
REFUSED = (
    # everything that is called libnvidia-, but libnvidia-container* and libnvidia-nscq*
    "libnvidia-[!cn]*",
    "libnvidia-c[!o]*",
    "libnvidia-com*",
    "libnvidia-n[!s]*",
    # kernel modules with what they need, and firmware
    "nvidia-k*",
    "nvidia-fi*",
    "firmware-nvidia-gsp",
    "nvidia-open-kernel-dkms",
    "nvidia-open-kernel-source",
    "nvidia-open-kernel-support",
    # meta-packages
    "cuda",
    "cuda-drivers",
    "nvidia-driver",
    "nvidia-driver-bin",
    "nvidia-driver-cuda",
    "nvidia-driver-full",
    "nvidia-driver-libs",
    "nvidia-driver-libs-i386",
    "nvidia-open",
    # libraries and programs of the driver under Debian's names, and its glue, which removes what a runfile installed
    "glx-alternative-nvidia",
    "libcuda1",
    "libcuda1-i386",
    "libcudadebugger1",
    "libegl-nvidia0",
    "libgl1-nvidia-glvnd-glx",
    "libgles-nvidia1",
    "libgles-nvidia2",
    "libglx-nvidia0",
    "libnvcuvid1",
    "libnvoptix1",
    "nvidia-alternative",
    "nvidia-cuda-mps",
    "nvidia-egl-common",
    "nvidia-egl-icd",
    "nvidia-installer-cleanup",
    "nvidia-libopencl1",
    "nvidia-modprobe",
    "nvidia-opencl-icd",
    "nvidia-persistenced",
    "nvidia-settings",
    "nvidia-smi",
    "nvidia-support",
    "nvidia-suspend-common",
    "nvidia-vdpau-driver",
    "nvidia-vulkan-common",
    "nvidia-vulkan-icd",
    "nvidia-xconfig",
    "xserver-xorg-video-nvidia",
)


def is_driver(name):
    """True for a package of :data:`DRIVER`; ``name`` may carry ``:arch``."""
    return DRIVER.fullmatch(name.split(":")[0]) is not None


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
