# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running commands on the controller and telling the user what happens."""

import subprocess
import sys
import time

START = time.monotonic()


class LabError(Exception):
    """Something the user can act on; shown without a traceback."""


def say(message: str) -> None:
    """Print one line with the seconds since the command began."""
    print(f"[{time.monotonic() - START:6.1f} s] {message}", file=sys.stderr, flush=True)


def call(argv: list[str], *, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run `argv`, capture its output; failure or a passed deadline (seconds) raises LabError with its last lines."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed; run `make bootstrap`") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(argv[:3])} ...` did not end within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise LabError(f"`{' '.join(argv[:3])} ...` failed with {done.returncode}:\n{tail}")
    return done
