# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lies on a host beside Python and waits for the journal to enter a phase; then it kills once, at exactly that point.

The module writes a phase by renaming a file onto the journal. Every Python on the host has this file loaded; in the one
that renames, the kill comes right after the rename and before the phase's first step. The phase ``dkms`` is the middle
of ``build``: DKMS has begun, and goes on without the module that had started it. Stdlib only.
"""

import json
import os
import signal
import subprocess
import time

ORDER = "/etc/gpufleet-sim/kill"  # "<phase> <kill>"; removed when it has been carried out
JOURNAL = "/var/lib/gpufleet/driver/journal.json"
_replace, _popen = os.replace, subprocess.Popen


def connection():
    """The processes of the SSH session above this one, the listener left out."""
    found, pid = [], os.getppid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as stream:
            text = stream.read()
        name, parent = text[text.index("(") + 1 : text.rindex(")")], int(text.rpartition(")")[2].split()[1])
        if name.startswith("sshd") and parent > 1:
            found.append(pid)
        pid = parent
    return found


def carry_out(kill):
    if kill == "module":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kill == "connection":
        for pid in connection():
            os.kill(pid, signal.SIGKILL)
    elif kill == "reboot":
        subprocess.Popen(["systemctl", "reboot", "--force", "--force"])
        time.sleep(120)


def order():
    """``(phase, kill)``, or ``(None, None)`` once it has been carried out."""
    if not os.path.exists(ORDER):
        return None, None
    with open(ORDER) as stream:
        return stream.read().split()


def replace(source, target, **options):
    _replace(source, target, **options)
    phase, kill = order() if target == JOURNAL else (None, None)
    if not phase:
        return
    with open(JOURNAL) as stream:
        entered = json.load(stream)["phase"]
    if entered == phase:
        os.unlink(ORDER)
        carry_out(kill)


class Popen(_popen):
    def __init__(self, argv, *arguments, **options):
        super().__init__(argv, *arguments, **options)
        phase, kill = order()
        if phase == "dkms" and argv[:2] == ["dkms", "install"]:
            time.sleep(1)
            os.unlink(ORDER)
            carry_out(kill)


if os.geteuid() == 0:
    os.replace = replace
    subprocess.Popen = Popen
