# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import installer_log

FIXTURES = Path(__file__).parents[4] / "fixtures" / "installer-logs"


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


#: Recorded log -> the signature it must be taken for; an installer that believes it succeeded leaves none.
RECORDED = {
    "compiler-mismatch": "compiler",
    "dkms-build-failed": "kernel_too_new",
    "headers-missing": "no_headers",
    "module-loaded": "module_loaded",
    "nouveau-in-use": "nouveau",
    "rc0-without-module": None,
    "tmp-noexec": "tmp_noexec",
    "truncated": "truncated",
    "unsigned": "unsigned",
    "unsupported-gpu": "unsupported_gpu",
}


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.log")), ids=lambda path: path.stem)
def test_C9_every_recorded_log_is_classified(path):
    verdict = installer_log.classify(path.read_text())
    assert (verdict and verdict["key"]) == RECORDED[path.stem]


def test_the_log_of_a_complete_installation_names_its_version():
    text = "Installation of the NVIDIA Accelerated Graphics Driver (version: 580.65.06) is now\n    complete.\n"
    assert installer_log.finished(text) == "580.65.06"
    assert installer_log.finished("Installation has failed.") is None
    assert installer_log.finished(None) is None
