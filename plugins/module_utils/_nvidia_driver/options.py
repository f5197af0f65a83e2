# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of ``nvidia_driver`` and what can be said of them without looking at a host."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_version

#: The directory in which the installer works, unless another is named. Nobody else uses it.
TMPDIR = "/var/lib/gpufleet/tmp"
#: The module's argument spec and the schema of the desired document.
OPTIONS = {
    "state": {"type": "str", "choices": ["present", "previous", "absent", "unmanaged"], "default": "present"},
    "version": {"type": "str"},
    "runfile_sha256": {"type": "str"},
    "runfile_checksum": {"type": "str"},
    "kernel_module_type": {"type": "str", "choices": ["auto", "open", "proprietary"], "default": "auto"},
    "installer_arguments": {"type": "list", "elements": "str", "default": []},
    "installer_timeout": {"type": "int", "default": 3600},
    "tmpdir": {"type": "path", "default": TMPDIR},
    "module_parameters": {"type": "dict", "default": {}},
    "persistence": {"type": "bool", "default": True},
    "replace_in_use": {"type": "bool", "default": False},
    "wait_for_idle": {"type": "int", "default": 0},
    "ignore_compiler_mismatch": {"type": "bool", "default": False},
}

#: Installer options that the role itself decides; an extra argument that repeats one would contradict it.
OWN_ARGUMENTS = (
    "--silent",
    "-s",
    "--ui",
    "--no-opengl-files",
    "--dkms",
    "--kernel-module-type",
    "-M",
    "-m",
    "--kernel-module-build-directory",
    "--kernel-name",
    "-k",
    "--tmpdir",
    "--skip-module-load",
    "--uninstall",
)


def validate(desired, invalid):
    """Check the desired document; ``invalid(option, problem, remedy)`` makes the error for the public variable."""
    if desired["state"] == "present":
        _validate_version(desired["version"], invalid)
        _validate_checksum(desired, invalid)
    if desired["wait_for_idle"] < 0:
        raise invalid(
            "wait_for_idle", "%d is no number of seconds" % desired["wait_for_idle"], "Use 0 or a positive one"
        )
    if desired["installer_timeout"] <= 0:
        raise invalid(
            "installer_timeout", "%d is no number of seconds" % desired["installer_timeout"], "Use a positive one"
        )
    if not desired["tmpdir"].startswith("/"):
        raise invalid("tmpdir", "%r is not an absolute path" % desired["tmpdir"], "Name a directory on the host from /")
    for argument in desired["installer_arguments"]:
        if argument.split("=")[0] in OWN_ARGUMENTS:
            raise invalid("installer_arguments", "%s is decided by the role" % argument, "Remove it from the list")
    for name, value in desired["module_parameters"].items():
        if not re.match(r"^NVreg_\w+$", name):
            raise invalid(
                "module_parameters",
                "%r is no parameter of the nvidia module" % name,
                "Its parameters begin with NVreg_; 'modinfo -p nvidia' lists them",
            )
        if isinstance(value, (dict, list)) or re.search(r"\s", str(value)):
            raise invalid("module_parameters", "the value of %s is not a plain word" % name, "Write one without spaces")


def _validate_version(version, invalid):
    if not version:
        raise invalid(
            "version",
            "is not set",
            "Set it to the driver's version, such as 580.65.06, together with nvidia_driver_runfile_sha256; "
            "or set nvidia_driver_state to unmanaged",
        )
    try:
        _driver_version.parse(version)
    except ValueError:
        raise invalid(
            "version",
            "%r is no driver version" % version,
            "Write it in two or three numeric parts, as in the runfile's name: 570.144 or 580.65.06",
        ) from None


def _validate_checksum(desired, invalid):
    sha256, source = desired["runfile_sha256"], desired["runfile_checksum"]
    if sha256 and source:
        raise invalid("runfile_checksum", "stands beside nvidia_driver_runfile_sha256", "Set only one of the two")
    if not sha256 and not source:
        raise invalid(
            "runfile_sha256",
            "is not set",
            "Set it to the runfile's sha256 (64 hexadecimal digits), or name a checksum file or URL in "
            "nvidia_driver_runfile_checksum",
        )
    if sha256 and not re.match(r"^[0-9a-fA-F]{64}$", sha256):
        raise invalid(
            "runfile_sha256",
            "%r is not 64 hexadecimal digits" % sha256,
            "Take it from the vendor's .sha256sum file, or from sha256sum on a runfile you trust",
        )


def parameter_value(value):
    """A module parameter as modprobe.d spells it: booleans are 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)
