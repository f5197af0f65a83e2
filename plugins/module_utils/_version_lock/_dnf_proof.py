# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dnf would do: its transactions, simulated, and what they touch.

``--assumeno`` ends with 1 both for "I would do this" and for "I cannot": what tells them apart is the summary of the
transaction on standard output. Tried with dnf 4.14 and dnf5 5.4.6.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _dnf_files
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._candidates import is_driver

#: Packages that people install on a GPU host and that may pull a driver or a kernel in. Only those that the host's
#: repositories know are tried.
LIKELY_OFFENDERS = (
    "nvtop",
    "cuda",
    "cuda-drivers",
    "nvidia-open",
    "nvidia-driver",
    "nvidia-driver-cuda",
    "kmod-nvidia-latest-dkms",
    "kmod-nvidia-open-dkms",
    "akmod-nvidia",
    "xorg-x11-drv-nvidia-cuda",
    "nvidia-x11-drv",
    "kernel",
)
#: Seconds for one simulation, in which dnf may have to fetch the repositories' indexes.
TIMEOUT = 300
_STEP4 = re.compile(r"^---> Package (\S+)\.\S+ \S+ will be (.+)$", re.MULTILINE)
_INCOMING4 = ("installed", "an upgrade", "a downgrade", "reinstalled", "obsoleting")
#: dnf5's headings; what stands under the others ("Skipping packages", "Changing reason") does not move.
_SECTION5 = re.compile(r"^(Installing|Upgrading|Downgrading|Reinstalling|Removing)\b.*:$")
_APPLIED4 = re.compile(r"number of lock rules from file \"[^\"]*\" applied: (\d+)$", re.MULTILINE)
_LISTED5 = re.compile(r"^Package name: (\S+)\nevr = (\S+)$", re.MULTILINE)


def simulate(host, command):
    """Ask for a transaction without making it: ``(resolved, Result)``; ``command``: list of str."""
    verbose = ["-v"] if _dnf.version(host) == 4 else []
    result = host.run([_dnf.command(host)] + verbose + ["--assumeno"] + command, timeout=TIMEOUT)
    return result.ok or (result.rc == 1 and "\nTransaction Summary" in result.out), result


def touched(host, out):
    """What a simulated transaction would do: ``(names it moves or removes, names it brings in)``, two sets."""
    if _dnf.version(host) == 4:
        steps = _STEP4.findall(out)
        return {name for name, _kind in steps}, {name for name, kind in steps if kind in _INCOMING4}
    names: set = set()
    incoming: set = set()
    section = None
    for line in out.splitlines():
        heading = _SECTION5.match(line)
        if heading or not line.startswith(" "):
            section = heading.group(1) if heading else None
        elif section:
            words = line.split()
            names.add(words[1] if words[0] == "replacing" else words[0])
            if section != "Removing" and words[0] != "replacing":
                incoming.add(words[0])
    return names, incoming


def unlocked(host):
    """The options that make dnf overlook every lock and exclude."""
    if _dnf.version(host) == 4:
        return ["--disableplugin=versionlock", "--disableexcludes=all"]
    return ["--setopt=disable_excludes=*"]


def offered(host, names):
    """What the repositories offer of ``names``, locks and excludes overlooked: set of (name, version)."""
    argv = [_dnf.command(host), "-q", "repoquery", "--available"] + unlocked(host)
    # dnf4 ends each line itself, dnf5 does not; an empty line is no harm.
    result = host.run(argv + ["--qf", "%{name} %{epoch}:%{version}-%{release}\n"] + sorted(names), timeout=TIMEOUT)
    if not result.ok:
        raise ConcernError(f"version_lock: {result.summary()}")
    pairs = [line.split() for line in result.out.splitlines() if line.strip()]
    return {(pair[0], _dnf_files.without_zero(pair[1])) for pair in pairs if len(pair) == 2}


def prove(host, rows, refuse_drivers):
    """Whether dnf applies the locks, and what a full upgrade and likely offenders would touch; see ``_backend``."""
    transcript = []
    broken = []
    names = {row["name"] for row in rows}
    known = {name for name, _version in offered(host, LIKELY_OFFENDERS)}
    for command in [["upgrade"]] + [["install", name] for name in LIKELY_OFFENDERS if name in known]:
        resolved, result = simulate(host, command)
        if command == ["upgrade"]:
            if not resolved:
                raise ConcernError(f"version_lock: the lock is set but cannot be proven: {result.summary()}")
            transcript.append(_applied(host, rows, result))
        moving, incoming = touched(host, result.out) if resolved else (set(), set())
        found = names.intersection(moving)
        if refuse_drivers:
            found.update(name for name in incoming if is_driver(name))
        words = " ".join(["dnf --assumeno"] + command)
        refused = "touches nothing of the set" if resolved else "dnf refuses"
        transcript.append({"command": words, "result": "touches " + ", ".join(sorted(found)) if found else refused})
        if found:
            broken.append(f"'dnf {' '.join(command)}' would touch {', '.join(sorted(found))}")
    if broken:
        raise ConcernError("version_lock: the lock does not hold: {}".format("; ".join(broken)), proof=transcript)
    return transcript


def _applied(host, rows, upgrade):
    """dnf's own word on how many of our locks it applies: a line that it cannot read is skipped without an error code.

    :param upgrade: the simulated upgrade's ``Result``: dnf4 counts in it.
    """
    wanted = {(row["name"], row["version"]) for row in rows}
    if _dnf.version(host) == 4:
        count = sum(int(number) for number in _APPLIED4.findall(upgrade.out + "\n" + upgrade.err))
        what, missing = "dnf's count of applied locks", max(0, len(wanted) - count)
    else:
        listing = host.run([_dnf.command(host), "versionlock", "list"], timeout=TIMEOUT)
        listed = {(name, _dnf_files.without_zero(version)) for name, version in _LISTED5.findall(listing.out)}
        what, missing = "dnf versionlock list", len(wanted - listed)
    entry = {"command": what, "result": f"{len(wanted) - missing} of {len(wanted)} locks are applied"}
    if missing:
        raise ConcernError(f"version_lock: the lock does not hold: {what}: {entry['result']}", proof=[entry])
    return entry
