# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks that only read, on a machine with a real GPU: they see the driver that is there and change nothing."""

import json
import re
from pathlib import Path

from tests.gpu import local

pytestmark = local.NEEDS_GPU
ROOTS = ("/etc", "/usr/lib/modules", "/var/lib/gpufleet", "/run/gpufleet")


def tree():
    """Every file that a role might change: path -> inode and times."""
    files = [path for root in ROOTS for path in Path(root).rglob("*") if path.is_file() and not path.is_symlink()]
    stats = {str(path): path.stat() for path in files}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def playbook(folder, name):
    [loaded] = re.findall(r"  (\d+\.\d+(?:\.\d+)?)  ", Path("/proc/driver/nvidia/version").read_text())
    wanted = {
        "gpu_hosts": "localhost",
        "ansible_become": False,
        "gpu_report_directory": str(folder / "reports"),
        "nvidia_driver_version": loaded,
        "nvidia_driver_runfile_sha256": "0" * 64,
    }
    before = tree()
    process = local.run(folder, "playbook", str(local.REPOSITORY / "playbooks" / name), "-e", json.dumps(wanted))
    assert tree() == before
    return loaded, process


def test_the_plan_names_what_the_roles_would_do(tmp_path):
    _loaded, process = playbook(tmp_path, "plan.yml")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "Write /etc/modprobe.d/gpufleet-nouveau.conf" in process.stdout
    assert "changed=0" in process.stdout


def test_the_verification_reads_the_real_driver(tmp_path):
    loaded, process = playbook(tmp_path, "verify.yml")
    report = json.loads((tmp_path / "reports/report.json").read_text())
    checks = {check["id"]: check for check in report["hosts"][0]["checks"]}
    assert checks["driver_loaded"]["result"] == "pass"
    assert loaded in checks["driver_loaded"]["evidence"]
    assert checks["gpu_count"]["result"] == "pass"
    assert checks["nvidia_driver"]["result"] == "fail"  # nothing of the roles is on this machine
    assert process.returncode != 0
