# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import installer_log

FIXTURES = Path(__file__).parents[4] / "fixtures" / "installer-logs"
SPECS = Path(__file__).parents[5] / "roles/nvidia_driver/meta/argument_specs.yml"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("ERROR: The Nouveau kernel driver is currently in use by your system.", "nouveau"),
        ("ERROR: An NVIDIA kernel module 'nvidia-drm' appears to already be loaded in your kernel.", "module_loaded"),
        ("ERROR: Unable to load nvidia-modeset.ko: Device or resource busy", "module_loaded"),
        ("ERROR: Compiler version check failed: The major and minor number of the compiler", "compiler"),
        ("gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'", "compiler"),
        ("ERROR: Unable to find the kernel source tree for the currently running kernel.", "no_headers"),
        ("Error! Your kernel headers for kernel 6.1.0-28-amd64 cannot be found.", "no_headers"),
        ("ERROR: Temporary directory /tmp is not executable - use the --tmpdir option", "tmp_noexec"),
        ("modprobe: ERROR: could not insert 'nvidia': Required key not available", "unsigned"),
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "unsigned"),
        ("WARNING: You do not appear to have an NVIDIA GPU supported by the 580.65.06 NVIDIA", "unsupported_gpu"),
        ("ERROR: Unable to open 'kernel/dkms.conf' for copying", "leftovers"),
        ("tar: write error: No space left on device", "no_space"),
        ("Error in MD5 checksums: d41d8cd98f00b204e9800998ecf8427e is different from", "truncated"),
        ("Unexpected archive size.", "truncated"),
        ("ERROR: Failed to find dkms on the system!", "no_dkms"),
        ("Error! Bad return status for module build on kernel: 6.1.0-28-amd64 (x86_64)", "build_failed"),
        ("nv.c:1:2: error: implicit declaration of function 'get_user_pages'", "kernel_too_new"),
        ("ERROR: Unable to load the kernel module 'nvidia.ko'.", "load_failed"),
    ],
)
def test_C9_a_known_line_gets_a_cause_and_a_remedy(line, key):
    verdict = installer_log.classify(f"nvidia-installer log file\n{line}\n-> done\n")
    assert verdict["key"] == key
    assert verdict["line"] == line
    assert verdict["cause"]
    assert verdict["remedy"]


def test_C9_an_unknown_failure_is_not_guessed():
    assert installer_log.classify("ERROR: something new\n") is None


#: Log -> the signature it must be taken for, and the case it is from; a run that went well leaves none.
LOGS = {
    "aborted": ("D1", "aborted"),
    "alternate-install": ("D6", "alternate_install"),
    "api-mismatch": ("D12", "api_mismatch"),
    "build-failed": ("C8", "build_failed"),
    "compiler-mismatch": ("B6", "compiler"),
    "device-taken": ("B15", "device_taken"),
    "display-server": ("D3", "display_server"),
    "dkms-build-failed": ("C8", "kernel_too_new"),
    "fabric-manager-mismatch": ("J1", "fabric_manager_mismatch"),
    "firmware-missing": ("N2", "firmware_missing"),
    "gpu-lost": ("C9", "gpu_lost"),
    "gsp-required": ("B14", "unsupported_gpu"),
    "headers-missing": ("B1", "no_headers"),
    "invalid-bar": ("C9", "invalid_bar"),
    "leftovers": ("C9", "leftovers"),
    "load-failed": ("C9", "load_failed"),
    "modeset-busy": ("D3", "module_loaded"),
    "module-loaded": ("D1", "module_loaded"),
    "no-dkms": ("B3", "no_dkms"),
    "no-nvswitch": ("J3", "no_nvswitch"),
    "no-space": ("C2", "no_space"),
    "no-tools": ("C9", "no_tools"),
    "nouveau-in-use": ("C9", "nouveau"),
    "nvswitch-version-mismatch": ("J2", "fabric_manager_mismatch"),
    "open-required": ("B14", "unsupported_gpu"),
    "out-of-memory": ("C8", "out_of_memory"),
    "package-conflict": ("D9", "package_conflict"),
    "prebuilt-modules": ("D10", "prebuilt_modules"),
    "rc0-without-module": ("C8", None),
    "success": ("C9", None),
    "tmp-noexec": ("C1", "tmp_noexec"),
    "truncated": ("C4", "truncated"),
    "unsigned": ("B8", "unsigned"),
    "unsupported-gpu": ("B14", "unsupported_gpu"),
    "wrong-kernel": ("B1", "wrong_kernel"),
}


@pytest.mark.parametrize("name", LOGS, ids=lambda name: f"{LOGS[name][0]}-{name}")
def test_every_log_is_taken_for_what_it_is(name):
    verdict = installer_log.classify((FIXTURES / f"{name}.log").read_text())
    assert (verdict and verdict["key"]) == LOGS[name][1]


def test_C9_every_log_is_expected_and_every_signature_has_a_log():
    assert {path.stem for path in FIXTURES.glob("*.log")} == set(LOGS)
    assert {signature[0] for signature in installer_log.SIGNATURES} == {key for _case, key in LOGS.values()} - {None}


def test_C9_every_remedy_names_a_thing_to_do_and_every_variable_exists():
    variables = set(re.findall(r"^      (nvidia_driver_\w+):", SPECS.read_text(), re.MULTILINE))
    for key, _pattern, cause, remedy in installer_log.SIGNATURES:
        assert cause and remedy and not remedy.endswith("."), key
        assert set(re.findall(r"nvidia_driver_\w+", remedy)) <= variables, key


def test_the_log_of_a_complete_installation_names_its_version():
    text = "Installation of the NVIDIA Accelerated Graphics Driver (version: 580.65.06) is now\n    complete.\n"
    assert installer_log.finished(text) == "580.65.06"
    assert installer_log.finished("Installation has failed.") is None
    assert installer_log.finished(None) is None
