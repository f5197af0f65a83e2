# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where this machine gets Debian packages from: the images use the same mirrors."""

import re
from pathlib import Path

DEFAULTS = {"debian": "http://deb.debian.org/debian", "debian-security": "http://deb.debian.org/debian-security"}


def mirrors(etc: Path = Path("/etc/apt")) -> dict[str, str]:
    """The base addresses of the archive and of its security updates, as configured under `etc`, else Debian's own.

    A mirror is recognised by the last part of its path, `debian` or `debian-security`, as Debian's mirrors name it.
    """
    found: dict[str, str] = {}
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        for url in re.findall(r"https?://\S+", "\n".join(lines)):
            archive = url.rstrip("/").rsplit("/", 1)[-1]
            if archive in DEFAULTS:
                found.setdefault(archive, url.rstrip("/"))
    return {**DEFAULTS, **found}


def sources(suite: str, etc: Path = Path("/etc/apt")) -> str:
    """The sources.list of a host of Debian `suite`."""
    base = mirrors(etc)
    return (
        f"deb {base['debian']} {suite} main\n"
        f"deb {base['debian']} {suite}-updates main\n"
        f"deb {base['debian-security']} {suite}-security main\n"
    )
