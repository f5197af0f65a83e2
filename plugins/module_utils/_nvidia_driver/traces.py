# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drivers by runfile leave on a host beside their programs: libraries, DKMS rows, sources, firmware; by version.

The uninstaller of a driver removes its own; what was killed in between leaves the rest.
"""

import os

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts, _driver_version
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import build

FIRMWARE_FOLDERS = ("/lib/firmware/nvidia", "/usr/lib/firmware/nvidia")
SOURCES = "/usr/src"
REMOVE_TIMEOUT = 600


def firmware(host):
    """Versions that have a firmware directory, sorted."""
    return sorted({name for folder in FIRMWARE_FOLDERS for name in host.listdir(folder) if name[:1].isdigit()})


def read(host):
    """dict of driver version -> list of what of it is there (``libraries``, ``DKMS``, ``source``, ``firmware``)."""
    driver = _driver_facts.read(host)
    found: dict = {}
    for what, versions in (
        ("libraries", [library["version"] for library in driver["libraries"]]),
        ("DKMS", [row["version"] for row in driver["dkms"] if row["module"] == "nvidia"]),
        ("source", [_source_version(path) for path in host.glob(SOURCES + "/nvidia-[0-9]*")]),
        ("firmware", firmware(host)),
    ):
        for version in sorted({version for version in versions if version == _driver_version.find(version)}):
            found.setdefault(version, []).append(what)
    return found


def _source_version(path):
    return os.path.basename(path)[len("nvidia-") :]


def remove(host, version):
    """Remove what is left of one version. May be called again after it was cut off.

    :returns: list of what failed.
    """
    failed = []

    def must(argv):
        answer = host.run(argv, timeout=REMOVE_TIMEOUT, changes=True, keeps_lock=True)
        if not answer.ok:
            failed.append(answer.summary())

    driver = _driver_facts.read(host)
    if any(row["module"] == "nvidia" and row["version"] == version for row in driver["dkms"]):
        must(["dkms", "remove", "-m", "nvidia", "-v", version, "--all"])
    folders = sorted({os.path.dirname(found["path"]) for found in driver["libraries"] if found["version"] == version})
    for folder in folders:
        _remove_libraries(host, folder, version)
    trees = [folder + "/" + version for folder in FIRMWARE_FOLDERS] + ["%s/nvidia-%s" % (SOURCES, version)]
    trees.append("/var/lib/dkms/nvidia/" + version)  # where its source is gone, dkms itself can remove nothing
    present = [path for path in trees if host.exists(path) or host.readlink(path) is not None]
    if present:
        must(["rm", "-rf", "--"] + present)
    if folders and build.find_program(host, "ldconfig"):
        must(["ldconfig"])
    return failed


def _remove_libraries(host, folder, version):
    """The libraries whose names end in exactly this version, and the links that led to them."""
    gone = host.glob("%s/lib*.so.%s" % (folder, version))
    names = {os.path.basename(path) for path in gone}
    for path in host.glob(folder + "/lib*.so*"):
        target = host.readlink(path)
        if target and os.path.basename(target) in names:
            host.remove(path)
    for path in gone:
        host.remove(path)
