# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from ansible_collections.gpufleet.metal.plugins.plugin_utils import variables

ROLES = {"gpu": {"gpu_x"}, "nvidia_driver": {"nvidia_driver_version", "nvidia_driver_runfile_sha256"}}


def test_a_misspelt_variable_is_named_with_the_right_one():
    found = variables.unknown(["nvidia_driver_verison", "nvidia_driver_version"], ROLES)
    assert found == [
        "nvidia_driver_verison: role nvidia_driver has no such variable; did you mean nvidia_driver_version?"
    ]


def test_a_variable_like_no_other_gets_the_list():
    (found,) = variables.unknown(["nvidia_driver_qqqqqqqqqqqqqqqqqqqqqqqqqq"], ROLES)
    assert "known: nvidia_driver_runfile_sha256, nvidia_driver_version" in found


def test_other_peoples_variables_and_internal_ones_are_left_alone():
    assert variables.unknown(["nvidia_drivers", "__nvidia_driver_plan", "docker_version"], ROLES) == []


def test_every_role_is_read():
    declared = variables.declared()
    assert "nvidia_driver_version" in declared["nvidia_driver"]
    assert {path.name for path in variables.ROLES.iterdir()} == set(declared)
