# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt's periodic settings: our file is read last, so its word holds whatever the other files say.

Sources: apt.systemd.daily (in the package apt) for APT::Periodic, the README of unattended-upgrades.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt
from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import _unattended
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

#: Digits and then letters sort after every name that packages and people use; the name has no dot, so apt reads it.
PATH = _apt.CONFIG_PARTS + "/99zz-gpufleet-auto-updates"
#: In both modes nothing is installed, and nothing reboots, at a moment that nobody chose.
_NEVER = {"Unattended-Upgrade::InstallOnShutdown": "false", "Unattended-Upgrade::Automatic-Reboot": "false"}
#: Mode (the concern's ``state``) -> apt's keys and the value each must have.
SETTINGS = {
    "disabled": {
        "APT::Periodic::Enable": "0",
        "APT::Periodic::Update-Package-Lists": "0",
        "APT::Periodic::Download-Upgradeable-Packages": "0",
        "APT::Periodic::Unattended-Upgrade": "0",
        **_NEVER,
    },
    "security": {
        "APT::Periodic::Enable": "1",
        "APT::Periodic::Update-Package-Lists": "1",
        "APT::Periodic::Unattended-Upgrade": "1",
        # By default unattended-upgrades also removes: an old kernel is the one to fall back to.
        "Unattended-Upgrade::Remove-Unused-Kernel-Packages": "false",
        "Unattended-Upgrade::Remove-New-Unused-Dependencies": "false",
        "Unattended-Upgrade::Remove-Unused-Dependencies": "false",
        **_NEVER,
    },
}
_FALSE = ("0", "no", "false", "without", "off", "disable")


def content(mode, excluded=()):
    """Our file's text. ``excluded``: the operator's own package names, for ``security``."""
    lines = ["// Managed by gpufleet.metal (role auto_updates): changes made here are overwritten."]
    lines += ['{} "{}";'.format(*setting) for setting in SETTINGS[mode].items()]
    if mode == "security":
        lines += [f'{_unattended.BLACKLIST}:: "{pattern}";' for pattern in _unattended.blacklist(excluded)]
    return "\n".join(lines) + "\n"


def read(host):
    """``{file: str|None, effective: {key: {value, source}}}``: our file, and what all files together amount to."""
    settings = _apt.effective_config(host)
    keys = {key for mode in SETTINGS.values() for key in mode}
    return {
        "file": host.read_text(PATH),
        "effective": {key: dict(zip(("value", "source"), settings.get(key.lower(), (None, None)))) for key in keys},
    }


def _agrees(wanted, value):
    return value in _FALSE if wanted == "false" else value == wanted


def _wrong(state, mode):
    """Keys that have another value, as (key, value, source)."""
    return [
        (key, state["effective"][key]["value"], state["effective"][key]["source"])
        for key, wanted in SETTINGS[mode].items()
        if not _agrees(wanted, state["effective"][key]["value"])
    ]


def assess(state, mode, excluded, difference):
    """``mode``: a key of :data:`SETTINGS`."""
    for key, value, source in _wrong(state, mode):
        wanted = SETTINGS[mode][key]
        why = "no file sets it" if value is None else f"set by {source}"
        difference.add(key, value, wanted, why, f"Set {key} to {wanted} in {PATH}")
    if state["file"] != content(mode, excluded) and not _wrong(state, mode):
        before = "absent" if state["file"] is None else "different"
        difference.add(PATH, before, "present", "other files may be rewritten by a package", f"Write {PATH}")


def assess_restored(state, difference):
    if state["file"] is not None:
        difference.add(PATH, "present", "absent", "it overrides the distribution's settings", f"Remove {PATH}")


def conflicts(state, mode):
    """Messages about files that apt reads after ours and that say something else."""
    return [
        f"{source} sets {key} to '{value}' and apt reads it after {PATH}: remove that line"
        for key, value, source in _wrong(state, mode)
        if source == _apt.CONFIG_MAIN or (source or "") > PATH
    ]


def write(host, mode, excluded):
    if host.read_text(PATH) != content(mode, excluded):
        host.write(PATH, content(mode, excluded))


def remove(host):
    host.remove(PATH)


def prove(host, mode, excluded):
    """Ask apt itself: what it says, in one sentence.

    :raises ConcernError: when a setting is not in force; ``details["proof"]`` tells that it was measured.
    """
    result = host.run(["apt-config", "dump"], timeout=30)
    if not result.ok:
        raise ConcernError(f"auto_updates: apt does not accept its configuration: {result.summary()}")
    settings: dict = {}
    _apt.parse_config(result.out, "apt-config", settings)
    wrong = [key for key, wanted in SETTINGS[mode].items() if not _agrees(wanted, settings.get(key.lower(), [None])[0])]
    if mode == "security":
        wrong += _unattended.missing(result.out, excluded)
    if wrong:
        names = ", ".join(wrong)
        raise ConcernError(f"auto_updates: apt-config still reports another value of: {names}", proof=wrong)
    return f"apt-config: {len(SETTINGS[mode])} settings as wanted"
