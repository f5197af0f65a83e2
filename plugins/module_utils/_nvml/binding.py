# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the NVML binding (the module ``pynvml`` of the package nvidia-ml-py) comes from.

A target needs no pip: the controller sends its own copy's source in the module's arguments, and it is executed from
memory. A copy with the same hash that a role left on the host is preferred, because it is compiled already.
"""

import base64
import ctypes
import hashlib
import importlib.util
import sys
import types
import zlib

STORE = "/var/lib/gpufleet/nvml/"
DEFAULT_LIBRARY = "libnvidia-ml.so.1"
#: Older bindings misread the fabric state (a struct of the wrong size) and ask for an argument that newer ones fill in.
MINIMUM_VERSION = "12.570.86"
NO_BINDING = (
    f"no NVML binding: the controller has no nvidia-ml-py >= {MINIMUM_VERSION} to send and this host's Python has none"
)


class BindingError(Exception):
    """There is no usable binding. The message is the reason for the facts."""


def version_key(text):
    """Sort key of an nvidia-ml-py version such as ``12.570.86``."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def pack(source):
    """The module option that carries a binding: ``{"source": <base64 of the compressed source>}``.

    Nothing else is in it: every value of a no_log option is masked wherever it occurs in the module's answer.
    """
    return {"source": base64.b64encode(zlib.compress(source, 6)).decode("ascii")}


def unpack(option):
    """The source (bytes) in a module option made by :func:`pack`, or None when the controller sent nothing."""
    return zlib.decompress(base64.b64decode(option["source"])) if option and option.get("source") else None


def store(host, option):
    """Leave the controller's binding on the host, compiled, so that later readings start faster.

    Only a role that changes the host anyway may call this.

    :returns: True when the host was changed.
    """
    source = unpack(option)
    if source is None:
        return False
    path = _stored_path(source)
    if host.read_bytes(path) == source:
        return False
    for stale in host.listdir(STORE):
        if stale.endswith(".py"):
            host.remove(STORE + stale)
    host.write(path, source)
    import py_compile

    py_compile.compile(host.path(path), doraise=True)
    return True


def load(host, option, library):
    """The binding as a module, bound to an NVML library that is loaded.

    :param library: what the dynamic loader is asked for: a name, or a path.
    :returns: ``(module, origin)``; ``origin`` is ``store``, ``controller`` or ``host``.
    :raises BindingError: when there is none.
    :raises OSError: when the library cannot be loaded.
    """
    handle = ctypes.CDLL(library)
    source = unpack(option)
    if source is None:
        module, origin = _from_host(), "host"
    elif host.read_bytes(_stored_path(source)) == source:
        module, origin = _from_store(host.path(_stored_path(source))), "store"
    else:
        module, origin = _from_memory(source), "controller"
    module.nvmlLib = handle
    return module, origin


def _stored_path(source):
    return STORE + hashlib.sha256(source).hexdigest() + ".py"


def _from_memory(source):
    module = types.ModuleType("pynvml")
    sys.modules["pynvml"] = module  # its own helpers look themselves up there
    exec(compile(source, "pynvml.py", "exec"), module.__dict__)
    return module


def _from_store(path):
    sys.dont_write_bytecode = True  # a reading changes nothing on the host
    spec = importlib.util.spec_from_file_location("pynvml", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    return module


def _from_host():
    from importlib import metadata

    sys.dont_write_bytecode = True
    try:
        version = metadata.version("nvidia-ml-py")
        if version_key(version) < version_key(MINIMUM_VERSION):
            raise BindingError(f"{NO_BINDING}; the host's own is {version}")
        return importlib.import_module("pynvml")
    except (ImportError, metadata.PackageNotFoundError):
        raise BindingError(NO_BINDING)
