# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which dnf a host has, and who is at work with it or with rpm."""

import re

#: dnf4 writes its process id into these while it holds them (dnf/lock.py).
PID_FILES = (
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
    "/var/lib/dnf/rpmdb_lock.pid",
    "/run/dnf/rpmdb_lock.pid",
)
#: Taken with fcntl(2) and therefore listed in /proc/locks: rpm's own, around every transaction; dnf5's.
LOCK_FILES = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock", "/run/dnf/rpmtransaction.lock")


def version(host):
    """4 or 5: what the command ``dnf`` is on this host (Fedora may have both); None without dnf."""
    target = host.readlink("/usr/bin/dnf")
    if target is not None:
        return 5 if target.rpartition("/")[2] == "dnf5" else 4
    if host.exists("/usr/bin/dnf") or host.exists("/usr/bin/yum"):
        return 4
    return 5 if host.exists("/usr/bin/dnf5") else None


def command(host):
    """The name of the program: ``dnf``, or what there is in its place."""
    return next((name for name in ("dnf", "dnf5", "yum") if host.exists("/usr/bin/" + name)), "dnf")


def running(host):
    """Reasons to wait: which process holds a lock of dnf or rpm. List of str."""
    reasons = []
    for path in PID_FILES:
        pid = host.read_value(path) or ""
        name = host.read_value(f"/proc/{pid}/comm") if re.fullmatch(r"\d+", pid) else None
        if name is not None:  # the file of a process that died stays behind
            reasons.append(f"{name} (pid {pid}) holds {path}")
    inodes = {}
    for path in LOCK_FILES:
        found = host.stat(path)
        if found is not None:
            inodes[str(found.st_ino)] = path
    for line in (host.read_text("/proc/locks") or "").splitlines() if inodes else []:
        # "1: POSIX  ADVISORY  WRITE 1234 fe:01:56789 0 EOF"; a "->" line is a process that waits, not one that holds.
        fields = line.split()
        if len(fields) < 6 or "->" in fields or fields[3] != "WRITE":
            continue
        path = inodes.get(fields[5].split(":")[-1])
        if path is not None:
            name = host.read_value(f"/proc/{fields[4]}/comm") or "unknown"
            reasons.append(f"{name} (pid {fields[4]}) holds {path}")
    return reasons
