# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_version as versions

CASES = ["470.256.02", "515.57", "535.98", "570.86.15", "570.144", "580.65.06"]


@pytest.mark.parametrize("text", CASES)
def test_C10_two_and_three_part_versions_are_found_in_file_names(text):
    assert versions.find(f"NVIDIA-Linux-x86_64-{text}.run") == text
    assert versions.find(f"libnvidia-ml.so.{text}") == text


def test_C10_versions_compare_numerically_part_by_part():
    assert sorted(set(CASES), key=versions.key) == CASES
    assert versions.parse("535.104.05") == (535, 104, 5)
    assert versions.key("570.144") == versions.key("570.144.00")


@given(st.tuples(st.integers(300, 999), st.integers(0, 299), st.integers(0, 99)))
def test_the_text_keeps_its_order(numbers):
    text = "%d.%02d.%02d" % numbers
    assert versions.key(text) == numbers
    assert versions.branch(text) == numbers[0]


@pytest.mark.parametrize(
    "text", ["", "580", "v580.65.06", "580.65.06-1", "580.65.06.01", "latest", "580.65.06\n", None, 580.65]
)
def test_what_is_no_version_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"580\.65\.06"):
        versions.parse(text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022\nGCC version\n",
            {"version": "520.56.06", "flavour": "proprietary", "architecture": "x86_64"},
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build  (dvs-builder@U16)\n",
            {"version": "570.158.01", "flavour": "open", "architecture": "x86_64"},
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build\n",
            {"version": "580.65.06", "flavour": "open", "architecture": "aarch64"},
        ),
        (
            "NVRM version: NVIDIA UNIX aarch64 Kernel Module  535.98  Fri Aug 11 2023\n",
            {"version": "535.98", "flavour": "proprietary", "architecture": "aarch64"},
        ),
        ("GCC version:  gcc version 12.2.0\n", None),
        (None, None),
    ],
)
def test_M17_both_flavours_and_architectures_of_the_proc_file(line, expected):
    assert versions.parse_proc(line) == expected
