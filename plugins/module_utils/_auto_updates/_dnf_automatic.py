# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf-automatic in the mode ``security``: it stays on, and leaves the driver set and the kernel alone.

Its service is told by a drop-in to read a file of ours; the package's ``automatic.conf`` stays as it is, and so do the
excludes of ``dnf.conf``, to which those in ``[base]`` are added. Names of rpms carry no version, so the patterns
also cover the next kernel. dnf4 only: dnf5's automatic updates know one file, which is the operator's.

In the mode ``disabled``, ``apply_updates`` of the operator's file is off: masks stop systemd, not a cron job that runs
the program. What it said is in the record and comes back with ``restored``.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates, _dnf_candidates
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._dnf import Dnf

PACKAGE = "dnf-automatic"
TIMERS = ("dnf-automatic.timer",)
PROGRAM = "/usr/bin/dnf-automatic"
CONF = "/etc/dnf/gpufleet-automatic.conf"
DROPIN = "/etc/systemd/system/dnf-automatic.service.d/zz-gpufleet.conf"
HEADER = "# Managed by gpufleet.metal (role auto_updates): changes made here are overwritten.\n"
#: The operator's file, of dnf4 and of dnf5. Without it, or without the line, updates are not applied.
OPERATORS = "/etc/dnf/automatic.conf"
DROPIN_TEXT = HEADER + f"[Service]\nExecStart=\nExecStart={PROGRAM} {CONF} --timer\n"
#: Fetching the repositories' indexes is part of the dry run.
DRY_RUN_TIMEOUT = 600
#: The set, as patterns that dnf's excludepkgs knows; what brings a driver is refused as version_lock refuses it.
PATTERNS = (
    _candidates.TOOLKIT
    + ("nvidia-fabric*manager*", "libnvsdm*", "nvlsm", "nvidia-imex*", "libnvidia-*")
    + ("kernel", "kernel-core", "kernel-modules*", "kernel-devel*", "kernel-uki-virt*", "kernel-debug*")
    + ("kernel-rt*", "kernel-64k*", "kernel-uek*", "kernel-lt*", "kernel-ml*", "kernel-longterm*")
    + tuple(pattern for pattern in _dnf_candidates.REFUSED if not pattern.startswith("libnvidia-"))
)
_ROW = re.compile(r"^ (\S+)")
_COMMANDS = re.compile(r"(?m)^\[commands\][^\n]*\n(?:(?!\[).*(?:\n|\Z))*")
_APPLY = re.compile(r"(?mi)^apply_updates[ \t]*[=:][ \t]*(.*?)[ \t]*$")
_TRUE = ("1", "yes", "true", "on")


def conf(excluded):
    """The text of our file; ``excluded``: the operator's own names."""
    return (
        HEADER
        + "[commands]\nupgrade_type = security\ndownload_updates = yes\napply_updates = yes\nrandom_sleep = 0\n"
        + "[emitters]\nemit_via = stdio\n"
        + "[base]\nexcludepkgs = "
        + ",".join(PATTERNS + tuple(sorted(set(excluded))))
        + "\n"
    )


def read(host):
    """``{dnf: 4|5, installed: bool, conf: str|None, dropin: str|None, operators: str|None}``: three files' texts."""
    return {
        "dnf": _dnf.version(host),
        "installed": host.exists(PROGRAM),
        "conf": host.read_text(CONF),
        "dropin": host.read_text(DROPIN),
        "operators": host.read_text(OPERATORS),
    }


def _apply_lines(text):
    """The lines of section [commands] that set ``apply_updates``: list of matches, as positions in ``text``."""
    return [line for section in _COMMANDS.finditer(text or "") for line in _APPLY.finditer(text, *section.span())]


def applies(text):
    """Whether the operator's file says that updates are installed; the last line counts."""
    lines = _apply_lines(text)
    return bool(lines) and lines[-1].group(1).lower() in _TRUE


def _with_lines(text, wanted):
    """``text`` with each line that sets ``apply_updates`` replaced; ``wanted``: a function of its number."""
    for number, line in reversed(list(enumerate(_apply_lines(text)))):
        text = text[: line.start()] + wanted(number) + text[line.end() :]
    return text


def applying_nothing(text):
    return _with_lines(text, lambda number: "apply_updates = no")


def given_back(text, original):
    """The operator's file as ``restored`` leaves it: as it was, or, edited since, with its own line again."""
    if text is None or original is None:
        return text
    if text == applying_nothing(original):
        return original
    line = _apply_lines(original)[-1].group(0)
    return text if applies(text) else _with_lines(text, lambda number: line)


def assess(state, excluded, difference):
    if not state["installed"]:
        difference.add(PACKAGE, "absent", "installed", "it is what installs security updates", f"Install {PACKAGE}")
    for path, key, text in ((CONF, "conf", conf(excluded)), (DROPIN, "dropin", DROPIN_TEXT)):
        if state[key] != text:
            before = "absent" if state[key] is None else "edited"
            difference.add(path, before, "present", "security updates would move the driver set", f"Write {path}")


def assess_removed(state, difference):
    """For every other mode: nothing of ours may be left."""
    for path, key in ((CONF, "conf"), (DROPIN, "dropin")):
        if state[key] is not None:
            difference.add(path, "present", "absent", "it is for the mode security only", f"Remove {path}")


def assess_applying(state, difference):
    """For ``disabled``: nobody who runs the program may install anything with it."""
    if applies(state["operators"]):
        why = "a cron job or a unit of somebody else's that runs it would install updates"
        difference.add(f"apply_updates in {OPERATORS}", "yes", "no", why, f"Set apply_updates to no in {OPERATORS}")


def assess_given_back(state, original, difference):
    if given_back(state["operators"], original) != state["operators"]:
        action = f"Put apply_updates back in {OPERATORS}"
        difference.add(f"apply_updates in {OPERATORS}", "no", "yes", "so it was before this role", action)


def write_operators(host, text):
    """Write the operator's file unless it is so already; its mode stays."""
    if text is not None and host.read_text(OPERATORS) != text:
        host.write(OPERATORS, text, host.stat(OPERATORS).st_mode & 0o7777)


def write(host, state, excluded):
    for path, text in ((CONF, conf(excluded)), (DROPIN, DROPIN_TEXT)):
        if host.read_text(path) != text:
            host.write(path, text)
    if not state["installed"]:
        result = host.run([_dnf.command(host), "-y", "install", PACKAGE], timeout=1800, changes=True)
        if not result.ok:
            raise ConcernError(
                f"auto_updates: {result.summary()}. Give the host a repository that has {PACKAGE}, or set"
                " auto_updates_state to disabled."
            )


def remove(host):
    host.remove(CONF)
    host.remove(DROPIN)


def touches(name, excluded=()):
    """Whether a package belongs to the set."""
    return name in excluded or _candidates.is_driver(name) or Dnf().group(name, True, ()) is not None


def prove(host, excluded):
    """Let dnf-automatic itself say what it would do: one sentence.

    :raises ConcernError: when it would touch the set; ``details["proof"]`` names the packages.
    """
    argv = [PROGRAM, CONF, "--no-downloadupdates", "--no-installupdates"]
    result = host.run(argv, timeout=DRY_RUN_TIMEOUT)
    if not result.ok:
        raise ConcernError(f"auto_updates: the exclusion is set but cannot be proven: {result.summary()}")
    rows = [match.group(1) for match in map(_ROW.match, result.out.splitlines()) if match]
    names = [name for name in rows if name != "Package"]
    touched = sorted(name for name in names if touches(name, excluded))
    if touched:
        words = ", ".join(touched)
        raise ConcernError(f"auto_updates: dnf-automatic would still upgrade {words}", proof=touched)
    return f"dnf-automatic: {len(names)} packages to upgrade, none of the set"
