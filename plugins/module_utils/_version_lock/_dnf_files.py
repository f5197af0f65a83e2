# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files in which dnf keeps its locks, as lists of pieces: joined again they are the file, byte for byte.

A **piece** is ``{text: str, name: str|None, version: str|None, ours: bool}``. ``name`` and ``version`` are set when it
locks exactly one version of exactly one package; whatever else somebody wrote is a piece without a version.

dnf4: ``versionlock.list`` of the plugin versionlock, a pattern a line; ``!`` before one excludes what it matches. dnf5:
``/etc/dnf/versionlock.toml``; each ``dnf versionlock add`` writes it anew, without its comments, so that ours are told
by their key ``comment``. Tried with the plugin 4.3.1 and with dnf5 5.4.6: several locks of one name add up.
"""

import fnmatch
import re

from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._dnf_candidates import REFUSED


def without_zero(version):
    """``[epoch:]version-release`` as rows have it: an epoch of 0 is not written."""
    return version[2:] if version.startswith("0:") else version


def with_epoch(version):
    return version if ":" in version else "0:" + version


class List4:
    """Lines of versionlock.list; ours stand between two marks."""

    BEGIN = "# BEGIN gpufleet.metal (role version_lock): changes made here are overwritten.\n"
    END = "# END gpufleet.metal (role version_lock)\n"
    #: What an empty file becomes before the first entry.
    EMPTY = ""
    _EXACT = re.compile(r"^([^!#\s][^\s]*)-(\d+:[^-\s]+-[^-\s]+)\.(?:\*|x86_64|aarch64|noarch)$")

    def pieces(self, text):
        found = []
        inside = False
        for line in text.splitlines(True):
            inside = inside or line == self.BEGIN
            match = self._EXACT.match(line.strip())
            exact = match is not None and not re.search(r"[*?\[]", match.group(1) + match.group(2))
            found.append(
                {
                    "text": line,
                    "name": match.group(1) if exact else None,
                    "version": without_zero(match.group(2)) if exact else None,
                    "ours": inside,
                }
            )
            inside = inside and line != self.END
        return found

    def block(self, rows, refused):
        lines = [self.lock(row["name"], row["version"]) for row in rows]
        return "".join([self.BEGIN] + lines + [f"!{pattern}\n" for pattern in refused] + [self.END])

    def lock(self, name, version, comment=None):
        return f"{name}-{with_epoch(version)}.*\n"

    def refusals(self, text):
        """The patterns of packages that are refused, whoever wrote them."""
        return [line.strip()[1:] for line in text.splitlines() if line.startswith("!")]

    def is_refusal(self, piece):
        """True for what only this role writes."""
        line = piece["text"].strip()
        return line.startswith("!") and line[1:] in REFUSED

    def concerns(self, piece, name, versions):
        """True when a piece without a version may lock ``name`` at more than ``versions``."""
        pattern = piece["text"].strip()
        if not pattern or pattern[0] in "!#":
            return False
        forms = [name] + [f"{name}-{form}" for version in versions for form in (version, with_epoch(version))]
        forms += [form + ".x86_64" for form in forms]
        return any(fnmatch.fnmatchcase(form, pattern) for form in forms) or bool(
            re.match(re.escape(name) + r"-\d", pattern)
        )


class Toml5:
    """Tables ``[[packages]]`` of versionlock.toml."""

    EMPTY = 'version = "1.0"\n'
    COMMENT = "gpufleet.metal, role version_lock: changes made here are overwritten"
    _NAME = re.compile(r'^name\s*=\s*"([^"]*)"\s*$', re.MULTILINE)
    _EQUAL = re.compile(
        r'\[\[packages\.conditions\]\]\s*key\s*=\s*"evr"\s*comparator\s*=\s*"="\s*value\s*=\s*"([^"]*)"\s*\Z'
    )

    def pieces(self, text):
        found = []
        for chunk in re.split(r"(?m)^(?=[ \t]*\[\[packages\]\])", text):
            if not chunk:
                continue
            name, equal = self._NAME.search(chunk), self._EQUAL.search(chunk)
            exact = name is not None and equal is not None and chunk.count("[[packages.conditions]]") == 1
            found.append(
                {
                    "text": chunk,
                    "name": name.group(1) if exact else None,
                    "version": without_zero(equal.group(1)) if exact else None,
                    "ours": f'comment = "{self.COMMENT}"' in chunk,
                }
            )
        return found

    def block(self, rows, refused):
        return "".join(self.lock(row["name"], row["version"], self.COMMENT) for row in rows)

    def lock(self, name, version, comment="locked by dnf versionlock"):
        return (
            f'[[packages]]\nname = "{name}"\ncomment = "{comment}"\n'
            f'[[packages.conditions]]\nkey = "evr"\ncomparator = "="\nvalue = "{version}"\n\n'
        )

    def refusals(self, text):
        return []

    def is_refusal(self, piece):
        return False

    def concerns(self, piece, name, versions):
        found = self._NAME.search(piece["text"])
        return found is not None and found.group(1) == name


def rendered(form, text, rows, refused, ours):
    """The file's text with exactly ``rows`` locked by us: others' pieces as they are, ours after them.

    :param rows: list of rows, or None when no lock of ours is wanted.
    :param ours: names that this role had locked; see :func:`mine`.
    """
    kept = "".join(piece["text"] for piece in others(form, text, ours))
    if rows is None or not (rows or refused):
        return kept
    kept = kept or form.EMPTY
    return kept + ("" if kept.endswith("\n") or not kept else "\n") + form.block(rows, refused)


def others(form, text, ours):
    """The pieces that are not ours."""
    pieces = form.pieces(text)
    return [piece for piece in pieces if piece not in mine(form, pieces, ours)]


def mine(form, pieces, ours):
    """The pieces that are ours: between our marks; where a tool dropped those, what this role would write."""
    marked = [piece for piece in pieces if piece["ours"]]
    if marked:
        return marked
    return [piece for piece in pieces if piece["name"] in ours or form.is_refusal(piece)]


def locked(form, text):
    """What is locked by whomever: set of (name, version)."""
    return {(piece["name"], piece["version"]) for piece in form.pieces(text) if piece["name"]}


def lifted(form, text, names):
    """The text without any lock of ``names``."""
    return "".join(piece["text"] for piece in form.pieces(text) if piece["name"] not in names)


def repinned(form, text, versions):
    """The text with the locks that name one of ``versions`` (name -> list of versions) at those versions, in place."""
    done = set()
    result = []
    for piece in form.pieces(text):
        name = piece["name"]
        if name not in versions:
            result.append(piece["text"])
        elif name not in done:
            done.add(name)
            for version in versions[name]:
                same = version == piece["version"]
                comment = {"comment": Toml5.COMMENT} if piece["ours"] else {}
                result.append(piece["text"] if same else form.lock(name, version, **comment))
    return "".join(result)
