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

#: Seconds between two looks at who uses the GPUs.
IDLE_INTERVAL = 5

#: A host with the older control groups has one line a controller, and the unit stands in one of them.
_UNIT = re.compile(r"/([^/\n]+\.service)(?=/|$)", re.MULTILINE)
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio)-([0-9a-f]{12})[0-9a-f]*\.scope|/docker/([0-9a-f]{12})")


def read(host, unit_of=None):
    """Loaded modules and their users.

    :param unit_of: ``unit_of(process) -> unit|None``: which further units may be stopped (see ``member``).
    :returns: ``{modules: {name: {holders: [names], references: int|None}}, foreign: [names of modules of others],
        processes: [{pid, command, unit, container, stop}]}``. ``references`` None: this kernel offers no unloading;
        ``stop``: the unit that may be stopped and ends this process, None for somebody's work.
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
    processes = _processes(host) if modules else []
    for process in processes:
        process["stop"] = _daemon(process) or (unit_of(process) if unit_of else None)
    return {"modules": modules, "processes": processes, "foreign": foreign}


def _daemon(process):
    """The driver's own daemon that this process belongs to, or None."""
    return next((name for name in DAEMONS if process["unit"] == name + ".service"), None)


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
    """Units to stop, in the order in which they are stopped: what stands on the driver before the driver's own."""
    found = {process["stop"] for process in users["processes"]} - {None}
    return sorted(found - set(DAEMONS)) + [name for name in DAEMONS if name in found]


def holders(users):
    """What keeps the driver loaded, in words; [] when nothing but units that may be stopped does."""
    found = []
    for process in users["processes"]:
        if not process.get("stop"):
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


def wait_until_idle(host, seconds, look):
    """Wait until nobody's work holds the driver, at most ``seconds``; True when it does not.

    :param look: ``look() -> users``, as :func:`read` answers.
    """
    deadline = host.clock() + seconds
    while holders(look()):
        if host.clock() >= deadline:
            return False
        host.run(["sleep", str(IDLE_INTERVAL)], timeout=IDLE_INTERVAL + 10)
        host.forget()
    return True
