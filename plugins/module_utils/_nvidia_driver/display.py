# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A graphical session as a member of the version set: it has to make room while the driver is replaced (D2, D3).

The vendor's installer gives up beside a running X server, whichever card that draws on, and a compositor holds
nvidia_drm without any of the driver's own device files. Stopping the display manager is what `systemctl isolate
multi-user.target` does to it: it is asked to end and ends its sessions itself; programs that go on are not killed, the
change is refused instead. Sources: nvidia-installer's check of /tmp/.X*-lock, systemd.special(7), systemd.unit(5).
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import boot, build, member

#: The alias that every display manager installs; systemctl takes it for the unit itself.
ALIAS = "display-manager"
LINK = "/etc/systemd/system/%s.service" % ALIAS
#: Names, as /proc/PID/comm has them (15 characters), of X servers and of the compositors that draw themselves.
SERVERS = (
    *("X", "Xorg", "Xorg.bin", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "mutter", "sway", "weston"),
    *("Hyprland", "cosmic-comp", "labwc", "wayfire", "cage", "kmscon"),
)
VARIABLE = "nvidia_driver_display"

_UNIT = re.compile(r"/([^/\n]+\.(?:service|scope))")


class Display(member.Member):
    name = "display"
    independent = (ALIAS,)
    options = {"display": {"type": "str", "choices": ["refuse", "stop"], "default": "refuse"}}

    def read(self, host, desired):
        """What draws on a screen of this host.

        :returns: ``{manager, active, servers}``: the display manager's unit or None, whether it runs (None when that
            cannot be told), and the X servers and compositors as ``{pid, command, unit}``.
        """
        link = host.readlink(LINK)
        return {
            "manager": link.rsplit("/", 1)[1] if link else None,
            "active": boot.active(host, ALIAS + ".service") if link else False,
            "servers": _servers(host),
        }

    def refusals(self, state, desired):
        found = state["members"].get(self.name)
        if not found or not is_due(state, desired):
            return []
        here = describe(found)
        if not here or (desired["display"] == "stop" and found["active"]):
            return []
        if desired["display"] == "stop":
            return ["%s: %s runs without a display manager that could be stopped. End it" % (VARIABLE, here)]
        return [
            "%s: %s. The driver cannot be replaced below it, and nothing was changed. Switch to text mode (systemctl "
            "isolate multi-user.target), or set %s to stop, which stops the display manager for the change and starts "
            "it again" % (VARIABLE, here, VARIABLE)
        ]

    def stops(self, state, desired):
        found = state["members"].get(self.name)
        return [ALIAS] if found and found["active"] and desired["display"] == "stop" else []

    def unit_of(self, process, desired):
        return ALIAS if desired["display"] == "stop" and process["command"] in SERVERS else None


def describe(found):
    """What is there, named: ``the display manager gdm.service; Xorg (pid 2704, unit gdm.service)``; empty: nothing."""
    manager = ["the display manager %s" % found["manager"]] if found["active"] else []
    return "; ".join(manager + ["%(command)s (pid %(pid)d, unit %(unit)s)" % server for server in found["servers"]])


def is_due(state, desired):
    """True when the driver on disk will be replaced. Building for one more kernel disturbs no session."""
    lacking = build.problems(state["driver"], state["firmware"], desired["version"], state["targets"])
    return bool(lacking) and not build.only_modules(lacking)


def _servers(host):
    found = []
    for path in host.glob("/proc/[0-9]*/comm"):
        command = host.read_value(path)
        if command in SERVERS:
            pid = path.split("/")[2]
            units = _UNIT.findall(host.read_text("/proc/%s/cgroup" % pid) or "")
            found.append({"pid": int(pid), "command": command, "unit": units[-1] if units else "unknown"})
    return found
