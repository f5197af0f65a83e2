# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What building and loading the modules needs of each kernel that may boot, and of the boot loader."""

from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import finding, wanted

BUILD_TOOLS = ("dkms", "make")


def _builds(facts, desired):
    """True when modules will be built: a driver is wanted, and this host has a GPU for it."""
    return wanted(desired, "nvidia_driver") is not None and bool(facts["own_gpus"])


def _target_kernels(facts):
    return [kernel for kernel in facts["kernel"]["installed"] if kernel["release"] in facts["targets"]]


def _judge(name, facts, packages, evidence, remedy, variable=""):
    """A finding for packages that the driver role would have to install: can it? ``packages`` are names."""
    offered = [facts["missing_packages"].get(package) for package in packages]
    absent = [package for package, answer in zip(packages, offered) if answer is False]
    if absent:
        return finding(name, "fail", "%s; in no repository: %s" % (evidence, ", ".join(absent)), remedy, variable)
    if None in offered:
        return finding(
            name,
            "not_measured",
            "%s; whether a repository has %s is not known" % (evidence, ", ".join(packages)),
            "apt has no package lists yet: the role fetches them and installs what is missing.",
        )
    return finding(name, "pass", "%s; the role installs %s" % (evidence, ", ".join(packages)))


def headers(facts, desired, options):
    """Headers of exactly the kernels that will boot; others build modules that never load (B1, B2)."""
    if not _builds(facts, desired):
        return None
    kernel = facts["kernel"]
    if not facts["targets"]:
        return finding(
            "kernel_headers",
            "fail",
            "running kernel %s; no kernel is installed for which modules can be built" % kernel["running"],
            "Install a kernel package with its headers, and boot it.",
        )
    lacking = [entry["release"] for entry in _target_kernels(facts) if not entry["headers"]]
    ready = [entry["release"] for entry in kernel["installed"] if entry["headers"]]
    if not lacking:
        if kernel["running"] not in facts["targets"]:
            return finding(
                "kernel_headers",
                "warn",
                "%s is running without headers; modules are built for %s"
                % (kernel["running"], ", ".join(facts["targets"])),
                "The driver loads after a reboot into %s." % facts["targets"][0],
            )
        return finding("kernel_headers", "pass", "build/Makefile is there for %s" % ", ".join(facts["targets"]))
    evidence = "no /lib/modules/%s/build/Makefile (a dangling link counts as none); headers on the host: %s" % (
        ", ".join(lacking),
        ", ".join(facts["headers"]) or "none",
    )
    pattern = "linux-headers-%s" if facts["manager"] == "apt" else "kernel-devel-%s"
    remedy = "Install a kernel whose headers are still in the repositories, and reboot into it."
    if ready and ready[0] not in lacking:
        remedy = "Reboot into %s first, whose headers are here, and remove %s." % (ready[0], ", ".join(lacking))
    return _judge("kernel_headers", facts, [pattern % release for release in lacking], evidence, remedy)


def compiler(facts, desired, options):
    """The major version that compiled the kernel; a difference in the minor one is none (B4, B6)."""
    if not _builds(facts, desired):
        return None
    lacking, known = [], []
    for kernel in _target_kernels(facts):
        built_by = kernel["compiler"] or {}
        family, major = built_by.get("family") or "gcc", built_by.get("major")
        package = "%s-%d" % (family, major) if major and facts["manager"] == "apt" else family
        if package in facts["missing_packages"]:
            lacking.append(package)
        if kernel["compiler"]:
            known.append("%s was built by %s" % (kernel["release"], built_by["text"]))
    evidence = "; ".join(known) or "which compiler built the kernels is not recorded (CONFIG_CC_VERSION_TEXT)"
    if not lacking:
        return finding("kernel_compiler", "pass" if known else "not_measured", evidence)
    if wanted(desired, "nvidia_driver")["ignore_compiler_mismatch"]:
        return finding(
            "kernel_compiler",
            "warn",
            evidence,
            "nvidia_driver_ignore_compiler_mismatch is true: the build goes on with another compiler.",
            "nvidia_driver_ignore_compiler_mismatch",
        )
    return _judge(
        "kernel_compiler",
        facts,
        sorted(set(lacking)),
        evidence,
        "Enable the repository that has it, or set nvidia_driver_ignore_compiler_mismatch to true at your own risk.",
        "nvidia_driver_ignore_compiler_mismatch",
    )


def tools(facts, desired, options):
    if not _builds(facts, desired):
        return None
    lacking = [name for name in BUILD_TOOLS if name in facts["missing_packages"]]
    if not lacking:
        return finding("build_tools", "pass", "%s are installed" % " and ".join(BUILD_TOOLS))
    return _judge(
        "build_tools", facts, lacking, "not installed: %s" % ", ".join(lacking), "Enable the repository that has them."
    )


def secure_boot(facts, desired, options):
    """With signatures enforced, a module loads only if the key that signs it is enrolled (B8, B9)."""
    if not _builds(facts, desired):
        return None
    kernel, key = facts["kernel"], facts["key"]
    state = kernel["secure_boot"]
    enforced = state == "enabled" or kernel["sig_enforce"] or kernel["lockdown"] in ("integrity", "confidentiality")
    evidence = "Secure Boot %s (EFI variable), module signatures %s, lockdown %s" % (
        state,
        {True: "enforced", False: "not enforced", None: "unknown"}[kernel["sig_enforce"]],
        kernel["lockdown"] or "unknown",
    )
    if not enforced:
        if state == "unknown":
            return finding(
                "secure_boot",
                "not_measured",
                evidence,
                "Mount efivarfs on /sys/firmware/efi/efivars, or see 'mokutil --sb-state'.",
            )
        return finding("secure_boot", "pass", evidence)
    if key["enrolled"]:
        return finding("secure_boot", "pass", "%s; the key %s is enrolled" % (evidence, key["path"]))
    evidence += "; no key to sign modules" if key["path"] is None else "; the key %s is not enrolled" % key["path"]
    if key["enrolled"] is None:
        evidence = "%s, as far as can be read" % evidence
    if options["secure_boot"] == "allow":
        return finding("secure_boot", "warn", evidence, "The modules will not load until a key is enrolled.")
    return finding(
        "secure_boot",
        "fail",
        evidence,
        "Enroll DKMS's key with 'mokutil --import' and confirm it on the console at the next boot, or switch Secure "
        "Boot off; gpu_preflight_secure_boot: allow goes on regardless.",
        "gpu_preflight_secure_boot",
    )


def boot_loader(facts, desired, options):
    """Only asked for with nouveau_kernel_command_line: is there a boot loader that can be told? (A12)"""
    nouveau = wanted(desired, "nouveau")
    if not nouveau or not nouveau["kernel_command_line"]:
        return None
    boot = facts["boot"]
    if boot["kind"] is None:
        return finding(
            "boot_loader",
            "fail",
            "neither Debian's GRUB (/boot/grub/grub.cfg) nor grubby is here",
            "Set nouveau_kernel_command_line to false: blacklist and initial RAM disks suffice.",
            "nouveau_kernel_command_line",
        )
    if boot["overriding"]:
        return finding(
            "boot_loader",
            "fail",
            "these files replace GRUB_CMDLINE_LINUX after ours: %s" % ", ".join(boot["overriding"]),
            'Make them append: GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ...".',
            "nouveau_kernel_command_line",
        )
    return finding("boot_loader", "pass", "kernel command line through %s" % boot["kind"])


def splash_screen(facts, desired, options):
    """Without nouveau nothing may draw the splash screen that asks for the disk's passphrase (A14)."""
    if not wanted(desired, "nouveau") or not facts["graphical_unlock"]:
        return None
    return finding(
        "splash_screen",
        "warn",
        "/etc/crypttab has entries, plymouth draws the prompt, and no console= is on the kernel command line",
        "Add console=tty0 to the kernel command line, or the prompt may stay black once nouveau is blocked.",
    )


CHECKS = [headers, compiler, tools, secure_boot, boot_loader, splash_screen]
