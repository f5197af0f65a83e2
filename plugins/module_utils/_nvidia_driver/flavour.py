# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernel module flavour the host's GPUs need, and the installer's options for a branch."""

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_version, _gpu_models

#: First branch whose installer has --kernel-module-type. Before it the open modules were chosen by build directory.
MODULE_TYPE_SINCE = 560
#: First branch whose installer has --skip-module-load (and installs beside a driver that is running).
SKIP_LOAD_SINCE = 550
#: First branch where the vendor's own default is the open flavour wherever the GPU can run it.
OPEN_PREFERRED_SINCE = 560


def choose(gpus, version, asked):
    """The flavour to install on a host with these GPUs.

    :param gpus: list of dicts with ``address``, ``device``, ``model`` and ``architecture`` (as :mod:`_pci` answers).
    :param version: wanted driver version, str.
    :param asked: ``auto``, ``open`` or ``proprietary``.
    :returns: ``(flavour, None)``, or ``(None, reason)`` when no flavour of this branch drives all of the GPUs.
    """
    branch = _driver_version.branch(version)
    allowed = {"open", "proprietary"} if branch >= _gpu_models.OPEN_FIRST_BRANCH else {"proprietary"}
    for gpu in gpus:
        rule = _gpu_models.DRIVER_RULES.get(gpu["architecture"])
        if rule is None:
            continue  # a GPU newer than the tables: let the driver itself judge
        label = "%s at %s (%s)" % (gpu["model"] or "the GPU", gpu["address"], gpu["architecture"])
        reason = _unsupported(version, branch, rule, _gpu_models.first_version(gpu["device"]), label)
        if reason:
            return None, "nvidia_driver_version: " + reason
        if not allowed & set(rule["flavours"]):
            return None, (
                "nvidia_driver_version: branch %d has no kernel module flavour that drives all GPUs of this host; %s "
                "needs %s. Use another branch, or GPUs of one kind in a host"
                % (branch, label, " or ".join(rule["flavours"]))
            )
        allowed &= set(rule["flavours"])
    if asked == "auto":
        if len(allowed) == 1:
            return allowed.pop(), None
        return ("open" if branch >= OPEN_PREFERRED_SINCE else "proprietary"), None
    if asked not in allowed:
        architectures = ", ".join(sorted({str(gpu["architecture"]) for gpu in gpus}))
        return None, (
            "nvidia_driver_kernel_module_type: %s modules of branch %d do not drive the GPUs of this host (%s). "
            "Use auto or %s" % (asked, branch, architectures, " or ".join(sorted(allowed)))
        )
    return asked, None


def _unsupported(version, branch, rule, first_version, label):
    """Why this version does not drive the GPU, or None."""
    if first_version and _driver_version.key(version) < _driver_version.key(first_version):
        return "%s is too old for %s. Use %s or newer" % (version, label, first_version)
    if rule["first_branch"] and branch < rule["first_branch"]:
        return "branch %d is too old for %s. Use branch %d or newer" % (branch, label, rule["first_branch"])
    if rule["last_branch"] and branch > rule["last_branch"]:
        return "branch %d no longer supports %s. Use branch %d or older" % (branch, label, rule["last_branch"])
    return None


def can_skip_load(version):
    """True when this version's installer can install without loading the module it built."""
    return _driver_version.branch(version) >= SKIP_LOAD_SINCE


def arguments(
    version, flavour, kernel, running_kernel, tmpdir, driver_stays_loaded=False, ignore_compiler_mismatch=False
):
    """The installer's command line after the runfile's name, in the options that this branch knows.

    ``driver_stays_loaded``: another version is loaded and is left running until the reboot.
    """
    branch = _driver_version.branch(version)
    words = ["--silent", "--ui=none", "--no-opengl-files", "--dkms", "--no-nouveau-check", "--tmpdir=%s" % tmpdir]
    if branch >= MODULE_TYPE_SINCE:
        words.append("--kernel-module-type=%s" % flavour)
    elif flavour == "open":
        words.append("-m=kernel-open")
    if branch >= SKIP_LOAD_SINCE:
        words.append("--skip-module-load")  # the role loads it itself, when nothing else drives the GPUs
    if driver_stays_loaded:
        words.append("--allow-installation-with-running-driver")
    if kernel != running_kernel:
        words.append("--kernel-name=%s" % kernel)
    if ignore_compiler_mismatch:
        words.append("--no-cc-version-check")
    return words
