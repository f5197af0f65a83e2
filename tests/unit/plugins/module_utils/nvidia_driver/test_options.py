# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import InvalidDesired, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver, flavour

H100 = {"address": "0000:1b:00.0", "device": "0x2330", "model": "H100 SXM5 80GB", "architecture": "hopper"}
V100 = {"address": "0000:3b:00.0", "device": "0x1db5", "model": "Tesla V100 SXM2 32GB", "architecture": "volta"}
B200 = {"address": "0000:5b:00.0", "device": "0x2901", "model": "B200", "architecture": "blackwell"}
UNKNOWN = {"address": "0000:6b:00.0", "device": "0xffff", "model": None, "architecture": None}


def document(**options):
    return {"version": "580.65.06", "runfile_sha256": "a" * 64, **options}


@pytest.mark.parametrize(
    "version", ["470.256.02", "515.57", "535.98", "570.144", "570.86.15", "580.65.06", "535.104.05"]
)
def test_C10_two_and_three_part_versions_are_accepted(version):
    assert validated(NvidiaDriver(), document(version=version))["version"] == version


@pytest.mark.parametrize(
    ("wrong", "variable"),
    [
        ({"version": None}, "nvidia_driver_version"),
        ({"version": "latest"}, "nvidia_driver_version"),
        ({"version": "580.65.06; reboot"}, "nvidia_driver_version"),
        ({"runfile_sha256": "abc"}, "nvidia_driver_runfile_sha256"),
        ({"runfile_sha256": None}, "nvidia_driver_runfile_sha256"),
        ({"runfile_checksum": "https://mirror/sums"}, "nvidia_driver_runfile_checksum"),
        ({"kernel_module_type": "closed"}, "nvidia_driver_kernel_module_type"),
        ({"installer_arguments": ["--tmpdir=/x"]}, "nvidia_driver_installer_arguments"),
        ({"installer_timeout": 0}, "nvidia_driver_installer_timeout"),
        ({"tmpdir": "tmp"}, "nvidia_driver_tmpdir"),
        ({"module_parameters": {"modeset": 1}}, "nvidia_driver_module_parameters"),
        ({"module_parameters": {"NVreg_X": "1\noptions other y=1"}}, "nvidia_driver_module_parameters"),
        ({"verison": "580.65.06"}, "nvidia_driver_verison"),
    ],
)
def test_a_wrong_document_is_refused_by_the_name_of_the_public_variable(wrong, variable):
    with pytest.raises(InvalidDesired) as error:
        validated(NvidiaDriver(), document(**wrong))
    assert variable in str(error.value)


def test_a_missing_version_tells_the_remedy_and_the_off_switch():
    with pytest.raises(InvalidDesired) as error:
        validated(NvidiaDriver(), {})
    assert "nvidia_driver_runfile_sha256" in str(error.value)
    assert "nvidia_driver_state to unmanaged" in str(error.value)
    assert validated(NvidiaDriver(), {"state": "unmanaged"})["version"] is None


def test_a_checksum_file_stands_for_the_sha256():
    assert validated(NvidiaDriver(), {"version": "570.144", "runfile_checksum": "sums.txt"})["runfile_sha256"] is None


@pytest.mark.parametrize(
    ("gpus", "version", "asked", "chosen"),
    [
        ([H100], "580.65.06", "auto", "open"),
        ([H100], "535.104.05", "auto", "proprietary"),
        ([H100], "535.104.05", "open", "open"),
        ([V100], "580.65.06", "auto", "proprietary"),
        ([B200], "580.65.06", "auto", "open"),
        ([H100, B200], "580.65.06", "auto", "open"),
        ([V100, H100], "570.144", "auto", "proprietary"),
        ([UNKNOWN], "580.65.06", "auto", "open"),
    ],
)
def test_B14_the_flavour_follows_from_the_gpus(gpus, version, asked, chosen):
    assert flavour.choose(gpus, version, asked) == (chosen, None)


@pytest.mark.parametrize(
    ("gpus", "version", "asked", "variable"),
    [
        ([V100], "590.10", "auto", "nvidia_driver_version"),
        ([B200], "550.90.07", "auto", "nvidia_driver_version"),
        ([V100, B200], "580.65.06", "auto", "nvidia_driver_version"),
        ([V100], "580.65.06", "open", "nvidia_driver_kernel_module_type"),
        ([B200], "580.65.06", "proprietary", "nvidia_driver_kernel_module_type"),
    ],
)
def test_B14_a_pair_that_cannot_work_is_refused_with_the_reason(gpus, version, asked, variable):
    chosen, reason = flavour.choose(gpus, version, asked)
    assert chosen is None
    assert reason.startswith(variable)
    assert "Use " in reason


@pytest.mark.parametrize(
    ("version", "chosen", "has", "lacks"),
    [
        ("580.65.06", "open", {"--kernel-module-type=open", "--skip-module-load"}, {"-m=kernel-open"}),
        ("580.65.06", "proprietary", {"--kernel-module-type=proprietary"}, set()),
        ("550.90.07", "open", {"-m=kernel-open", "--skip-module-load"}, {"--kernel-module-type=open"}),
        ("550.90.07", "proprietary", {"--skip-module-load"}, {"-m=kernel-open", "--kernel-module-type=proprietary"}),
        ("535.104.05", "open", {"-m=kernel-open"}, {"--skip-module-load"}),
    ],
)
def test_the_installer_gets_the_options_its_branch_knows(version, chosen, has, lacks):
    words = set(flavour.arguments(version, chosen, "6.1", "6.1", "/tmp"))
    assert has <= words
    assert not lacks & words
    assert {"--silent", "--ui=none", "--no-opengl-files", "--dkms", "--tmpdir=/tmp"} <= words


def test_B1_another_kernel_than_the_running_one_is_named_to_the_installer():
    assert "--kernel-name=6.1.0-29-amd64" in flavour.arguments(
        "580.65.06", "open", "6.1.0-29-amd64", "6.1.0-28-amd64", "/t"
    )
