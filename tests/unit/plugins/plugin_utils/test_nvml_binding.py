# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from importlib import metadata

import pytest

from ansible_collections.gpufleet.metal.plugins.plugin_utils import nvml_binding


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """``installed(folder=version, ...)``: the controller has these copies; the source of each is its version."""

    def install(distribution="nvidia-ml-py", **copies):
        folders = []
        for name, version in copies.items():
            folder = tmp_path / name
            info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
            (folder / "pynvml.py").write_text(version)
            folders.append(str(folder))
        found = metadata.distributions
        monkeypatch.setattr(nvml_binding.metadata, "distributions", lambda name: found(name=name, path=folders))

    return install


def test_the_newest_copy_is_taken(installed):
    installed(user="12.570.172", site="13.580.82", system="12.575.51")
    assert nvml_binding.source() == b"13.580.82"


def test_a_copy_that_is_too_old_is_not_sent(installed):
    installed(site="12.560.30")
    assert nvml_binding.source() is None


def test_another_distribution_of_the_same_module_is_not_taken(installed):
    installed(distribution="pynvml", site="13.0.0")
    assert nvml_binding.source() is None


def test_no_copy_is_none(installed):
    installed()
    assert nvml_binding.source() is None


def test_a_distribution_without_its_file_is_passed_over(installed, tmp_path):
    installed(user="13.580.82", site="12.575.51")
    (tmp_path / "user" / "pynvml.py").unlink()
    assert nvml_binding.source() == b"12.575.51"
