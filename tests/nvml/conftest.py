# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: a simulated machine, its control tool, code run against it."""

import pytest

from tests.nvml.simulated import SOURCES, build, control, place, run_nvml


@pytest.fixture(scope="session")
def nvml_library():
    """Path of the built library."""
    build("all")
    return SOURCES / "build" / "libnvidia-ml.so"


@pytest.fixture
def nvml_machine(nvml_library, tmp_path_factory):
    """``nvml_machine(name, library=None, driver=None, root=None) -> env``: a booted machine with its driver loaded."""

    def make(name, library=None, driver=None, root=None):
        return place(root or tmp_path_factory.mktemp("machine"), name, library or nvml_library, driver)

    return make


@pytest.fixture
def sim_control():
    """``sim_control(env, *arguments, check=True)``: the control tool on a machine."""
    return control


@pytest.fixture
def nvml():
    """``nvml(env, code) -> out``: run code against a machine; see :func:`run_nvml`."""

    def run(env, code, **options):
        process, out = run_nvml(env, code, **options)
        assert process.returncode == 0, process.stderr
        return out

    return run
