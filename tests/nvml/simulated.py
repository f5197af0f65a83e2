# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated machines for tests: building the library, placing a machine, running code against it.

The NVML library cannot be exchanged inside a process, so whatever uses it runs in a child process with the environment
that :func:`place` gives.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sim import control as tool
from sim import machine

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
SOURCES = REPOSITORY / "sim" / "nvml"


def build(*arguments):
    subprocess.run(["make", "-s", "-C", str(SOURCES), *arguments], check=True)


def control(env, *arguments, check=True):
    """Run the control tool on the machine of ``env``."""
    command = [sys.executable, str(REPOSITORY / "sim" / "control.py"), *arguments]
    return subprocess.run(command, env={**os.environ, **env}, check=check, capture_output=True, text=True, timeout=30)


def place(root, name, library, driver=None):
    """A booted machine under ``root``: description, library, loaded driver. Returns its environment."""
    description = machine.install(name, root)
    wanted = driver or description["driver"]
    folder = root / "lib"
    folder.mkdir()
    real = folder / f"libnvidia-ml.so.{wanted['version']}"
    shutil.copy(library, real)
    (folder / "libnvidia-ml.so.1").symlink_to(real.name)
    env = {"GPUFLEET_SIM_ROOT": str(root), "LD_LIBRARY_PATH": str(folder)}
    assert tool.main(["boot"], str(root)) == 0
    if description["gpus"]:
        assert tool.main(["load", wanted["version"], wanted["flavour"]], str(root)) == 0
    return env


def run_nvml(env, code, timeout=20):
    """Run Python ``code`` with pynvml imported as ``n`` and initialised; what it puts into ``out`` comes back.

    :returns: (process, out or None). ``handle`` is GPU 0; ``attempt(f, *a)`` gives the value or ``"E<code>"``.
    """
    prelude = (
        "import json, pynvml as n\n"
        "out = {}\n"
        "def attempt(function, *arguments):\n"
        "    try:\n"
        "        return function(*arguments)\n"
        "    except n.NVMLError as error:\n"
        "        return 'E%d' % error.value\n"
        "n.nvmlInit()\n"
        "handle = n.nvmlDeviceGetHandleByIndex(0)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", prelude + code + "\nprint(json.dumps(out))\n"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return process, json.loads(process.stdout) if process.returncode == 0 else None
