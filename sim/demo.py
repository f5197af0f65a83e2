# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make demo``: three fresh simulated machines, from nothing to a working, locked driver.

The plan first, then site.yml over real SSH, then site.yml again to show that nothing is left to do.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
DRIVER = "580.95.05"
#: The hosts of inventories/lab.
HOSTS = ["hgx-01", "a100-01", "l40s-01"]
PLAYBOOK = [str(BIN / "ansible-playbook"), "-i", "inventories/lab"]
STEPS = [
    ("Build the simulated NVML library", ["make", "--silent", "-C", "sim/nvml"]),
    (
        "Build the driver runfile",
        [sys.executable, "-m", "sim.runfile", "build", "--version", DRIVER, "--output", f".cache/mirror/{DRIVER}"],
    ),
    ("Remove the machines of an earlier demo", [sys.executable, "-m", "sim.lab", "down", *HOSTS]),
    ("Boot three fresh machines", [sys.executable, "-m", "sim.lab", "up"]),
    ("Serve the runfile to them", [sys.executable, "-m", "sim.lab", "mirror", "start"]),
    ("Plan: what would change?", [*PLAYBOOK, "playbooks/plan.yml"]),
    ("Site: make it so", [*PLAYBOOK, "playbooks/site.yml"]),
    (
        "Site again: nothing is left to do",
        [*PLAYBOOK, "playbooks/site.yml", "-e", "gpu_report_directory=reports/second"],
    ),
]


def main() -> int:
    """Run the steps in order; the first that fails ends the demo with its exit code."""
    for title, command in STEPS:
        print(f"\n=== {title}", flush=True)
        start = time.monotonic()
        rc = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"--- {title}: {(time.monotonic() - start) / 60:.1f} min", flush=True)
        if rc:
            print(f"The demo stopped: {' '.join(command)} ended with {rc}.", file=sys.stderr)
            return rc
    print("\nThe hosts stay up: ansible-playbook -i inventories/lab playbooks/plan.yml; `make clean` ends them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
