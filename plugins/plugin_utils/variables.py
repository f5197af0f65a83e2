# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A misspelt variable is silently no variable at all; this finds it before it costs a night."""

import difflib
from collections.abc import Iterable
from pathlib import Path

import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"
#: libyaml's loader where it is there: this runs once a host.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def declared(roles: Path = ROLES) -> dict[str, set[str]]:
    """role -> the public variables that its argument specs declare."""
    found: dict[str, set[str]] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        specs = yaml.load(path.read_bytes(), Loader=LOADER)["argument_specs"]
        found[path.parents[1].name] = {name for spec in specs.values() for name in spec.get("options", {})}
    return found


def unknown(names: Iterable[str], roles: dict[str, set[str]]) -> list[str]:
    """One sentence for every name that carries a role's prefix and is none of its variables.

    :param names: all variable names of a host.
    :param roles: from :func:`declared`.
    """
    problems = []
    prefixes = tuple(f"{role}_" for role in roles)
    for name in sorted(name for name in names if name.startswith(prefixes)):
        role = max((role for role in roles if name.startswith(f"{role}_")), key=len)
        if name not in roles[role]:
            close = difflib.get_close_matches(name, roles[role], n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(roles[role]))}"
            problems.append(f"{name}: role {role} has no such variable; {hint}")
    return problems
