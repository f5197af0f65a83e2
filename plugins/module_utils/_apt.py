# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt is told on this host, read from its files, and the courtesy of waiting for a running dpkg.

Sources: apt.conf(5) for the order of the files and their syntax; apt_preferences(5) for the names of the parts.
"""

import os
import re
import time

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

CONFIG_PARTS = "/etc/apt/apt.conf.d"
CONFIG_MAIN = "/etc/apt/apt.conf"
#: Locks of dpkg and apt, taken with fcntl(2) and therefore listed in /proc/locks.
LOCK_FILES = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
#: How often a waiting run looks again, in seconds.
POLL_SECONDS = 2

_PART_NAME = re.compile(r"^[A-Za-z0-9_.-]+$")
_TOKEN = re.compile(r'"[^"]*"|[{};]|[^\s{};"]+')


def parts(host, directory, extension):
    """The files of a ``.d`` directory that apt reads, in apt's order: valid names, no extension or ``extension``."""
    return [
        directory + "/" + name
        for name in host.listdir(directory)
        if _PART_NAME.match(name) and not name.startswith(".") and os.path.splitext(name)[1] in ("", "." + extension)
    ]


def effective_config(host):
    """apt's configuration as its files make it.

    :returns: dict of lower-case key (``apt::periodic::enable``) -> ``(value, the file that had the last word)``.
    """
    settings: dict = {}
    for path in parts(host, CONFIG_PARTS, "conf") + [CONFIG_MAIN]:
        text = host.read_text(path)
        if text is not None:
            parse_config(text, path, settings)
    return settings


def parse_config(text, source, settings):
    """Read one apt.conf text into ``settings`` (see :func:`effective_config`). Lists are skipped, later keys win."""
    scopes = [""]
    words: list = []
    for token in _TOKEN.findall(_without_comments(text)):
        if token == "{":
            scopes.append(_join(scopes[-1], words[0] if words else ""))
        elif token == "}":
            scopes = scopes[:-1] or [""]
        elif token == ";":
            _statement(scopes[-1], words, source, settings)
        else:
            words.append(token.strip('"'))
            continue
        words = []


def _join(scope, name):
    return (scope + "::" + name if scope and name else scope or name).lower()


def _statement(scope, words, source, settings):
    if not words:
        return
    if words[0].lower() == "#clear":
        for name in words[1:]:
            key = _join(scope, name.rstrip(":"))
            for known in [known for known in settings if known == key or known.startswith(key + "::")]:
                del settings[known]
    elif len(words) == 2 and not words[0].endswith("::"):
        settings[_join(scope, words[0])] = (words[1], source)


def _without_comments(text):
    """Cut ``//``, ``#`` (but not ``#clear``) and ``/* */`` comments outside of quotes."""
    pattern = re.compile(r'("[^"\n]*")|/\*.*?\*/|//[^\n]*|#(?!clear\b)[^\n]*', re.DOTALL)
    return pattern.sub(lambda match: match.group(1) or " ", text)


def lock_holders(host):
    """Who holds a lock of dpkg or apt: list of ``{path, pid, command}``. A POSIX lock's owner is in /proc/locks."""
    inodes = {}
    for path in LOCK_FILES:
        found = host.stat(path)
        if found is not None:
            inodes[str(found.st_ino)] = path
    holders = []
    for line in (host.read_text("/proc/locks") or "").splitlines():
        # "1: POSIX  ADVISORY  WRITE 1234 fe:01:56789 0 EOF"; a "->" line is a process that waits, not one that holds.
        fields = line.split()
        if len(fields) < 6 or "->" in fields or fields[5].split(":")[-1] not in inodes:
            continue
        command = host.read_value(f"/proc/{fields[4]}/comm")
        holders.append({"path": inodes[fields[5].split(":")[-1]], "pid": fields[4], "command": command or "unknown"})
    return holders


def wait_until_free(host, seconds, variable, busy=lambda: []):
    """Wait until no package operation runs. Nothing is ever stopped or killed for it.

    :param seconds: how long to wait at most.
    :param variable: the public variable that sets ``seconds``, for the message.
    :param busy: more reasons to wait: a function that returns a list of str.
    :raises ConcernError: when it still runs after that time; names the holder.
    """
    deadline = host.clock() + seconds
    while True:
        reasons = [
            "{} (pid {}) holds {}".format(row["command"], row["pid"], row["path"]) for row in lock_holders(host)
        ] + busy()
        if not reasons:
            return
        if host.clock() >= deadline:
            raise ConcernError(
                f"A package operation still runs after {seconds} s: {'; '.join(reasons)}. It was left alone, because"
                " ending it would leave packages half-configured. Run again when it has finished, or raise"
                f" {variable}.",
                holders=reasons,
            )
        time.sleep(POLL_SECONDS)
