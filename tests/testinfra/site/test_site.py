# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What site.yml promises, on one machine: it is quiet when nothing is due, and it names and repairs what was undone."""

import json
import os
from pathlib import Path

#: What somebody undoes by hand on the host -> the words by which the plan names it.
UNDONE = {
    "rm /etc/apt/apt.conf.d/99zz-gpufleet-auto-updates": "/etc/apt/apt.conf.d/99zz-gpufleet-auto-updates",
    "systemctl unmask apt-daily.timer": "apt-daily.timer",
    "rm /etc/modprobe.d/gpufleet-nouveau.conf": "/etc/modprobe.d/gpufleet-nouveau.conf",
    "systemctl disable nvidia-persistenced.service": "nvidia-persistenced.service",
    "rm /etc/modules-load.d/gpufleet-nvidia.conf": "/etc/modules-load.d/gpufleet-nvidia.conf",
    "rm /etc/apt/preferences.d/00-gpufleet-version-lock": "/etc/apt/preferences.d/00-gpufleet-version-lock",
}
BOOT = "cat /run/gpufleet-sim/boot_id"
RELOADS = "journalctl -q _PID=1 --after-cursor=%s --grep='^Reloading' --output=cat || true"


def reports():
    return Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"


def cursor(host):
    """The place in the journal where it ends now."""
    shown = host.check_output("journalctl -q -n 1 --show-cursor --output=cat")
    return shown.rpartition("-- cursor: ")[2].strip()


def test_report_says_that_every_check_passed(host):
    files = {path.name for path in reports().iterdir() if path.is_file()}
    assert files == {"report.html", "report.json", "report.md"}
    text = (reports() / "report.json").read_text()
    assert json.loads(text)
    assert "8x NVIDIA H100" in (reports() / "report.md").read_text()


def test_verify_agrees(host, playbook):
    done = playbook("verify.yml", "-e", f"gpu_report_directory={reports()}/verify")
    assert done.rc == 0, done.output
    assert (done.recap["changed"], done.recap["failed"]) == (0, 0)


def test_a_second_run_is_quiet(host, playbook):
    start, boot = cursor(host), host.check_output(BOOT)
    done = playbook("site.yml", "-e", f"gpu_report_directory={reports()}/second")
    assert done.rc == 0, done.output
    assert (done.recap["changed"], done.recap["failed"]) == (0, 0)
    assert "RUNNING HANDLER" not in done.output
    assert host.check_output(BOOT) == boot
    assert host.check_output(RELOADS, start) == ""


def test_what_was_undone_by_hand_is_named_by_the_plan_and_repaired_by_site(host, playbook):
    boot = host.check_output(BOOT)
    held = host.check_output("apt-mark showhold").split()
    undone = {**UNDONE, f"apt-mark unhold {held[0]}": held[0]}
    for command in undone:
        host.check_output(command)
    plan = playbook("plan.yml")
    assert plan.rc == 0, plan.output
    assert plan.recap["changed"] == 0
    assert not [words for words in undone.values() if words not in plan.output], plan.output
    repaired = playbook("site.yml", "-e", f"gpu_report_directory={reports()}/repaired")
    assert repaired.rc == 0, repaired.output
    assert repaired.recap["changed"] > 0
    again = playbook("plan.yml")
    assert again.rc == 0, again.output
    assert "nothing to do" in again.output, again.output
    assert host.check_output("systemctl is-enabled apt-daily.timer || true") == "masked"
    assert host.service("nvidia-persistenced").is_enabled
    assert host.check_output("apt-mark showhold").split() == held
    assert host.check_output(BOOT) == boot
