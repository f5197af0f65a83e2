# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA driver versions: two or three numbers, such as 515.57, 570.144 and 535.104.05.

The text is kept as NVIDIA writes it (leading zeros are part of file names); comparisons are numerical, part by part.
"""

import re

#: A version inside other text, such as ``libnvidia-ml.so.570.86.15``.
PATTERN = r"\d{3,4}\.\d{1,3}(?:\.\d{1,2})?"

#: /proc/driver/nvidia/version writes "NVIDIA UNIX x86_64 Kernel Module  520.56.06" for the proprietary module and
#: "NVIDIA UNIX Open Kernel Module for x86_64  570.158.01" for the open one.
_PROC_LINE = re.compile(
    r"^NVRM version:\s+NVIDIA UNIX\s+"
    r"(?:(?P<open>Open Kernel Module for)\s+(?P<open_arch>\S+)|(?P<arch>\S+)\s+Kernel Module)\s+"
    rf"(?P<version>{PATTERN})(?![\d.])",
    re.MULTILINE,
)


def parse(text):
    """The numbers of a version: ``parse("535.104.05") == (535, 104, 5)``.

    :raises ValueError: when the text is not a driver version.
    """
    if not isinstance(text, str) or not re.match(rf"{PATTERN}\Z", text):
        raise ValueError(f"{text!r} is not an NVIDIA driver version; examples: 570.144, 580.65.06")
    return tuple(int(part) for part in text.split("."))


def key(text):
    """A sort key: always three numbers, so that 570.144 equals 570.144.0 and is older than 570.144.01."""
    return (parse(text) + (0,))[:3]


def branch(text):
    """The driver branch, an int: ``branch("570.86.15") == 570``."""
    return parse(text)[0]


def find(text):
    """The first driver version inside a text (a file name, a title), or None."""
    match = re.search(rf"(?<!\d)(?<!\d\.){PATTERN}(?!\.?\d)", text or "")
    return match.group(0) if match else None


def parse_proc(text):
    """/proc/driver/nvidia/version as ``{version: str, flavour: "open"|"proprietary", architecture: str}``, or None."""
    match = _PROC_LINE.search(text or "")
    if not match:
        return None
    return {
        "version": match.group("version"),
        "flavour": "open" if match.group("open") else "proprietary",
        "architecture": match.group("open_arch") or match.group("arch"),
    }
