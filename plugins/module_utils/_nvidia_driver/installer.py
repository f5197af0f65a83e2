# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running the vendor's installer so that a dropped connection neither kills it nor starts it twice.

Under systemd the installer is a transient unit: its name is the lock, and the unit outlives the connection. Without
systemd as PID 1 it runs in a session of its own under flock.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

UNIT = "gpufleet-nvidia-installer.service"
LOCK = "/run/gpufleet-nvidia-installer.lock"
LOG = "/var/log/nvidia-installer.log"

#: Exit code with which flock says that another process holds the lock.
RC_LOCKED = 75
#: Seconds from the request to end to the kill, when the time is up.
STOP = 20
#: Seconds that the waiting client outlives the installer's own limit and its end.
GRACE = STOP + 20


class AtWork(ConcernError):
    """The installer is still at work, beyond this run: nothing may be taken back."""


def has_systemd(host):
    return host.exists("/run/systemd/system")


def main_pid(host):
    """PID of an installer that an earlier run started and that is still at work, or None."""
    if not has_systemd(host):
        return None
    answer = host.run(["systemctl", "show", "--property=MainPID", "--value", UNIT], timeout=20)
    pid = answer.out.strip()
    return int(pid) if answer.ok and pid.isdigit() and pid != "0" else None


def wait(host, pid, timeout):
    """Wait until that installer ends, at most ``timeout`` seconds."""
    answer = host.run(["tail", "--pid=%d" % pid, "-f", "/dev/null"], timeout=timeout, changes=True)
    if not answer.ok:
        raise AtWork(
            "nvidia_driver: the installer that an earlier run started (pid %d, unit %s) is still running after %d s. "
            "Look at %s; raise nvidia_driver_installer_timeout if it is making progress" % (pid, UNIT, timeout, LOG)
        )


def run(host, argv, timeout, env):
    """Run ``argv`` detached and wait for it; returns a Result with the installer's own exit code."""
    if has_systemd(host):
        command = ["systemd-run", "--unit=%s" % UNIT, "--wait", "--collect", "--quiet"]
        command += ["--property=RuntimeMaxSec=%d" % timeout, "--property=TimeoutStopSec=%d" % STOP]
        command += ["--setenv=%s=%s" % (key, env[key]) for key in sorted(env)]
        answer = host.run(command + ["--"] + argv, timeout=timeout + GRACE, changes=True)
        if not answer.ok and main_pid(host):
            raise AtWork(
                "nvidia_driver: the installer goes on as unit %s, only waiting for it failed: %s. Nothing was taken "
                "back. Run the role again: it waits for the installer" % (UNIT, answer.summary())
            )
        return answer
    command = ["setsid", "--wait", "flock", "--nonblock", "--conflict-exit-code", str(RC_LOCKED), LOCK]
    command += ["timeout", "--kill-after=%d" % STOP, str(timeout)]  # the session of its own outlives ours
    answer = host.run(command + argv, timeout=timeout + GRACE, env=env, changes=True)
    if answer.rc == RC_LOCKED:
        raise AtWork("nvidia_driver: another run is installing a driver on this host now. Run the role again later")
    return answer
