# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door between a backend and the machine it works on.

A backend never opens a file or starts a process itself; it asks a :class:`Host`. In production the host's root is
``/``; in a unit test it is a temporary tree, and the runner is a table of recorded answers.
"""

import contextlib
import errno
import fcntl
import glob as _glob
import os
import signal
import subprocess
import tempfile
import time

#: Every command's environment: untranslated output, no prompt, no pager.
COMMAND_ENVIRONMENT = {
    "LC_ALL": "C",
    "LANGUAGE": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "l",
    "NEEDRESTART_SUSPEND": "1",
    "SYSTEMD_PAGER": "",
}
#: Where system tools live; a non-login SSH session may lack the sbin folders.
COMMAND_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Exit code reported for a command that ran past its timeout (as coreutils' timeout does).
RC_TIMEOUT = 124
#: Exit code reported for a command that is not installed (as a shell does).
RC_NOT_FOUND = 127
#: Held while a module changes the host; /run is emptied by a reboot, which ends whoever held it.
LOCK = "/run/gpufleet/change.lock"


class Busy(Exception):
    """Another run holds the host's change lock; the argument is the lock's path."""


class Result:
    """What one command answered: ``argv`` (list of str), ``rc`` (int), ``out`` and ``err`` (str)."""

    def __init__(self, argv, rc, out="", err=""):
        self.argv = list(argv)
        self.rc = rc
        self.out = out
        self.err = err

    @property
    def ok(self):
        return self.rc == 0

    def summary(self, lines=5):
        """One line for a message: the command, its exit code and the last ``lines`` lines it printed."""
        tail = " / ".join([line for line in (self.err or self.out).strip().splitlines() if line.strip()][-lines:])
        return "'{}' ended with rc {}{}".format(" ".join(self.argv), self.rc, ": " + tail if tail else "")


def run_command(argv, timeout, env, keeps=()):
    """Run ``argv`` (list of str) for at most ``timeout`` seconds; a failure is a :class:`Result` too, never raised.

    :param keeps: file descriptors that stay open in the command.
    """
    environment = dict(os.environ, PATH=COMMAND_PATH, **COMMAND_ENVIRONMENT)
    environment.update(env or {})
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=keeps,
            start_new_session=True,  # so that a timeout ends the command's children too
        )
    except OSError as error:
        return Result(argv, RC_NOT_FOUND if error.errno == errno.ENOENT else 126, "", str(error))
    try:
        out, err = process.communicate(timeout=timeout)
        rc = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = b"", b""
        rc = RC_TIMEOUT
        err = (err or b"") + (f"\nstopped after {timeout} s").encode()
    return Result(argv, rc, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


class Host:
    """A machine as the backends see it.

    :param root: the directory that stands for ``/``.
    :param runner: ``runner(argv, timeout, env) -> Result``; a test passes a recorded one.
    :param clock: a function that returns seconds since the epoch.

    Reading a thing that is missing answers ``None``, ``[]`` or ``False``. A thing that exists and cannot be read is
    noted in :attr:`unreadable` (path -> reason), so that no backend takes "not allowed to look" for "not there".
    """

    def __init__(self, root="/", runner=run_command, clock=time.time):
        self.root = root
        self.clock = clock
        self.unreadable = {}
        self._runner = runner
        self._lock = None
        self._answers = {}

    # -- reading -----------------------------------------------------------------------------------------------

    def path(self, path):
        """The real path of the host's absolute ``path``."""
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def _look(self, path, look, missing):
        try:
            return look(self.path(path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.unreadable[path] = os.strerror(error.errno)
            return missing

    def read_bytes(self, path, limit=None):
        def look(real):
            with open(real, "rb") as handle:
                return handle.read() if limit is None else handle.read(limit)

        return self._look(path, look, None)

    def read_text(self, path):
        """The file as str (undecodable bytes replaced), or None when there is none."""
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace")

    def read_value(self, path):
        """A one-value file (sysfs, procfs) without surrounding white space and NUL, or None."""
        text = self.read_text(path)
        return None if text is None else text.strip("\0 \t\r\n")

    def exists(self, path):
        """True when the path resolves to something; a dangling link does not exist."""
        return self.stat(path) is not None

    def stat(self, path):
        return self._look(path, os.stat, None)

    def listdir(self, path):
        """Sorted names in a directory; [] when there is none."""
        return self._look(path, lambda real: sorted(os.listdir(real)), [])

    def readlink(self, path):
        """The link's target as written, or None when the path is no link."""
        try:
            return os.readlink(self.path(path))
        except OSError:
            return None

    def glob(self, pattern):
        """Sorted host paths that match a shell pattern."""
        cut = 0 if self.root == "/" else len(self.root.rstrip("/"))
        return sorted(found[cut:] for found in _glob.glob(self.path(pattern)))

    def consult(self, path, read):
        """``read(real_path)`` for a file too large or too special for the readers above; None when there is none."""
        return self._look(path, read, None)

    def free_bytes(self, path):
        """Bytes an unprivileged write may still take on the file system of ``path`` or its nearest existing parent."""
        while not self.exists(path) and path != "/":
            path = os.path.dirname(path)
        usage = self._look(path, os.statvfs, None)
        return None if usage is None else usage.f_bavail * usage.f_frsize

    def once(self, key, read):
        """``read()`` the first time, its remembered answer afterwards, until something on this host is changed."""
        if key not in self._answers:
            with self.noting() as refused:
                answer = read()
            self._answers[key] = answer, refused
        answer, refused = self._answers[key]
        self.unreadable.update(refused)  # whoever asks again has not been allowed to look either
        return answer

    @contextlib.contextmanager
    def noting(self):
        """What cannot be read in the body, as :attr:`unreadable` has it, whatever was noted before."""
        before, self.unreadable = self.unreadable, {}
        try:
            yield self.unreadable
        finally:
            before.update(self.unreadable)
            self.unreadable = before

    # -- changing ----------------------------------------------------------------------------------------------

    def forget(self):
        """Drop what :meth:`once` remembers: the machine may have changed."""
        self._answers.clear()

    def write(self, path, content, mode=0o644):
        """Replace the file in one step (same directory, fsync, rename); ``content`` is str or bytes."""
        self.forget()
        real = self.path(path)
        directory = os.path.dirname(real)
        os.makedirs(directory, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".gpufleet-", dir=directory)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content if isinstance(content, bytes) else content.encode("utf-8"))
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, mode)
            os.replace(temporary, real)
        except BaseException:
            os.unlink(temporary)
            raise
        self._settle(directory)

    @staticmethod
    def _settle(directory):
        """Put a directory's entries on disk: without it, a power cut may take a rename back."""
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path):
        """Remove a file or link; True when there was one."""
        self.forget()
        try:
            os.unlink(self.path(path))
        except FileNotFoundError:
            return False
        return True

    def symlink(self, target, path):
        """Make ``path`` a link to ``target``, in one step, replacing a file or link."""
        self.forget()
        real = self.path(path)
        os.makedirs(os.path.dirname(real), exist_ok=True)
        temporary = real + ".gpufleet-new"
        if os.path.lexists(temporary):  # left by a run that was killed between the two steps
            os.unlink(temporary)
        os.symlink(target, temporary)
        os.replace(temporary, real)

    def makedirs(self, path, mode=0o755):
        self.forget()
        os.makedirs(self.path(path), mode=mode, exist_ok=True)

    @contextlib.contextmanager
    def exclusive(self, timeout):
        """Hold this host's only change lock: a run whose connection dropped may still be at work here.

        :param timeout: seconds to wait for the other run.
        :raises Busy: when it is still at work then.
        """
        real = self.path(LOCK)
        os.makedirs(os.path.dirname(real), exist_ok=True)
        deadline = time.monotonic() + timeout
        with open(real, "w") as handle:  # not inheritable, so a daemon started meanwhile does not keep the lock
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise Busy(LOCK) from None
                    time.sleep(1)
            self.forget()
            self._lock = handle.fileno()
            try:
                yield
            finally:
                self._lock = None

    def run(self, argv, timeout=60, env=None, changes=False, keeps_lock=False):
        """Run a command (list of str, never a shell) untranslated and bounded; see :class:`Result`.

        ``changes=True`` marks a command that alters the machine, so that remembered readings are dropped.
        ``keeps_lock=True`` marks one that works for minutes and starts no daemon: when this process is killed, the
        command goes on and holds the change lock to its end, so that the next run does not work against it.
        """
        if changes:
            self.forget()
        if keeps_lock and self._lock is not None:
            return self._runner(list(argv), timeout, env or {}, (self._lock,))
        return self._runner(list(argv), timeout, env or {})
