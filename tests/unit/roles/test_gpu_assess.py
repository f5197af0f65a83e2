# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a wrong inventory gets to hear through the real engine: role variables, action plugin, module.

The assessment refuses before it reads, so that it may run on this machine.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DRIVER = {"nvidia_driver_version": "580.65.06", "nvidia_driver_runfile_sha256": "a" * 64}


def refusal(tmp_path, **variables):
    """Run the role on this machine; the output of ansible-playbook, which must fail, on one line."""
    role = {"name": "gpufleet.metal.gpu_assess"}
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.import_role": role}]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    values = {"ansible_python_interpreter": sys.executable, **DRIVER, **variables}
    (tmp_path / "values.json").write_text(json.dumps(values))
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        *("-i", "localhost,", "-c", "local", "-e", f"@{tmp_path}/values.json", f"{tmp_path}/play.yml"),
    ]
    environment = dict(os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=ROOT, check=False)
    output = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert done.returncode == 2, output
    return output


def test_every_wrong_value_is_told_at_once_by_its_variable_and_its_place(tmp_path):
    output = refusal(
        tmp_path,
        gpu_verify_expected_count="eight",
        gpu_preflight_passthrough="maybe",
        nvidia_driver_installer_timeout="long",
    )
    for variable in ("gpu_verify_expected_count", "gpu_preflight_passthrough", "nvidia_driver_installer_timeout"):
        assert variable in output
        assert "README of the role " + re.match("gpu_verify|gpu_preflight|nvidia_driver", variable).group() in output


def test_P6_a_python_that_is_too_old_for_any_module_is_told(tmp_path):
    python = tmp_path / "python3.6"
    python.write_text(
        "#!/bin/sh\ncat > /dev/null\necho 'SyntaxError: future feature annotations is not defined' >&2\nexit 1\n"
    )
    python.chmod(0o755)
    output = refusal(tmp_path, ansible_python_interpreter=str(python))
    assert "Install Python 3.8 or newer beside it, and name that one in ansible_python_interpreter" in output


def test_a_version_that_yaml_took_for_a_number_is_told_once(tmp_path):
    output = refusal(tmp_path, nvidia_driver_version=570.190)
    assert "nvidia_driver_version: 570.19 is a number, which drops the zeros at its end. Write the value in" in output
    assert "gpu_verify_driver_version" not in output
