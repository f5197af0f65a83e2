# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys that sign the lab's repositories. One is made once and kept: a repository that is built anew stays one that
running hosts trust. It lies beside the lab's other keys, outside of what the mirror serves.
"""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.lab import cache
from sim.lab.process import call


@contextmanager
def gpg(signer: str, algorithm: str) -> Iterator[list[str]]:
    """A gpg command line over a key ring that has nothing but the key of `signer`, one for each algorithm."""
    kept = cache.CACHE / f"packages-{algorithm}.key"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpg-") as home:  # short: the agent's socket lies in it
        command = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        try:
            with kept.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not kept.exists():
                    _make(command, signer, algorithm, kept)
            call([*command, "--import", str(kept)])
            yield command
        finally:
            call(["gpgconf", "--homedir", home, "--kill", "all"], check=False)


def _make(command: list[str], signer: str, algorithm: str, kept: Path) -> None:
    call([*command, "--quick-generate-key", signer, algorithm, "sign", "never"])
    draft = kept.with_suffix(".new")
    draft.unlink(missing_ok=True)
    call([*command, "--armor", "--output", str(draft), "--export-secret-keys", signer])  # mode 0600, says gpg
    draft.replace(kept)
