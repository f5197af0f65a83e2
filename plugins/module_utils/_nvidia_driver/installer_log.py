# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the installer's and DKMS's logs say, turned into a cause and a remedy."""

import re

#: (key, pattern, cause, remedy); the first pattern that matches wins, so the specific ones come first.
#: The patterns are the messages of nvidia-installer, makeself, DKMS, the compiler, dpkg, the kernel and the fabric
#: manager. A line that also stands in the log of a run that went well must match none of them: "module verification
#: failed" only says that the kernel is tainted, a missing pre-install script of the distribution is normal.
SIGNATURES = (
    (
        "truncated",
        r"Unexpected archive size|Error in (MD5 )?checksums|Existing archive is corrupt|archive is damaged",
        "the runfile is damaged",
        "delete it from /var/lib/gpufleet/runfiles and run the role again; it is fetched anew",
    ),
    (
        "tmp_noexec",
        r"[Tt]emporary directory \S* ?is not executable|--tmpdir option",
        "the temporary directory does not allow programs to run",
        "set nvidia_driver_tmpdir to a directory on a file system that is mounted with exec",
    ),
    (
        "no_space",
        r"No space left on device|not enough (disk )?space",
        "a file system is full",
        "free space on the file systems of nvidia_driver_tmpdir, /usr, /var/lib/dkms and /boot",
    ),
    (
        "fabric_manager_mismatch",
        r"fabric manager NVIDIA GPU driver interface version \S+ don't match with driver version"
        r"|nvidia-nvswitch: Version mismatch, kernel version \S+ user version",
        "the fabric manager and the driver are of different versions",
        "install the fabric manager and libnvidia-nscq in the driver's exact version (the nvidia_driver role does), or "
        "reboot when the wanted driver is installed and not yet loaded",
    ),
    (
        "no_nvswitch",
        r"NV_WARN_NOTHING_TO_DO",
        "this machine shows no NVSwitch to the fabric manager",
        "set nvidia_driver_fabric_manager to auto, which disables it; if there should be NVSwitches, look for them "
        "with lspci -d 10de::0680",
    ),
    (
        "unsigned",
        r"Required key not available|Key was rejected by service|Lockdown: modprobe"
        r"|Loading of module with unavailable key is rejected|not signed by a key that is trusted",
        "the kernel accepts only signed modules and does not know this key",
        "enrol the DKMS key (mokutil --import /var/lib/dkms/mok.pub, reboot, confirm), or switch Secure Boot off",
    ),
    (
        "display_server",
        r"You appear to be running an X server|[Ii]nstalling the NVIDIA driver while X is running",
        "a graphical session is running on this host",
        "stop it (systemctl isolate multi-user.target), or set nvidia_driver_display to stop",
    ),
    (
        "module_loaded",
        r"NVIDIA kernel module '?nvidia[\w-]*'? appears to be already loaded|appears to already be loaded in"
        r"|Unable to load nvidia-modeset\.ko: Device or resource busy|[Dd]river is (already )?in use",
        "another NVIDIA driver is loaded and in use",
        "stop what uses the GPUs, or set nvidia_driver_replace_in_use to true and reboot afterwards",
    ),
    (
        "nouveau",
        r"The Nouveau kernel driver is currently in use|nouveau kernel driver .* in use",
        "nouveau drives the GPUs",
        "run the nouveau role and reboot, or use branch 550 or newer, which installs beside it",
    ),
    (
        "compiler",
        r"Compiler version check failed|unrecognized command[- ]line option|compiler differs from the (one|major)"
        r"|gcc: error: unrecognized|CC version check failed",
        "the compiler is not the one the kernel was built with",
        "install the compiler version of the kernel (see 'gpu_facts', kernel.installed[].compiler)",
    ),
    (
        "no_headers",
        r"Unable to find the kernel source tree|kernel headers for kernel \S+ cannot be found"
        r"|[Kk]ernel (source|headers?) .*(not found|cannot be found)|Unable to determine the path to the kernel source",
        "the headers of the kernel are not installed",
        "install the headers of exactly this kernel, or boot a kernel whose headers are installed",
    ),
    (
        "leftovers",
        r"Unable to open 'kernel[\w-]*/dkms\.conf'|DKMS tree already contains|already added to the DKMS tree",
        "files of an earlier, unfinished installation are in the way",
        "run the role again; it removes the unfinished DKMS entry first",
    ),
    (
        "no_tools",
        r"Unable to find the development tool",
        "a program that the module build needs is missing",
        "leave nvidia_driver_prerequisites true, or install make and the kernel's compiler",
    ),
    (
        "no_dkms",
        r"Failed to find dkms|dkms: (command )?not found",
        "DKMS is not installed",
        "install the package dkms",
    ),
    (
        "firmware_missing",
        r"Direct firmware load for nvidia/\S+ failed|RmFetchGspRmImages: No firmware image found",
        "the GPU's firmware of exactly this driver version is not where the kernel looks for it",
        "run the role again, which installs /lib/firmware/nvidia/<version>; if nvidia is loaded from the initial RAM "
        "disk, keep it out of there, or put the firmware into it too",
    ),
    (
        "invalid_bar",
        r"This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is 0M @ 0x0",
        "the BIOS or the kernel gave a GPU no room in the address space",
        "switch 'Above 4G Decoding' on in the BIOS; if it is, boot with pci=realloc=off (in a virtual machine: give it "
        "enough MMIO space)",
    ),
    (
        "gpu_lost",
        r"GPU has fallen off the bus|Xid \(PCI:[^)]*\): 79,",
        "a GPU no longer answers on the PCI bus",
        "switch the power off and on (a reboot may not do); if it happens again, check seating, power and cables",
    ),
    (
        "device_taken",
        r"The NVIDIA probe routine was not called for \d+ device",
        "another driver holds the GPUs",
        "see which with 'lspci -k -d 10de:': block nouveau (the nouveau role), or take the GPU away from vfio-pci",
    ),
    (
        "wrong_kernel",
        r"disagrees about version of symbol|version magic '[^']*' should be|could not insert '?nvidia[^:]*: "
        r"(Invalid module format|Exec format error)",
        "the modules were built for another kernel, or with another configuration of it",
        "install the headers of exactly the running kernel and run the role again, which builds for every kernel",
    ),
    (
        "api_mismatch",
        r"NVRM: API mismatch: the client has the version|Driver/library version mismatch",
        "the loaded module and the libraries on disk are of different versions",
        "reboot; if it stays, an old module is in /lib/modules or in the initial RAM disk: run the role again, which "
        "compares and rebuilds both",
    ),
    (
        "unsupported_gpu",
        r"You do not appear to have an NVIDIA GPU supported by|not supported by (the )?(open )?(nvidia\.ko|NVIDIA)"
        r"|requires use of the NVIDIA \w+ kernel modules|RmInitAdapter failed"
        r"|does not include the required GPU[^a-z]*System Processor",
        "this driver does not support a GPU of this host",
        "choose another nvidia_driver_version or nvidia_driver_kernel_module_type",
    ),
    (
        "package_conflict",
        r"trying to overwrite '[^']*nvidia[^']*', which is also in package",
        "packages of two flavours of the driver have the same files",
        "purge the packages of the other flavour, all in one command (apt-get purge ...), then 'apt-get -f install'",
    ),
    (
        "prebuilt_modules",
        r"linux-(modules|objects|signatures)-nvidia-\S+ : Depends:",
        "prebuilt modules of the distribution ask for another version of the driver",
        "purge linux-modules-nvidia-*, linux-objects-nvidia-* and linux-signatures-nvidia-*: they are part of a driver "
        "from packages",
    ),
    (
        "alternate_install",
        r"alternate (driver )?installation|installed through .*package manager|appears to have been installed by",
        "a driver from the distribution's packages is installed",
        "remove its packages",
    ),
    (
        "out_of_memory",
        r"Killed signal terminated program|virtual memory exhausted|cc1: out of memory|Out of memory: Killed process",
        "the compiler ran out of memory",
        "free memory, or build with fewer processes: --concurrency-level=2 in nvidia_driver_installer_arguments",
    ),
    (
        "kernel_too_new",
        r"error: implicit declaration of function|has no member named|error: incompatible"
        r"|too (few|many) arguments to function",
        "the driver's source does not build on this kernel",
        "choose a newer nvidia_driver_version, or boot an older kernel",
    ),
    (
        "build_failed",
        r"Bad return status for module build|[Tt]he kernel module failed to build|Error! Build of \S+ failed"
        r"|\*\*\* \[.*\] Error",
        "the kernel module did not build",
        "read the end of make.log below",
    ),
    (
        "load_failed",
        r"Unable to load the kernel module|could not insert '?nvidia",
        "the kernel module was built and does not load",
        "read the kernel log: dmesg | grep -i nvrm",
    ),
    (
        "aborted",
        r"\(Answer: Abort installation\)",
        "the installer asked a question, and answered it itself by giving up",
        "read the question in the log, the line that ends in 'Answer: Abort installation'",
    ),
)

FINISHED = re.compile(r"Installation of the .*\(version:? ([0-9.]+[0-9])\) is now\s+complete", re.DOTALL)


def classify(text):
    """``{key, cause, remedy, line}`` of the first known signature in the log's text, or None."""
    for key, pattern, cause, remedy in SIGNATURES:
        found = re.search(pattern, text)
        if found:
            start = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", found.end())
            return {
                "key": key,
                "cause": cause,
                "remedy": remedy,
                "line": text[start : end if end >= 0 else None].strip(),
            }
    return None


def finished(text):
    """The version that the log says was installed completely, or None."""
    found = None if text is None else FINISHED.search(text)
    return found.group(1) if found else None


def tail(text, lines=15):
    """The last lines of a log, as a list of str."""
    return [line for line in (text or "").splitlines() if line.strip()][-lines:]
