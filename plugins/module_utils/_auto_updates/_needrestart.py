# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""needrestart: it lists, asks nothing, and leaves alone the daemons that running GPU jobs depend on.

Source: the comments of /etc/needrestart/needrestart.conf (package needrestart); the drop-ins are Perl, read in order.
"""

import re

MAIN = "/etc/needrestart/needrestart.conf"
PARTS = "/etc/needrestart/conf.d"
PATH = PARTS + "/zz-gpufleet-auto-updates.conf"

_MODE = re.compile(r"""^\s*\$nrconf\{\s*['"]?restart['"]?\s*\}\s*=\s*['"](\w)['"]""", re.MULTILINE)


def content(protected):
    """The drop-in's text; ``protected``: list of beginnings of unit names that are never restarted."""
    lines = [
        "# Managed by gpufleet.metal (role auto_updates): changes made here are overwritten.",
        "# l: list what needs a restart, restart nothing and ask nothing.",
        "$nrconf{restart} = 'l';",
        "# -1: tell about an old kernel on stderr, without a dialogue.",
        "$nrconf{kernelhints} = -1;",
        "# Not even when somebody asks for automatic restarts: running jobs depend on these.",
    ]
    for name in sorted(set(protected)):
        pattern = re.sub(r"(\W)", r"\\\1", name)  # Perl would expand an '@'
        lines.append("$nrconf{override_rc}->{qr(^" + pattern + ")} = 0;")
    return "\n".join(lines) + "\n"


def read(host):
    """``{file: str|None, mode: {value, source}}``: our drop-in, and the restart mode that all files amount to."""
    mode = {"value": None, "source": None}
    paths = [MAIN] + [PARTS + "/" + name for name in host.listdir(PARTS) if name.endswith(".conf")]
    for path in paths:
        for value in _MODE.findall(host.read_text(path) or ""):
            mode = {"value": value, "source": path}
    return {"file": host.read_text(PATH), "mode": mode}


def assess(state, protected, difference):
    if state["file"] != content(protected):
        before = "absent" if state["file"] is None else "different"
        difference.add(PATH, before, "present", "needrestart would ask, or restart daemons under jobs", f"Write {PATH}")
    elif state["mode"]["value"] != "l":
        why = "set by {}, which is read later than ours".format(state["mode"]["source"])
        difference.add("needrestart mode", state["mode"]["value"], "l", why, "Set needrestart to list only")


def assess_restored(state, difference):
    if state["file"] is not None:
        difference.add(PATH, "present", "absent", "it overrides the distribution's settings", f"Remove {PATH}")


def conflicts(state):
    source = state["mode"]["source"]
    if source is not None and source != MAIN and source > PATH and state["mode"]["value"] != "l":
        return [f"{source} sets needrestart's mode and is read after {PATH}: remove that line"]
    return []


def write(host, protected):
    if host.read_text(PATH) != content(protected):
        host.write(PATH, content(protected))


def remove(host):
    host.remove(PATH)
