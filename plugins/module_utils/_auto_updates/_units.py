# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units that change packages: what each must be, and how it was before us.

``disabled`` masks all of them, so that neither a boot nor a package's scripts start them again. ``security`` lets those
work that can be told what to leave alone (:data:`STAYING`) and masks the rest. They are masked whether or not their
package is there.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

DIRECTORY = "/etc/systemd/system"
WANTS = DIRECTORY + "/timers.target.wants"
#: Package manager -> units of its periodic run, timers first.
PERIODIC = {
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
#: What the mode ``security`` leaves on: apt's periodic run, and of dnf4's timers the one that does what its file says.
STAYING = PERIODIC["apt"] + ("dnf-automatic.timer", "dnf-automatic.service")
#: Updates that are prepared in a desktop session or fetched for firmware and then installed at a boot: never wanted.
OTHERS = ("fwupd-refresh.timer", "fwupd-refresh.service", "packagekit-offline-update.service")
#: This one idles until shutdown: its being active does not mean that an update runs.
IDLE_SERVICES = ("unattended-upgrades.service",)
_RUNNING = ("active", "activating", "reloading", "deactivating")


def names(manager):
    """All units that this concern looks at on such a host."""
    return PERIODIC[manager] + OTHERS if manager in PERIODIC else ()


def wanted(name, mode):
    """What a unit must be in ``mode``: ``masked``, ``on`` (a timer: enabled and active) or ``free`` (not masked)."""
    if mode == "security" and name in STAYING:
        return "on" if name.endswith(".timer") else "free"
    return "masked"


def _path(unit):
    return DIRECTORY + "/" + unit


def read(host, manager):
    """unit -> ``{mask: masked|absent|file|link, enabled: str|None, active: bool|None}``.

    ``enabled`` is the target of the timer's link, None when there is none; ``active`` is None where no systemd runs.
    """
    states = _active_states(host, names(manager))
    return {
        unit: {
            "mask": _mask(host, _path(unit)),
            "enabled": host.readlink(WANTS + "/" + unit),
            "active": states.get(unit),
        }
        for unit in names(manager)
    }


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


def assess(units, mode, reloads, difference):
    """Add what keeps the units from being what ``mode`` wants.

    :param reloads: whether systemd may be told to reload its units now (:func:`may_reload`).
    """
    for name, unit in units.items():
        want = wanted(name, mode)
        if want == "masked" and (unit["mask"] != "masked" or unit["active"]):
            why = "it is running now" if unit["active"] else "it can start package updates"
            difference.add(name, _words(unit), "masked, inactive", why, _action(name, unit))
        elif want != "masked" and unit["mask"] == "masked":
            difference.add(name, _words(unit), "not masked", "security updates need it", f"Unmask {name}")
        elif want == "on" and not unit["enabled"]:
            difference.add(name, "disabled", "enabled", "security updates need it", f"Enable and start {name}")
        elif want == "on" and unit["active"] is False and reloads:
            difference.add(name, "inactive", "active", "security updates need it", f"Start {name}")
        elif want == "on" and unit["active"] is False:
            difference.add_pending(name, "the timer starts with the next boot: a reload takes GPUs from containers")


def assess_restored(units, record, difference):
    for name, before in sorted(record["units"].items()):
        now = units.get(name, before)
        if (now["mask"], now["enabled"]) != (before["mask"], before["enabled"]):
            action = f"Put {name} back as it was"
            difference.add(name, _words(now), _words(before), "so it was before this role", action)


def _words(unit):
    activity = {True: "active", False: "inactive", None: "no systemd"}[unit["active"]]
    return ("masked, " if unit["mask"] == "masked" else "not masked, ") + activity


def _action(name, unit):
    verbs = [] if unit["mask"] == "masked" else ["mask"]
    if unit["active"]:
        verbs.append("stop" if name.endswith(".timer") or name in IDLE_SERVICES else "wait for the end of")
    return "{} {}".format(" and ".join(verbs).capitalize(), name)


def conflicts(units, mode):
    """Messages about what somebody else put where a mask must be. Where none must be, it may stay: it is their unit."""
    return [
        "{} is a {} of somebody else's: move it away, so that the unit can be masked".format(_path(name), unit["mask"])
        for name, unit in units.items()
        if unit["mask"] in ("file", "link") and wanted(name, mode) == "masked"
    ]


def active_timers(units, mode):
    """Timers that run and must not."""
    return [
        name
        for name, unit in units.items()
        if unit["active"] and name.endswith(".timer") and wanted(name, mode) == "masked"
    ]


def idle_services(units, mode):
    """Active services that may be stopped. One that does its work is never stopped: it ends by itself."""
    return [
        name
        for name, unit in units.items()
        if unit["active"] and name in IDLE_SERVICES and wanted(name, mode) == "masked"
    ]


def running_updates(host, manager):
    """Reasons to wait: the update services that do their work at this moment."""
    services = [unit for unit in names(manager) if unit.endswith(".service") and unit not in IDLE_SERVICES]
    return [f"{unit} is running" for unit, running in _active_states(host, services).items() if running]


def link(host, units, mode):
    """Write and remove links until masks and enabled timers are what ``mode`` wants; True when one was changed."""
    changed = False
    for name, unit in units.items():
        want = wanted(name, mode)
        if want == "masked" and unit["mask"] == "absent":
            host.symlink("/dev/null", _path(name))
            changed = True
        if want != "masked" and unit["mask"] == "masked":
            host.remove(_path(name))
            changed = True
        if want == "on" and not unit["enabled"]:
            _enable(host, name)
            changed = True
    return changed


def _enable(host, name):
    """By hand: ``systemctl enable`` would reload systemd, which is not always harmless (see :func:`may_reload`)."""
    host.symlink(_unit_file(host, name) or f"/lib/systemd/system/{name}", WANTS + "/" + name)


def _unit_file(host, name):
    for directory in ("/lib/systemd/system", "/usr/lib/systemd/system"):
        if host.exists(f"{directory}/{name}"):
            return f"{directory}/{name}"
    return None


def relink(host, units, record):
    """Put masks and links back as the record has them; True when one was changed."""
    changed = False
    for name, before in record["units"].items():
        now = units.get(name, before)
        if (before["mask"], now["mask"]) == ("absent", "masked"):
            host.remove(_path(name))
        elif (before["mask"], now["mask"]) == ("masked", "absent"):
            host.symlink("/dev/null", _path(name))
        if before["enabled"] and before["enabled"] != now["enabled"]:
            host.symlink(before["enabled"], WANTS + "/" + name)
        elif now["enabled"] and not before["enabled"]:
            host.remove(WANTS + "/" + name)
        changed = changed or (before["mask"], before["enabled"]) != (now["mask"], now["enabled"])
    return changed


def to_start(units, mode):
    """Timers that must run and do not."""
    return [name for name, unit in units.items() if unit["active"] is False and wanted(name, mode) == "on"]


def restart(host, units, record):
    """Start what ran before us and stop what did not; one whose package has gone is not ours to miss."""
    for name, before in sorted(record["units"].items()):
        active = units.get(name, before)["active"]
        if not (name.endswith(".timer") or name in IDLE_SERVICES) or active == before["active"]:
            continue
        if active:
            stop(host, [name])
        elif _unit_file(host, name):
            start(host, [name])


def stop(host, units):
    if units:
        _systemctl(host, ["stop"] + units, timeout=120)


def start(host, units):
    if units:
        _systemctl(host, ["start"] + units, timeout=120)


def may_reload(host):
    """Whether a daemon-reload is possible and harmless.

    It takes the GPUs from running containers when the NVIDIA nodes have no link in /dev/char (systemd then writes the
    device cgroup anew without them). On such a host it is left to the next boot: what matters is off already, because
    the timers are stopped and the links are on disk.
    """
    if not host.exists("/run/systemd/system"):
        return False
    unsafe = host.exists("/sys/module/nvidia") and host.exists("/dev/nvidiactl")
    return host.exists("/dev/char/195:255") or not unsafe


def reload(host):
    """Tell systemd about the links; True when it was told."""
    if not may_reload(host):
        return False
    _systemctl(host, ["daemon-reload"], timeout=90)
    return True


def _systemctl(host, arguments, timeout):
    result = host.run(["systemctl"] + arguments, timeout=timeout, changes=True)
    if not result.ok:
        raise ConcernError(f"auto_updates: {result.summary()}")
