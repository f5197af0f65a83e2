# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units that update packages: masked, so that neither a boot nor a package's scripts start them again."""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

DIRECTORY = "/etc/systemd/system"
#: Package manager -> units, timers first. They are masked whether or not their package is there yet.
UNITS = {
    "apt": (
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "apt-daily.service",
        "apt-daily-upgrade.service",
        "unattended-upgrades.service",
    ),
    "dnf": (
        "dnf-automatic.timer",
        "dnf-automatic-download.timer",
        "dnf-automatic-install.timer",
        "dnf-automatic-notifyonly.timer",
        "dnf5-automatic.timer",
        "dnf-automatic.service",
        "dnf-automatic-download.service",
        "dnf-automatic-install.service",
        "dnf-automatic-notifyonly.service",
        "dnf5-automatic.service",
    ),
}
#: This one idles until shutdown: its being active does not mean that an update runs.
IDLE_SERVICES = ("unattended-upgrades.service",)
_RUNNING = ("active", "activating", "reloading", "deactivating")


def _path(unit):
    return DIRECTORY + "/" + unit


def read(host, manager):
    """unit -> ``{mask: masked|absent|file|link, active: bool|None}`` (None: no systemd runs here)."""
    units = UNITS.get(manager, ())
    states = _active_states(host, units)
    return {unit: {"mask": _mask(host, _path(unit)), "active": states.get(unit)} for unit in units}


def _mask(host, path):
    target = host.readlink(path)
    if target == "/dev/null":
        return "masked"
    if target is not None:
        return "link"
    found = host.stat(path)
    if found is None:
        return "absent"
    return "file" if found.st_size else "masked"  # to systemd an empty file is a mask, too


def _active_states(host, units):
    if not units or not host.exists("/run/systemd/system"):
        return {}
    result = host.run(["systemctl", "show", "--property=Id,ActiveState"] + list(units), timeout=30)
    if not result.ok:
        host.unreadable["systemd's units"] = result.summary()
        return {}
    states = {}
    for block in result.out.strip().split("\n\n"):
        row = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        states[row.get("Id")] = row.get("ActiveState") in _RUNNING
    return states


def assess(units, off, record, difference):
    for name, unit in units.items():
        if off and (unit["mask"] != "masked" or unit["active"]):
            why = "it is running now" if unit["active"] else "it can start package updates"
            difference.add(name, _words(unit), "masked, inactive", why, _action(name, unit))
        if not off and unit["mask"] == "masked" and name in record["masked"]:
            difference.add(name, "masked", "not masked", "this role had masked it", f"Unmask {name}")


def _words(unit):
    activity = {True: "active", False: "inactive", None: "no systemd"}[unit["active"]]
    return ("masked, " if unit["mask"] == "masked" else "not masked, ") + activity


def _action(name, unit):
    verbs = [] if unit["mask"] == "masked" else ["mask"]
    if unit["active"]:
        verbs.append("stop" if name.endswith(".timer") or name in IDLE_SERVICES else "wait for the end of")
    return "{} {}".format(" and ".join(verbs).capitalize(), name)


def conflicts(units):
    return [
        "{} is a {} of somebody else's: move it away, so that the unit can be masked".format(_path(name), unit["mask"])
        for name, unit in units.items()
        if unit["mask"] in ("file", "link")
    ]


def active_timers(units):
    return [name for name, unit in units.items() if unit["active"] and name.endswith(".timer")]


def idle_services(units):
    """Active services that may be stopped. One that does its work is never stopped: it ends by itself."""
    return [name for name, unit in units.items() if unit["active"] and name in IDLE_SERVICES]


def running_updates(host, manager):
    """Reasons to wait: the update services that do their work at this moment."""
    services = [unit for unit in UNITS.get(manager, ()) if unit.endswith(".service") and unit not in IDLE_SERVICES]
    return [f"{unit} is running" for unit, running in _active_states(host, services).items() if running]


def mask(host, units):
    """Write the links that are missing; True when there was one."""
    missing = [name for name, unit in units.items() if unit["mask"] == "absent"]
    for name in missing:
        host.symlink("/dev/null", _path(name))
    return bool(missing)


def unmask(host, units, record):
    """Remove our links, and only ours; True when there was one."""
    ours = [name for name, unit in units.items() if unit["mask"] == "masked" and name in record["masked"]]
    for name in ours:
        host.remove(_path(name))
    return bool(ours)


def stop(host, names):
    if names:
        _systemctl(host, ["stop"] + names, timeout=120)


def start(host, names):
    """Start the timers and services that ran before; those whose package has gone are not ours to miss."""
    present = [
        name
        for name in names
        if any(host.exists(f"{directory}/{name}") for directory in ("/lib/systemd/system", "/usr/lib/systemd/system"))
    ]
    if present:
        _systemctl(host, ["start"] + present, timeout=120)


def reload(host):
    """Tell systemd about the links; True when it was told.

    A daemon-reload takes the GPUs from running containers when the NVIDIA nodes have no link in /dev/char (systemd
    then writes the device cgroup anew without them). On such a host it is left to the next boot: what
    matters is off already, because the timers are stopped and the links are on disk.
    """
    if not host.exists("/run/systemd/system"):
        return False
    if host.exists("/sys/module/nvidia") and host.exists("/dev/nvidiactl") and not host.exists("/dev/char/195:255"):
        return False
    _systemctl(host, ["daemon-reload"], timeout=90)
    return True


def _systemctl(host, arguments, timeout):
    result = host.run(["systemctl"] + arguments, timeout=timeout, changes=True)
    if not result.ok:
        raise ConcernError(f"auto_updates: {result.summary()}")
