# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for unit tests: a literal file tree and a table of recorded commands.

    host = make_host(
        {"/etc/os-release": "ID=debian\n", "/sys/module/nouveau": Dir(), "/boot/vmlinuz": Link("vmlinuz-6.1")},
        {("systemctl", "is-enabled", "apt-daily.timer"): (0, "enabled\n")},
    )

A command that the table lacks fails the test and says what was asked for. ``host.calls`` lists what was run.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host, Result


@dataclass(frozen=True)
class Link:
    """A symbolic link, with its target as the host sees it: an absolute one means a path in the host's tree."""

    target: str


@dataclass(frozen=True)
class Dir:
    """A directory (parents of files need no entry)."""

    mode: int = 0o755


@dataclass(frozen=True)
class File:
    """A file whose mode matters; a plain str or bytes is one of mode 0644."""

    content: str | bytes = ""
    mode: int = 0o644


class RecordedHost(Host):
    """A :class:`Host` on a temporary tree that answers commands from a table.

    * ``calls``: the argv tuples in the order in which they were run;
    * ``environments``: the ``env`` given to each of them.

    An answer in the table is ``(rc, out)`` or ``(rc, out, err)``, given every time; or a list of those, given one after
    another; or a function of the host that returns one, for a command that changes files.
    """

    def __init__(self, root, files=None, commands=None, clock=None):
        super().__init__(root=str(root), runner=self._answer, **({"clock": clock} if clock else {}))
        self.commands = {tuple(argv): answer for argv, answer in (commands or {}).items()}
        self.calls = []
        self.environments = []
        self.put(files or {})

    def put(self, files):
        """Add entries to the tree, replacing files that are there; see the module's example."""
        for path, entry in files.items():
            real = Path(self.path(path))
            real.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(entry, Dir):
                real.mkdir(exist_ok=True)
                real.chmod(entry.mode)
                continue
            if real.is_symlink() or real.exists():
                real.unlink()
            if isinstance(entry, Link):
                os.symlink(self.path(entry.target) if entry.target.startswith("/") else entry.target, real)
            else:
                file = entry if isinstance(entry, File) else File(entry)
                real.write_bytes(file.content if isinstance(file.content, bytes) else file.content.encode())
                real.chmod(file.mode)
        self.forget()

    def readlink(self, path):
        """As on a real host: an absolute target without the tree's own root."""
        target = super().readlink(path)
        return target.removeprefix(self.root) if target is not None else None

    def tree(self, under="/"):
        """Every file and link below ``under``: dict of host path -> text (a link as :class:`Link`)."""
        found = {}
        for directory, folders, files in os.walk(self.path(under)):
            for name in sorted(files + [folder for folder in folders if Path(directory, folder).is_symlink()]):
                real = Path(directory, name)
                path = "/" + str(real.relative_to(self.root))
                found[path] = Link(self.readlink(path)) if real.is_symlink() else real.read_text(errors="replace")
        return found

    def _answer(self, argv, timeout, env):
        call = tuple(argv)
        self.calls.append(call)
        self.environments.append(env)
        if call not in self.commands:
            known = "\n  ".join(map(repr, self.commands)) or "(none)"
            raise AssertionError(f"a command that the test does not record: {call!r}\nrecorded:\n  {known}")
        answer = self.commands[call]
        if isinstance(answer, list):
            assert answer, f"asked once more than the test records: {call!r}"
            answer = answer.pop(0)
        if callable(answer):
            answer = answer(self)
        return Result(argv, *answer)
