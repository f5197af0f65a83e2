# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt's periodic settings: our file is read last, so its word holds whatever the other files say.

Sources: apt.systemd.daily (in the package apt) for APT::Periodic, the README of unattended-upgrades.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

#: Digits and then letters sort after every name that packages and people use; the name has no dot, so apt reads it.
PATH = _apt.CONFIG_PARTS + "/99zz-gpufleet-auto-updates"
#: apt's key -> the value that means "off".
OFF = {
    "APT::Periodic::Enable": "0",
    "APT::Periodic::Update-Package-Lists": "0",
    "APT::Periodic::Download-Upgradeable-Packages": "0",
    "APT::Periodic::Unattended-Upgrade": "0",
    "Unattended-Upgrade::InstallOnShutdown": "false",
    "Unattended-Upgrade::Automatic-Reboot": "false",
}
CONTENT = "".join(
    ["// Managed by gpufleet.metal (role auto_updates): changes made here are overwritten.\n"]
    + ['{} "{}";\n'.format(*setting) for setting in OFF.items()]
)
_FALSE = ("0", "no", "false", "without", "off", "disable")


def read(host):
    """``{file: str|None, effective: {key: {value, source}}}``: our file, and what all files together amount to."""
    settings = _apt.effective_config(host)
    return {
        "file": host.read_text(PATH),
        "effective": {key: dict(zip(("value", "source"), settings.get(key.lower(), (None, None)))) for key in OFF},
    }


def _is_off(key, value):
    return value in _FALSE if OFF[key] == "false" else value == OFF[key]


def _enabling(state):
    """Keys that are not off, as (key, value, source)."""
    return [
        (key, now["value"], now["source"]) for key, now in state["effective"].items() if not _is_off(key, now["value"])
    ]


def assess(state, off, difference):
    if not off:
        if state["file"] is not None:
            difference.add(PATH, "present", "absent", "it overrides the distribution's settings", f"Remove {PATH}")
        return
    for key, value, source in _enabling(state):
        why = "no file sets it" if value is None else f"set by {source}"
        difference.add(key, value, OFF[key], why, f"Set {key} to {OFF[key]} in {PATH}")
    if state["file"] != CONTENT and not _enabling(state):
        before = "absent" if state["file"] is None else "edited"
        difference.add(PATH, before, "present", "other files may be rewritten by a package", f"Write {PATH}")


def conflicts(state):
    """Messages about files that apt reads after ours and that switch updates on again."""
    return [
        f"{source} sets {key} to '{value}' and apt reads it after {PATH}: remove that line"
        for key, value, source in _enabling(state)
        if source == _apt.CONFIG_MAIN or (source or "") > PATH
    ]


def write(host):
    if host.read_text(PATH) != CONTENT:
        host.write(PATH, CONTENT)


def remove(host):
    host.remove(PATH)


def prove(host):
    """Ask apt itself."""
    result = host.run(["apt-config", "dump"], timeout=30)
    if not result.ok:
        raise ConcernError(f"auto_updates: apt does not accept its configuration: {result.summary()}")
    settings: dict = {}
    _apt.parse_config(result.out, "apt-config", settings)
    wrong = [key for key in OFF if not _is_off(key, settings.get(key.lower(), (None, None))[0])]
    if wrong:
        raise ConcernError("auto_updates: apt-config still reports as not off: {}".format(", ".join(wrong)))
