# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating system, Python, package manager."""

from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import finding, wanted

#: id -> versions on which the roles are proven.
PROVEN = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}
#: The oldest Python on a target that ansible-core 2.19 runs on.
OLDEST_PYTHON = [3, 8]


def operating_system(facts, desired, options):
    system = facts["os"]
    evidence = "%s (/etc/os-release)" % (system["name"] or "unknown")
    if facts["manager"] is None:
        return finding(
            "operating_system",
            "fail",
            evidence + ", neither apt nor dnf",
            "Use a Debian, Ubuntu or Enterprise Linux host.",
        )
    if system["version"] in PROVEN.get(system["id"], ()):
        return finding("operating_system", "pass", evidence)
    proven = ", ".join("%s %s" % (name, "/".join(versions)) for name, versions in sorted(PROVEN.items()))
    return finding("operating_system", "warn", evidence, "The roles are proven on %s; try one host first." % proven)


def architecture(facts, desired, options):
    """An architecture without a runfile is found before a download answers 404 (B11)."""
    if not wanted(desired, "nvidia_driver"):
        return None
    if facts["architecture"] is None:
        return finding(
            "architecture",
            "fail",
            "/bin/sh is neither an x86_64 nor an aarch64 program",
            "NVIDIA has no data-center driver for this machine: set nvidia_driver_state to unmanaged.",
            "nvidia_driver_state",
        )
    return finding("architecture", "pass", "%s (ELF header of /bin/sh)" % facts["architecture"])


def python(facts, desired, options):
    evidence = "Python %d.%d runs the modules" % tuple(facts["python"])
    if facts["python"] >= OLDEST_PYTHON:
        return finding("python", "pass", evidence)
    return finding(
        "python",
        "fail",
        evidence,
        "Install Python 3.8 or newer on the host and name it in ansible_python_interpreter.",
        "ansible_python_interpreter",
    )


def readable(facts, desired, options):
    """What may not be read has not passed."""
    if not facts["unreadable"]:
        return None
    paths = sorted(facts["unreadable"])
    return finding(
        "readable",
        "not_measured",
        "cannot be read: %s" % ", ".join("%s (%s)" % (path, facts["unreadable"][path]) for path in paths),
        "Run as root (become: true).",
    )


def package_database(facts, desired, options):
    """A half-configured package makes every later installation fail. A running dpkg leaves the same words meanwhile."""
    if facts["manager"] != "apt":
        return None
    broken = list(facts["unfinished"])
    if facts["dpkg_updates"]:
        broken.append("%d unfinished transactions in /var/lib/dpkg/updates" % len(facts["dpkg_updates"]))
    if broken and facts["locks"]:
        return finding(
            "package_database",
            "warn",
            "a package operation is at work: %s" % ", ".join(broken),
            "The roles wait for it (auto_updates_wait_timeout), and look again.",
            "auto_updates_wait_timeout",
        )
    if broken:
        return finding(
            "package_database",
            "fail",
            "an earlier package operation was cut off: %s" % ", ".join(broken),
            "Run 'dpkg --configure -a' and 'apt-get -f install' on the host, and look at what they say.",
        )
    return finding("package_database", "pass", "no unfinished package (/var/lib/dpkg)")


def package_lock(facts, desired, options):
    """Somebody at work with packages is waited for by the roles, so it is no failure yet."""
    if facts["manager"] is None:
        return None
    if facts["locks"]:
        return finding(
            "package_lock",
            "warn",
            "in use: %s" % ", ".join(facts["locks"]),
            "The roles wait for it (auto_updates_wait_timeout). If it hangs, look at that process.",
            "auto_updates_wait_timeout",
        )
    return finding("package_lock", "pass", "no lock of %s is held (/proc/locks)" % facts["manager"])


def version_lock(facts, desired, options):
    """A lock that cannot be set is found before the driver is installed that it is to protect."""
    if not wanted(desired, "version_lock"):
        return None
    manager, obstacles = facts["manager"], facts["lock_obstacles"]
    unmanaged = (
        "Set version_lock_state to unmanaged, and keep the kernel and the driver from being updated in another way."
    )
    if obstacles is None:
        evidence = "the package manager is %s, and versions can be locked with apt and dnf only" % (
            manager or "unknown"
        )
        return finding("version_lock", "fail", evidence, unmanaged, "version_lock_state")
    if obstacles:
        return finding("version_lock", "fail", "; ".join(obstacles), "Do that, then run again.", "version_lock_state")
    return finding("version_lock", "pass", "%s can lock versions" % manager)


CHECKS = [operating_system, architecture, python, readable, package_database, package_lock, version_lock]
