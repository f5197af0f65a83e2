# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The generated part of each role's README: the table of its variables, from meta/argument_specs.yml.

``python -m tools.role_docs`` rewrites the block between the two markers; the rest of a README is written by hand.
"""

import re
import sys
from pathlib import Path

import yaml

BEGIN = "<!-- generated: variables -->"
END = "<!-- /generated: variables -->"
BLOCK = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
#: Ansible's documentation marks (``C(x)``, ``O(x)``, ``V(x)``, ...): in Markdown each is code.
MARK = re.compile(r"\b(?:C|O|V|RV|E|M|I|B)\(([^()]*(?:\([^()]*\)[^()]*)*)\)")


def variables_table(spec):
    """The Markdown table for one entry point of an argument spec (dict with ``options``)."""
    options = spec.get("options") or {}
    if not options:
        return "The role has no variables."
    lines = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    lines += [_row(name, option) for name, option in options.items()]
    return "\n".join(lines)


def _row(name, option):
    kind = option.get("type", "str")
    if "elements" in option:
        kind = f"{kind} of {option['elements']}"
    description = option.get("description", "")
    text = " ".join([description] if isinstance(description, str) else description)
    if "choices" in option:
        text += " One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + "."
    meaning = _cell(MARK.sub(r"`\1`", text))
    return f"| `{name}` | {kind} | {_default(option)} | {meaning} |"


def _default(option):
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    value = yaml.safe_dump(option["default"], default_flow_style=True, width=10_000).strip().removesuffix("\n...")
    if isinstance(option["default"], str):
        value = option["default"] or '""'
    return f"`{_cell(value)}`"


def _cell(text):
    return " ".join(str(text).split()).replace("|", r"\|")


def updated(readme, spec):
    """``readme`` (str) with its generated block brought up to date.

    :raises ValueError: when it does not hold exactly one block.
    """
    if len(BLOCK.findall(readme)) != 1:
        raise ValueError(f"holds no block '{BEGIN}' ... '{END}', or several")
    block = f"{BEGIN}\n{variables_table(spec)}\n{END}"
    return BLOCK.sub(lambda _match: block, readme)


def main(root=Path()):
    """Bring every README of ``root`` up to date; returns the exit status."""
    status = 0
    for specs in sorted(root.glob("roles/*/meta/argument_specs.yml")):
        readme = specs.parents[1] / "README.md"
        try:
            text = readme.read_text()
            wanted = updated(text, yaml.safe_load(specs.read_text())["argument_specs"]["main"])
        except (OSError, ValueError) as error:
            print(f"{readme}: {error}", file=sys.stderr)
            status = 1
            continue
        if wanted != text:
            readme.write_text(wanted)
            print(f"{readme}: updated")
    return status


if __name__ == "__main__":
    sys.exit(main())
