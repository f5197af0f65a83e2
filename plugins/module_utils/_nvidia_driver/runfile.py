# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runfile on the host: where it lies, whether it is the wanted one, and running it so that nothing doubles it."""

import hashlib
import json
import os
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_version
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver.options import TMPDIR

DIRECTORY = "/var/lib/gpufleet/runfiles"
#: path -> {fingerprint, sha256}: proofs of :func:`sha256`.
RECORD = "/var/lib/gpufleet/driver/runfile.json"

#: ELF machine number of the host's programs -> the architecture in the runfile's name.
ARCHITECTURES = {62: "x86_64", 183: "aarch64"}
#: The runfile unpacks to about this many times its size, plus the build.
UNPACKED_FACTOR = 4


def architecture(host):
    """The runfile's word for the host's architecture, or None for one that has no runfile.

    Read from the header of the host's own shell, so that a 32-bit user space or an emulated build host cannot mislead.
    """
    header = host.read_bytes("/bin/sh", limit=20)
    if header is None or header[:4] != b"\x7fELF":
        return None
    order = "little" if header[5] == 1 else "big"
    return ARCHITECTURES.get(int.from_bytes(header[18:20], order))


def name(version, arch):
    return "NVIDIA-Linux-%s-%s.run" % (arch, version)


def version_of(path):
    """The driver version that a file in :data:`DIRECTORY` is named after, or None."""
    return _driver_version.find(os.path.basename(path))


def expected_sha256(host, desired, filename):
    """The wanted sha256 in lower case: given, or read from the checksum file that the role brought; None if unknown."""
    if desired["runfile_sha256"]:
        return desired["runfile_sha256"].lower()
    text = host.read_text("%s/%s.sha256sum" % (DIRECTORY, desired["version"])) or ""
    lines = [line.split() for line in text.splitlines() if re.match(r"^[0-9a-fA-F]{64}\b", line)]
    for words in lines:
        if len(words) > 1 and os.path.basename(words[1].lstrip("*")) == filename:
            return words[0].lower()
    return lines[0][0].lower() if len(lines) == 1 and len(lines[0]) == 1 else None


def sha256(host, path):
    """sha256 of the file in hex, or None when there is none.

    Hashing some 400 MB takes seconds, so the last proof is remembered together with what it was read from.
    """
    seen = fingerprint(host, path)
    if seen is None:
        return None
    known = _record(host).get(path)
    if isinstance(known, dict) and known.get("fingerprint") == seen:
        return known.get("sha256")
    return host.consult(path, _hash)


def _hash(real):
    digest = hashlib.sha256()
    with open(real, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(host, path):
    """Inode, size, mtime and ctime (ns): changes whenever the file's content does; None when there is no file."""
    stat = host.stat(path)
    return None if stat is None else [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _record(host):
    try:
        record = json.loads(host.read_text(RECORD) or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def remember(host, path, digest):
    """Keep the proof of :func:`sha256`; only ``apply`` does this, so that a plan writes nothing."""
    record = {known: entry for known, entry in _record(host).items() if host.exists(known)}
    record[path] = {"fingerprint": fingerprint(host, path), "sha256": digest}
    if record != _record(host):
        host.write(RECORD, json.dumps(record, sort_keys=True) + "\n")


def verify(host, runfile):
    """Prove that the runfile is the wanted one and whole, before any of it is executed.

    :param runfile: ``{path, sha256, expected_sha256}`` from the state.
    """
    path = runfile["path"]
    if runfile["sha256"] is None:
        raise ConcernError(
            "nvidia_driver: the runfile is not at %s. The role's fetch tasks bring it there from "
            "nvidia_driver_runfile_url or nvidia_driver_runfile_path" % path
        )
    if runfile["sha256"] != runfile["expected_sha256"]:
        raise ConcernError(
            "nvidia_driver_runfile_sha256: %s has sha256 %s, wanted is %s. Correct the variable, or delete the file"
            % (path, runfile["sha256"], runfile["expected_sha256"])
        )
    remember(host, path, runfile["sha256"])
    check = host.run(["/bin/sh", path, "--check"], timeout=300)
    if not check.ok:
        raise ConcernError(
            "nvidia_driver: the runfile's own integrity check fails although its sha256 is the wanted one: %s. "
            "Take nvidia_driver_runfile_sha256 from a trustworthy source" % check.summary()
        )


def prepare_tmpdir(host, desired, path):
    """Make the managed temporary directory, and prove that programs run in it and that the runfile fits.

    What an installer that was killed had unpacked is removed first, but only where nobody else unpacks anything.
    """
    directory = desired["tmpdir"]
    host.makedirs(directory, mode=0o700)
    left_over = host.glob(directory + "/selfgz*") if directory == TMPDIR else []
    if left_over:
        host.run(["rm", "-rf", "--"] + left_over, timeout=120, changes=True)
    probe = directory + "/exec-probe"
    host.write(probe, "#!/bin/sh\nexit 0\n", mode=0o700)
    try:
        answer = host.run([probe], timeout=10)
    finally:
        host.remove(probe)
    if not answer.ok:
        raise ConcernError(
            "nvidia_driver_tmpdir: programs cannot run in %s (%s). Set it to a directory on a file system that is "
            "mounted with exec" % (directory, answer.summary())
        )
    size = host.stat(path).st_size
    free = host.free_bytes(directory)
    if free is not None and free < UNPACKED_FACTOR * size:
        raise ConcernError(
            "nvidia_driver_tmpdir: %s has %d MiB free, unpacking and building needs %d MiB. Free space or name another "
            "directory" % (directory, free >> 20, UNPACKED_FACTOR * size >> 20)
        )
