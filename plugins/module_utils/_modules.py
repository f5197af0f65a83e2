# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules: what is loaded (from sysfs) and what is on disk for a kernel (from the module file itself)."""

import gzip
import lzma
import re

#: Where depmod looks first; a module here wins over one further down.
_FOLDERS = (
    "updates/dkms",
    "updates",
    "extra",
    "extra/*",
    "weak-updates",
    "weak-updates/*",
    "kernel/drivers/video",
    "kernel/drivers/gpu/drm/*",
    "kernel/nvidia*",
    "kernel/nvidia*/*",
    "kernel/extra",
)
_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")
_OPENERS = {".ko": open, ".ko.xz": lzma.open, ".ko.gz": gzip.open}
#: Entries of the .modinfo section are NUL-terminated "key=value"; srcversion= must not pass for version=.
_ENTRY = re.compile(rb"(?<![A-Za-z_])(version|license)=([0-9A-Za-z][0-9A-Za-z .+~/_-]{0,60})(?=\0)")
_CHUNK = 1 << 20
_OVERLAP = 256


def _sys(name):
    return "/sys/module/" + name.replace("-", "_")


def loaded(host, name):
    """True when the module is in the running kernel; None when the host does not show its modules.

    A hidden ``/sys/module`` is empty or cannot be read: that a module is not there tells nothing then.
    """
    return host.exists(_sys(name)) or (False if host.listdir("/sys/module") else None)


def holders(host, name):
    """Names of the loaded modules that use this one. Empty, although one does, for a driver without unload support."""
    return host.listdir(_sys(name) + "/holders")


def loaded_version(host, name):
    """The loaded module's version from sysfs, or None."""
    return host.read_value(_sys(name) + "/version")


def path(host, release, name):
    """The module file that modprobe would take for a kernel, or None."""
    base = f"/lib/modules/{release}/"
    for folder in _FOLDERS:
        for spelling in sorted({name, name.replace("-", "_"), name.replace("_", "-")}):
            for suffix in _SUFFIXES:
                file = base + folder + "/" + spelling + suffix
                found = host.glob(file) if "*" in folder else [file] if host.exists(file) else []
                if found:
                    return found[0]
    return None


def info(host, release, name):
    """``{path, version, license}`` of the module on disk for a kernel, or None when there is none.

    ``version`` and ``license`` are str or None. A zstd-compressed file, which Python before 3.14 cannot read, is read
    through modinfo.
    """

    def look():
        file = path(host, release, name)
        if file is None:
            return None
        if file.endswith(".zst"):
            entries = {field: _ask_modinfo(host, file, field) for field in ("version", "license")}
        else:
            opener = _OPENERS[file[file.index(".ko", file.rindex("/")) :]]
            entries = host.consult(file, lambda real: _entries(opener, real)) or {}
        return {"path": file, "version": entries.get("version"), "license": entries.get("license")}

    return host.once(f"module {release} {name}", look)


def installed_version(host, release, name):
    """The version of the module on disk for a kernel, or None when there is none (or none that can be read)."""
    found = info(host, release, name)
    return found["version"] if found else None


def _ask_modinfo(host, file, field):
    result = host.run(["modinfo", "-F", field, file], timeout=30)
    return result.out.strip() or None if result.ok else None


def _entries(opener, real):
    """Scan a module for its version and license. A damaged compressed file yields what was read up to the damage."""
    found = {}
    tail = b""
    with opener(real, "rb") as stream:
        while len(found) < 2:
            try:
                chunk = stream.read(_CHUNK)
            except (EOFError, lzma.LZMAError, gzip.BadGzipFile):
                break
            if not chunk:
                break
            for key, value in _ENTRY.findall(tail + chunk):
                found.setdefault(key.decode(), value.decode().strip())
            tail = chunk[-_OVERLAP:]
    return found
