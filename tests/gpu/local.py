# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible against this machine, over a local connection. Only what reads: nothing is changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no nvidia-smi: this needs a real GPU"),
]
REPOSITORY = Path(__file__).parents[2]


def run(folder, command, *arguments):
    """Run an Ansible command (``adhoc``, ``playbook``) on the host ``localhost``, with all of its state in ``folder``.

    The target's Python is isolated: NVML's binding must come from the controller.
    """
    target = folder / "python3"
    target.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -I "$@"\n')
    target.chmod(0o755)
    collections = folder / "collections" / "ansible_collections" / "gpufleet"
    collections.mkdir(parents=True, exist_ok=True)
    if not (collections / "metal").exists():
        (collections / "metal").symlink_to(REPOSITORY)
    return subprocess.run(
        [sys.executable, "-m", "ansible", command, *arguments, "-i", "localhost,", "-c", "local"]
        + ["-e", f"ansible_python_interpreter={target}"],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_REMOTE_TEMP": str(folder / "tmp"),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
