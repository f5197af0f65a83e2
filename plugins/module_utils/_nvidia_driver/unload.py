# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NVIDIA modules are loaded, what holds them, and unloading all of them or none."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _modules

#: The driver's own modules; another one that stands on them (gdrdrv, nvidia_fs) is somebody else's.
MODULES = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia")
#: Daemons of the driver itself. They hold the devices without being anybody's work: stopped to unload, then restored.
DAEMONS = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "dcgm")

_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio)-([0-9a-f]{12})[0-9a-f]*\.scope|/docker/([0-9a-f]{12})")


def read(host):
    """Loaded modules and their users.

    :returns: ``{modules: {name: {holders: [names], references: int|None}}, foreign: [names of modules of others],
        processes: [{pid, command, unit, container}]}``. ``references`` None: this kernel offers no unloading.
    """
    modules = {}
    for name in MODULES:
        if _modules.loaded(host, name):
            count = host.read_value("/sys/module/%s/refcnt" % name)
            modules[name] = {
                "holders": [holder.replace("-", "_") for holder in _modules.holders(host, name)],
                "references": int(count) if count is not None and count.isdigit() else None,
            }
    foreign = sorted({holder for module in modules.values() for holder in module["holders"]} - set(MODULES))
    return {"modules": modules, "processes": _processes(host) if modules else [], "foreign": foreign}


def _processes(host):
    """Processes with an open NVIDIA device file; kernel threads and processes that vanish meanwhile have none."""
    users = {}
    for link in host.glob("/proc/[0-9]*/fd/*"):
        target = host.readlink(link)
        if target and target.startswith("/dev/nvidia"):
            users.setdefault(link.split("/")[2], None)
    return [_process(host, pid) for pid in sorted(users, key=int)]


def _process(host, pid):
    cgroup = host.read_text("/proc/%s/cgroup" % pid) or ""
    unit, container = _UNIT.search(cgroup), _CONTAINER.search(cgroup)
    return {
        "pid": int(pid),
        "command": host.read_value("/proc/%s/comm" % pid) or "?",
        "unit": unit.group(1) if unit else None,
        "container": (container.group(1) or container.group(2)) if container else None,
    }


def daemons(users):
    """Names of the driver's own daemons among the processes, in the order in which they are stopped."""
    units = {process["unit"] for process in users["processes"]}
    return [name for name in DAEMONS if name + ".service" in units]


def holders(users):
    """What keeps the driver loaded, in words; [] when nothing but the driver's own daemons does."""
    own = {name + ".service" for name in DAEMONS}
    found = []
    for process in users["processes"]:
        if process["unit"] not in own:
            place = ", container %s" % process["container"] if process["container"] else ""
            place = ", unit %s" % process["unit"] if not place and process["unit"] else place
            found.append("%s (pid %d%s)" % (process["command"], process["pid"], place))
    return found + ["kernel module %s" % name for name in users["foreign"]]


def obstacles(users):
    """Why the modules cannot be unloaded now; [] when they can (once the driver's own daemons are stopped)."""
    found = holders(users)
    for name, module in sorted(users["modules"].items()):
        if module["references"] is None:
            found.append("this kernel cannot unload %s" % name)
    if not found and not users["processes"]:
        # With nobody's file open, a count above the holders' is a user inside the kernel, such as a console.
        for name, module in sorted(users["modules"].items()):
            if module["references"] > len(module["holders"]):
                found.append("%s is used inside the kernel (%d references)" % (name, module["references"]))
    return found


def order(users):
    """The loaded modules such that each comes before the ones that it stands on."""
    waiting = {name: set(module["holders"]) for name, module in users["modules"].items()}
    ordered = []
    while waiting:
        free = [name for name in MODULES if name in waiting and not waiting[name] & set(waiting)]
        if not free:
            raise ValueError("modules hold each other: %s" % waiting)
        ordered.append(free[0])
        del waiting[free[0]]
    return ordered


def unload(host, users):
    """Unload all modules, or leave all of them loaded.

    :returns: None when they are gone, else why not (and what was unloaded on the way is loaded again).
    """
    gone = []
    for name in order(users):
        answer = host.run(["rmmod", name], timeout=180, changes=True)  # eight GPUs without persistence take long
        if not answer.ok:
            back = [host.run(["modprobe", again], timeout=300, changes=True) for again in reversed(gone)]
            return "; ".join(result.summary() for result in [answer] + back if not result.ok)
        gone.append(name)
    return None
