# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML calls run in a child process: a call into a sick driver may never return, or take its process along.

The child streams one JSON line per event through a pipe: what it is about to ask, and what it got. So the parent knows
at any moment what is known, and which call is under way. It never waits for a child: one that is stuck in the kernel
cannot be killed, and is left behind.
"""

import json
import os
import select
import signal
import time


class Call:
    """Which call was under way: ``gpu`` (index or None) and ``field`` (dotted name)."""

    def __init__(self, gpu=None, field="init"):
        self.gpu = gpu
        self.field = field


class Child:
    """A child process that runs ``work(emit)``.

    Iterating yields what the child emitted. Afterwards :attr:`fate` is None when it finished its work, else the reason
    why it did not, :attr:`hung` tells a hang from a crash, and :attr:`call` is what it was doing.

    :param deadline: on time.monotonic()'s clock.
    :param stall: seconds without any event after which the call under way counts as hung.
    """

    def __init__(self, work, deadline, stall):
        self.call = Call()
        self.fate = None
        self.hung = False
        self._work = work
        self._deadline = deadline
        self._stall = stall

    def __iter__(self):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run(self._work, writer, self._deadline)
        os.close(writer)
        try:
            yield from self._events(reader)
        finally:
            os.close(reader)
            self.fate = _end(pid, self.fate)

    def _events(self, reader):
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        pending = b""
        started = time.monotonic()
        self.fate = "crashed"
        while True:
            # the first answer is the library's start, which alone may take as long as the driver's initialisation
            stall = self._stall if self.call.field != "init" else self._deadline - started
            wait = min(self._deadline - time.monotonic(), stall)
            if wait <= 0 or not poll.poll(wait * 1000):
                self.hung = True
                self.fate = "no answer within %.1f s" % (time.monotonic() - started)
                return
            started = time.monotonic()
            data = os.read(reader, 65536)
            if not data:
                return
            lines = (pending + data).split(b"\n")
            pending = lines.pop()
            for line in lines:
                event = json.loads(line)
                if event[0] == "ask":
                    self.call = Call(event[1], event[2])
                elif event[0] == "end":
                    self.fate = None
                    return
                else:
                    yield event


def _end(pid, fate):
    """Take the child's exit status if there is one already; never wait. Returns the reason why it ended early."""
    if fate != "crashed":
        os.kill(pid, signal.SIGKILL)
    for _attempt in range(20):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.005)
    else:
        return f"{fate}; the process cannot be killed: it is stuck in the driver, a reboot clears it" if fate else None
    if fate == "crashed":
        if os.WIFSIGNALED(status):
            return f"the process that asked was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"the process that asked ended with status {os.WEXITSTATUS(status)}"
    return fate


def _run(work, writer, deadline):
    """The child's whole life."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):  # Ansible reads the module's output until every holder of it has gone
            os.dup2(null, standard)
        # ends this process even when the parent is no longer there to do it
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(max(1, int(deadline - time.monotonic()) + 2))

        def emit(*event):
            os.write(writer, json.dumps(event).encode() + b"\n")

        work(emit)
        emit("end")
        status = 0
    finally:
        os._exit(status)
