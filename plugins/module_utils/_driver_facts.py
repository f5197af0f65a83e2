# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA driver as the host's files show it: loaded, on disk, in DKMS, in packages; and nouveau beside it."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import (
    _dkms,
    _driver_version,
    _kernel,
    _modules,
    _packages,
)

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
)
LIBRARY = "libnvidia-ml.so"
#: The dynamic loader's cache names libraries in folders of any other distribution; it is binary, its paths are not.
LOADER_CACHE = "/etc/ld.so.cache"
_CACHED = re.compile(rb"\0(/[^\0]+)/libnvidia-ml\.so\.1(?=\0)")
MODPROBE_FOLDERS = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
PROC = "/proc/driver/nvidia/"
#: The runfile leaves one of these; a package does not.
UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")

#: Files that make a package part of a driver; the container toolkit and the fabric manager own none of them. The CUDA
#: toolkit has libraries of the same names in folders of its own: to link against (stubs), for old drivers (compat).
_DRIVER_FILE = re.compile(
    r"^(?!/usr/local/cuda|.*/stubs/).*/(libnvidia-ml\.so|libcuda\.so|nvidia-smi$|nvidia\.ko|src/nvidia[^/]*-\d"
    r"|firmware/nvidia/\d)"
)
#: Meta-packages own no files, and prebuilt modules are linked when they are installed: removing or upgrading them
#: changes the driver all the same.
_META_PACKAGE = re.compile(
    r"(akmod-nvidia|cuda-drivers|nvidia-driver|nvidia-headless|nvidia-open|linux-(modules|objects|signatures)-nvidia)(-|\Z)"
)


def read(host):
    """What is known about the driver without asking it.

    :returns: dict with

        * ``loaded``: ``{version, flavour}`` of the module in the running kernel, or None; ``flavour`` is ``open``,
          ``proprietary`` or None;
        * ``library``: ``{version, path}`` of the libnvidia-ml that programs get, or None; ``libraries``: all of them;
        * ``modules``: installed kernel release -> version of its nvidia module on disk, or None;
        * ``dkms``: the nvidia rows of :func:`_dkms.rows`;
        * ``packages``: names of the packages that belong to a driver; ``provenance``: ``packages``, ``runfile``,
          ``mixed``, ``unknown``, or None without a driver on disk;
        * ``parameters``: ``{asked, in_force}``, name -> value. ``asked`` comes from modprobe.d and the kernel command
          line (``NVreg_X`` -> str), ``in_force`` from the loaded driver (``X`` -> int or str); a parameter of another
          module is ``nvidia_drm.modeset``;
        * ``match``: ``match`` or ``mismatch`` of the loaded module and the library, ``unloaded`` (on disk only),
          ``absent``;
        * ``nouveau``: ``{loaded, builtin}``.
    """
    return host.once("driver", lambda: _read(host))


def _read(host):
    loaded = _loaded(host)
    libraries = _libraries(host)
    modules = {
        kernel["release"]: _modules.installed_version(host, kernel["release"], "nvidia")
        for kernel in _kernel.read(host)["installed"]
    }
    packages = _driver_packages(host)
    library = libraries[0] if libraries else None
    on_disk = bool(library or any(modules.values()))
    return {
        "loaded": loaded,
        "library": library,
        "libraries": libraries,
        "modules": modules,
        "dkms": [row for row in _dkms.rows(host) if row["module"].startswith("nvidia")],
        "packages": packages,
        "provenance": _provenance(host, packages, on_disk),
        "parameters": {"asked": _asked(host), "in_force": _in_force(host)},
        "match": _match(loaded, library, on_disk),
        "nouveau": {"loaded": _modules.loaded(host, "nouveau"), "builtin": _builtin(host, "nouveau")},
    }


def _loaded(host):
    found = _driver_version.parse_proc(host.read_text(PROC + "version"))
    if found:
        return {"version": found["version"], "flavour": found["flavour"]}
    version = _modules.loaded_version(host, "nvidia")
    return {"version": version, "flavour": None} if version else None


def _libraries(host):
    """Every libnvidia-ml.so.<version>; first the one that the loader's name (.so.1) leads to, then newest first."""
    found = []
    chosen = None
    for folder in _library_folders(host):
        for name in host.listdir(folder):
            version = name[len(LIBRARY) + 1 :]
            if name.startswith(LIBRARY + ".") and version == _driver_version.find(version):
                found.append({"version": version, "path": f"{folder}/{name}"})
        target = host.readlink(f"{folder}/{LIBRARY}.1") or ""
        if chosen is None and _driver_version.find(target):
            chosen = target.split("/")[-1]
    found.sort(key=lambda library: _driver_version.key(library["version"]), reverse=True)
    found.sort(key=lambda library: library["path"].split("/")[-1] != chosen)
    return found


def _library_folders(host):
    """The usual folders, then what the loader's cache adds; /lib is /usr/lib where the two are merged."""
    cached = [folder.decode("utf-8", "replace") for folder in _CACHED.findall(host.read_bytes(LOADER_CACHE) or b"")]
    merged = ["/usr" + folder if host.exists("/usr" + folder) else folder for folder in cached]
    return list(dict.fromkeys(LIBRARY_FOLDERS + tuple(merged)))


def _match(loaded, library, on_disk):
    if not loaded:
        return "unloaded" if on_disk else "absent"
    return "match" if library and library["version"] == loaded["version"] else "mismatch"


def _driver_packages(host):
    listings = _packages.files(host, ("nvidia", "cuda", "nvml"))
    return sorted(
        name
        for name, paths in listings.items()
        if _META_PACKAGE.match(name) or any(_DRIVER_FILE.search(path) for path in paths)
    )


def _provenance(host, packages, on_disk):
    runfile = any(host.exists(path) for path in UNINSTALLERS)
    if packages and runfile:
        return "mixed"
    if packages or runfile:
        return "packages" if packages else "runfile"
    return "unknown" if on_disk else None


def _asked(host):
    """Module parameters that the next load will get. A file in an earlier folder hides its namesake in a later one."""
    files = {}
    for folder in MODPROBE_FOLDERS:
        for name in host.listdir(folder):
            if name.endswith(".conf"):
                files.setdefault(name, f"{folder}/{name}")
    asked = {}
    for name in sorted(files):
        for line in (host.read_text(files[name]) or "").replace("\\\n", " ").splitlines():
            words = line.split()
            if len(words) > 2 and words[0] == "options":
                for word in words[2:]:
                    _ask(asked, words[1], word)
    for word in (host.read_value("/proc/cmdline") or "").split():
        module, dot, parameter = word.partition(".")
        if dot:
            _ask(asked, module, parameter)
    return asked


def _ask(asked, module, assignment):
    module = module.replace("-", "_")
    parameter, _equals, value = assignment.partition("=")
    if module == "nvidia":
        asked[parameter] = value.strip('"')
    elif module.startswith("nvidia_"):
        asked[f"{module}.{parameter}"] = value.strip('"')


def _in_force(host):
    found = {}
    for line in (host.read_text(PROC + "params") or "").splitlines():
        name, colon, value = line.partition(":")
        value = value.strip()
        if colon:
            found[name.strip()] = int(value) if re.match(r"-?\d+\Z", value) else value.strip('"')
    for module in ("nvidia_drm", "nvidia_modeset", "nvidia_uvm"):
        folder = f"/sys/module/{module}/parameters"
        for name in host.listdir(folder):
            value = host.read_value(f"{folder}/{name}")
            if value is not None:
                found[f"{module}.{name}"] = value
    return found


def _builtin(host, name):
    """True when the module is compiled into the running kernel, so that no modprobe.d file can keep it out."""
    listing = host.read_text("/lib/modules/{}/modules.builtin".format(_kernel.read(host)["running"])) or ""
    return f"/{name}.ko" in listing
