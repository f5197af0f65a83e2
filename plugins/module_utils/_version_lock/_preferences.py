# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our apt preferences file, and the foreign stanzas that apt would believe before it.

Tried with apt 2.6: for one version of one package the first stanza that names the package counts, in the order
/etc/apt/preferences, then preferences.d by name; between versions the higher priority wins; a name without architecture
means the native one. So our file sorts first, pins the installed version above 1000 and refuses every other one.
"""

import fnmatch
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._candidates import REFUSED

MAIN = "/etc/apt/preferences"
PARTS = "/etc/apt/preferences.d"
PATH = PARTS + "/00-gpufleet-version-lock"
#: Above 1000: the version stays even when a repository offers only a lower one (apt_preferences(5)).
PRIORITY = 1001
_PACKAGE = re.compile(r"^Package: (.*)$", re.MULTILINE)
HEADER = "# Managed by gpufleet.metal (role version_lock): changes made here are overwritten.\n"


def render(locked, refuse_drivers):
    """The text of our file.

    :param locked: list of ``{name, version, group}``, ``name`` as apt writes it (``libfoo:i386`` when foreign).
    :param refuse_drivers: whether packages that bring a driver are refused.
    """
    stanzas = [_stanza(row["group"], row["name"], "version " + row["version"], PRIORITY) for row in locked]
    if locked:
        stanzas.append(_stanza("no other version", " ".join(row["name"] for row in locked), "release *", -1))
    if refuse_drivers:
        stanzas.append(_stanza("the driver comes from a runfile", " ".join(REFUSED), "release *", -1))
    return HEADER + "\n".join(stanzas)


def _stanza(explanation, package, pin, priority):
    return f"Explanation: {explanation}\nPackage: {package}\nPin: {pin}\nPin-Priority: {priority}\n"


def without(text, names):
    """Our file's ``text`` with nothing left in it about ``names``; all other stanzas byte for byte."""
    kept = []
    for stanza in text[len(HEADER) :].split("\n\n"):
        package = _PACKAGE.search(stanza)
        left = [name for name in (package.group(1).split() if package else []) if name not in names]
        if left:
            kept.append(stanza.replace(package.group(0), "Package: " + " ".join(left)))
    return HEADER + "\n\n".join(kept)


def repinned(text, versions):
    """Our file's ``text`` with the pins of ``versions`` (name -> version) moved to them; the rest byte for byte."""
    for name, version in versions.items():
        pattern = rf"(?m)^(Package: {re.escape(name)}\nPin: version )\S+$"
        text = re.sub(pattern, lambda match, version=version: match.group(1) + version, text)
    return text


def foreign(host):
    """Stanzas of others that apt reads before ours: list of ``{source, packages: [str], pin, priority}``."""
    found = []
    for path in [MAIN] + [part for part in _apt.parts(host, PARTS, "pref") if part < PATH]:
        text = re.sub(r"(?m)^#.*\n?", "", host.read_text(path) or "")
        for block in re.split(r"\n\s*\n", text):
            fields = {}
            for line in re.sub(r"\n[ \t]+", " ", block).splitlines():
                key, _colon, value = line.partition(":")
                fields[key.strip().lower()] = value.strip()
            if fields.get("package") and fields.get("pin"):
                found.append(
                    {
                        "source": path,
                        "packages": fields["package"].split(),
                        "pin": " ".join(fields["pin"].split()),
                        "priority": fields.get("pin-priority", ""),
                    }
                )
    return found


def conflicts(foreign_stanzas, locked):
    """Locked packages about which an earlier foreign stanza says something else: list of ``{source, name, pin}``.

    ``Package: *`` alone is the general form, which is weaker than any stanza with a name.
    """
    found = []
    for stanza in foreign_stanzas:
        for row in locked:
            names = [pattern for pattern in stanza["packages"] if pattern != "*" and _matches(pattern, row["name"])]
            if names and not _harmless(stanza, row["version"]):
                found.append({"source": stanza["source"], "name": row["name"], "pin": stanza["pin"]})
    return found


def _harmless(stanza, version):
    """True when the stanza keeps our version, too, or only refuses others."""
    kind, _space, pattern = stanza["pin"].partition(" ")
    if kind != "version":
        return False
    priority = _number(stanza["priority"])
    return (pattern == version and priority > 1000) or (priority < 0 and not fnmatch.fnmatchcase(version, pattern))


def _number(text):
    return int(text) if re.fullmatch(r"-?\d+", text) else 0


def _matches(pattern, name):
    if len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            return re.search(pattern[1:-1], name.split(":")[0]) is not None
        except re.error:
            return True  # cannot tell: let apt decide in the proof
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name.split(":")[0], pattern)
