# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the installer's and DKMS's logs say, turned into a cause and a remedy."""

import re

#: (key, pattern, cause, remedy); the first pattern that matches wins, so the specific ones come first.
#: The patterns are the messages of nvidia-installer, makeself, DKMS, the compiler and the kernel.
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
        r"Required key not available|Key was rejected by service|module verification failed|Lockdown: modprobe"
        r"|Loading of module with unavailable key is rejected|not signed by a key that is trusted",
        "the kernel accepts only signed modules and does not know this key",
        "enrol the DKMS key (mokutil --import /var/lib/dkms/mok.pub, reboot, confirm), or switch Secure Boot off",
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
        "unsupported_gpu",
        r"You do not appear to have an NVIDIA GPU supported by|not supported by (the )?(open )?(nvidia\.ko|NVIDIA)"
        r"|requires use of the NVIDIA \w+ kernel modules|RmInitAdapter failed"
        r"|does not include the required GPU\s+System Processor",
        "this driver does not support a GPU of this host",
        "choose another nvidia_driver_version or nvidia_driver_kernel_module_type",
    ),
    (
        "alternate_install",
        r"alternate (driver )?installation|installed through .*package manager|appears to have been installed by",
        "a driver from the distribution's packages is installed",
        "remove its packages",
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
