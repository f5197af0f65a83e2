# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Peak memory of the child process in which NVML is read, on a simulated machine."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.nvml import simulated

# A process of its own: RUSAGE_CHILDREN keeps the largest child of a whole life, and there is one child in this one.
READ = """
import resource, sys
import pynvml
from ansible_collections.gpufleet.metal.plugins.module_utils import _nvml
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import binding

with open(pynvml.__file__, "rb") as source:
    option = binding.pack(source.read())
found = _nvml.read(Host(), option, 30.0, ["nvml", "topology", "mig", "processes"])
if found["errors"] or not found["gpus"]:
    sys.exit("NVML was not read completely: %s" % found["errors"])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(machine: str) -> float:
    """Peak resident memory in MiB while all NVML facts of ``machine`` (its name under sim/machines) are read."""
    simulated.build("all")
    library = simulated.SOURCES / "build" / "libnvidia-ml.so"
    with tempfile.TemporaryDirectory() as root:
        environment = {
            **os.environ,
            **simulated.place(Path(root), machine, library),
            "PYTHONPATH": str(simulated.REPOSITORY / ".ansible" / "collections"),
        }
        done = subprocess.run(
            [sys.executable, "-c", READ], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    if done.returncode:
        sys.exit(f"reading NVML ended with {done.returncode}:\n{done.stderr}")
    return int(done.stdout) / 1024
