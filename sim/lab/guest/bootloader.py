# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a simulated host's boot loader does: from grub.cfg and grubenv to the kernel and command line that start."""

import re
from pathlib import Path
from typing import NamedTuple

CONFIG = "boot/grub/grub.cfg"
ENVIRONMENT = "boot/grub/grubenv"
_ENTRY = re.compile(r"^\s*(menuentry|submenu)\s+(['\"])(?P<title>.*?)\2(?P<rest>.*)\{\s*$")
_IDENTIFIER = re.compile(r"(?:\$menuentry_id_option|--id)\s+['\"]?([^'\"\s]+)")


class Entry(NamedTuple):
    """One bootable entry; `names` are all the ways to ask for it (index, title, id, each below its submenu)."""

    names: frozenset
    release: str
    command_line: str


def entries(text):
    """The bootable entries of a grub.cfg, in order."""
    found, parents, counters, stack, names = [], [{""}], [0], [], None
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match:
            identifier = _IDENTIFIER.search(match["rest"])
            own = {str(counters[-1]), match["title"]} | ({identifier[1]} if identifier else set())
            counters[-1] += 1
            names = {f"{parent}>{name}" if parent else name for parent in parents[-1] for name in own}
            stack.append(match[1])
            if match[1] == "submenu":
                parents.append(names)
                counters.append(0)
        elif stack and line.strip() == "}":
            if stack.pop() == "submenu":
                parents.pop()
                counters.pop()
        elif stack and stack[-1] == "menuentry":
            words = line.split()
            if words[:1] == ["linux"] and len(words) > 1:
                release = words[1].rsplit("/vmlinuz-", 1)[-1]
                found.append(Entry(frozenset(names), release, " ".join([f"BOOT_IMAGE={words[1]}", *words[2:]])))
    return found


def environment(text):
    """The variables of a grubenv block."""
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def choose(config, variables):
    """The entry that starts: `next_entry` once, else the default (`saved_entry` where the configuration says so)."""
    known = entries(config)
    if not known:
        return None
    default = [match[1] for match in re.finditer(r'^\s*set default="([^"]*)"', config, re.MULTILINE)][-1:]
    wanted = variables.get("next_entry") or "".join(default)
    if wanted == "${saved_entry}":
        wanted = variables.get("saved_entry", "")
    return next((entry for entry in known if wanted in entry.names), known[0])


def start(root="/"):
    """Choose the entry to start on this host and forget a one-time choice, as the boot loader does."""
    config = Path(root, CONFIG)
    stored = Path(root, ENVIRONMENT)
    block = stored.read_text() if stored.exists() else ""
    entry = choose(config.read_text(), environment(block)) if config.exists() else None
    if "next_entry=" in block:
        kept = "\n".join(line for line in block.splitlines() if not line.startswith(("next_entry=", "####")))
        stored.write_text((kept + "\n").ljust(1024, "#"))
    return entry
