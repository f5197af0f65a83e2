# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services and processes that use the driver, read from unit files, control groups and /proc, never by systemctl."""

import os
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _modules

#: Units that use the driver or configure it. Display managers all install the same alias.
UNITS = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvlsm.service",
    "nvidia-imex.service",
    "nvidia-mig-manager.service",
    "nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path",
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
    "nvidia-gpu-exporter.service",
    "docker.service",
    "containerd.service",
    "crio.service",
    "kubelet.service",
    "slurmd.service",
    "display-manager.service",
)
_CONFIGURED = "/etc/systemd/system/"
_UNIT_FOLDERS = (
    _CONFIGURED,
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
)
_CGROUPS = (
    "/sys/fs/cgroup/system.slice/",
    "/sys/fs/cgroup/systemd/system.slice/",
    "/sys/fs/cgroup/unified/system.slice/",
)
#: Container runtimes name a container's control group after its 64-digit id.
_CONTAINER = re.compile(r"([0-9a-f]{64})")
_DRIVER_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nouveau")


def read(host):
    """Units of :data:`UNITS` that this host has.

    :returns: list of ``{unit, path, enabled, masked, active, pids}``. ``enabled``: something wants it at boot.
        ``active``: it has a control group with processes (a one-shot unit that has finished has none), or None when
        systemd is not running here.
    """
    found = []
    running = host.exists("/run/systemd/system")
    for unit in UNITS:
        path = next((folder + unit for folder in _UNIT_FOLDERS if _present(host, folder + unit)), None)
        if path is None:
            continue
        pids = _pids(host, unit)
        found.append(
            {
                "unit": unit,
                "path": path,
                "enabled": _wanted(host, unit),
                "masked": host.readlink(path) == "/dev/null",
                "active": bool(pids) if running else None,
                "pids": pids,
            }
        )
    return found


def _present(host, path):
    return host.readlink(path) is not None or host.exists(path)


def _wanted(host, unit):
    if unit == "display-manager.service":  # an alias: its being there is what enables it
        return True
    return any(
        host.readlink(folder) is not None
        for kind in ("wants", "requires")
        for folder in host.glob(f"{_CONFIGURED}*.{kind}/{unit}")
    )


def _pids(host, unit):
    for folder in _CGROUPS:
        text = host.read_text(folder + unit + "/cgroup.procs")
        if text:
            return [int(line) for line in text.split()]
    return []


def holders(host):
    """Who holds the driver.

    :returns: ``{modules: {name: {holders, references: int|None}}, processes: [process], hidden_processes: int}``.
        A process is what :func:`process` tells plus ``devices``, the device files that it has open.
        ``hidden_processes`` is the number of processes that could not be looked into (not 0 without root).
    """
    processes, hidden = _device_users(host)
    return {
        "modules": {
            name: {"holders": _modules.holders(host, name), "references": _references(host, name)}
            for name in _DRIVER_MODULES
            if _modules.loaded(host, name)
        },
        "processes": processes,
        "hidden_processes": hidden,
    }


def _references(host, name):
    """A driver built without unload support has no reference count."""
    text = host.read_value(f"/sys/module/{name}/refcnt")
    return int(text) if text and text.lstrip("-").isdigit() else None


def _device_users(host):
    found, hidden = [], 0
    for pid in [int(name) for name in host.listdir("/proc") if name.isdigit()]:
        folder = f"/proc/{pid}/fd"
        names = host.listdir(folder)
        # counted here, instead of one entry a process in the list of what could not be read
        hidden += host.unreadable.pop(folder, None) == os.strerror(13)
        targets = {host.readlink(f"{folder}/{name}") for name in names}
        devices = sorted(target for target in targets if target and target.startswith("/dev/nvidia"))
        if devices:
            found.append(dict(process(host, pid), devices=devices))
    return sorted(found, key=lambda entry: entry["pid"]), hidden


def process(host, pid):
    """``{pid, name, unit, container}`` of a process; None for what it has not (or no more)."""
    groups = host.read_text(f"/proc/{pid}/cgroup") or ""
    container = _CONTAINER.search(groups)
    units = re.findall(r"/([^/\n]+\.(?:service|scope))", groups)
    return {
        "pid": pid,
        "name": host.read_value(f"/proc/{pid}/comm"),
        "unit": units[-1] if units else None,
        "container": container.group(1)[:12] if container else None,
    }
