# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernels need the driver's modules, which packages building them needs, and building them by DKMS."""

from ansible_collections.gpufleet.metal.plugins.module_utils import _kernel, _modules, _packages

#: Where a distribution may put a program that building needs.
PROGRAM_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
BUILD_TIMEOUT = 1800


def targets(facts):
    """The kernel releases that must have the modules: the running one, the one that boots next, and every other
    bootable one whose headers are there. A release without headers counts only when the host is sure to meet it.

    :param facts: from :func:`_kernel.read`.
    """
    headers = {kernel["release"]: kernel["headers"] for kernel in facts["installed"]}
    sure = {facts["default"], facts["running"]} & set(headers)
    if len(sure) > 1 and not headers[facts["running"]] and facts["default"] != facts["running"]:
        sure.discard(facts["running"])  # its headers are gone from the archive; the next boot leaves it anyway
    return [release for release in _kernel.bootable(facts) if release in sure or headers.get(release)]


def primary(facts, wanted):
    """The kernel that the installer itself builds for: the running one when it is a target."""
    return facts["running"] if facts["running"] in wanted else (facts["default"] or wanted[0])


def find_program(host, name):
    for folder in PROGRAM_FOLDERS:
        if host.exists("%s/%s" % (folder, name)):
            return "%s/%s" % (folder, name)
    return None


def compiler_program(host, compiler):
    """The program that compiles for a kernel built with ``compiler`` ({family, major}), or None when it is missing.

    A difference in the minor version is none; a difference in the major one breaks the build.
    """
    if not compiler or not compiler["family"] or not compiler["major"]:
        return find_program(host, "gcc") or find_program(host, "cc")
    versioned = "%s-%d" % (compiler["family"], compiler["major"])
    found = find_program(host, versioned)
    if found:
        return found
    # Distributions with one compiler (and no versioned names) ship it under the family's name.
    return None if _packages.manager(host) == "apt" else find_program(host, compiler["family"])


def missing_packages(host, facts, wanted, any_compiler=False):
    """Packages without which no module can be built for the target kernels; sorted list of names.

    Decided by files, not by package names: what is there already, from wherever, is not asked for.

    :param any_compiler: another major version than the kernel's will do, if there is one.
    """
    apt = _packages.manager(host) != "dnf"
    missing = {name for name in ("dkms", "make") if not find_program(host, name)}
    for kernel in facts["installed"]:
        if kernel["release"] not in wanted:
            continue
        if not kernel["headers"]:
            missing.add(("linux-headers-%s" if apt else "kernel-devel-%s") % kernel["release"])
        found = compiler_program(host, kernel["compiler"]) or (any_compiler and compiler_program(host, None))
        if not found:
            compiler = kernel["compiler"] or {}
            family = compiler.get("family") or "gcc"
            major = compiler.get("major")
            missing.add("%s-%d" % (family, major) if apt and major else family)
    return sorted(missing)


def build_environment(host, facts, release):
    """Environment that makes the build use the kernel's own compiler, where the default one differs."""
    for kernel in facts["installed"]:
        if kernel["release"] == release:
            program = compiler_program(host, kernel["compiler"])
            return {"CC": program} if program and not program.endswith(("/gcc", "/cc")) else {}
    return {}


def problems(driver, firmware, version, wanted):
    """What a complete installation of ``version`` still lacks: list of ``(what, before, why)``; [] when complete.

    :param driver: from :func:`_driver_facts.read`.
    :param firmware: list of versions that have a firmware directory.
    """
    found = []
    library = (driver["library"] or {}).get("version")
    if library != version:
        found.append(("user-space libraries", library, "libnvidia-ml.so.%s is not installed" % version))
    registered = {row["kernel"] for row in driver["dkms"] if row["module"] == "nvidia" and row["version"] == version}
    built = {
        row["kernel"]
        for row in driver["dkms"]
        if row["module"] == "nvidia" and row["version"] == version and row["status"] == "installed"
    }
    for release in wanted:
        module = driver["modules"].get(release)
        if release not in built:
            why = "DKMS has %s %s for this kernel" % ("not installed nvidia", version)
            found.append(("module for %s" % release, module, why if registered or module else "no module is built"))
        elif module != version:
            found.append(("module for %s" % release, module, "nvidia.ko of this kernel is %s" % (module or "missing")))
    if version not in firmware:
        found.append(("GPU firmware", ", ".join(firmware) or None, "/lib/firmware/nvidia/%s is missing" % version))
    return found


def flavour_on_disk(host, release):
    """``open`` or ``proprietary`` of the module that this kernel would load, by its license; None without one."""
    license_text = (_modules.info(host, release, "nvidia") or {}).get("license")
    return None if license_text is None else "proprietary" if license_text == "NVIDIA" else "open"


def source(version):
    """What DKMS builds from; without it no module is ever built for a new kernel."""
    return "/var/lib/dkms/nvidia/%s/source/dkms.conf" % version


def only_modules(found):
    """True when nothing but modules for some kernels is missing, so that DKMS alone completes the installation."""
    return bool(found) and all(what.startswith("module for ") for what, _before, _why in found)


def build(host, facts, version, release, ignore_compiler_mismatch=False):
    """Build and install the modules for one kernel; returns the command's Result."""
    argv = ["dkms", "install", "-m", "nvidia", "-v", version, "-k", release]
    env = build_environment(host, facts, release)
    if ignore_compiler_mismatch:
        env["IGNORE_CC_MISMATCH"] = "1"  # what the installer's --no-cc-version-check sets for its own build
    return host.run(argv, timeout=BUILD_TIMEOUT, env=env, changes=True, keeps_lock=True)


def make_log(host, version):
    """The newest build log of this version, as text; "" when there is none."""
    base = "/var/lib/dkms/nvidia/%s" % version
    logs = [base + "/build/make.log"] + host.glob(base + "/*/*/log/make.log")
    stats = [(host.stat(path).st_mtime, path) for path in logs if host.exists(path)]
    return host.read_text(max(stats)[1]) if stats else ""
