# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's rpm repository, built for real with rpmbuild, rpmsign and createrepo_c."""

import subprocess
from pathlib import Path

import pytest

from sim.packages import rpm

ROWS = {
    "kernel": {
        "versions": ["5.14.0-1.el9", "5.14.0-2.el9"],
        "installed": 1,
        "requires": ["kernel-core = %{v}"],
        "provides": [],
        "security": True,
        "post": {"5.14.0-2.el9": "sleep 20"},
    },
    "nvidia-driver": {
        "versions": ["3:570-1"],
        "installed": 0,
        "requires": [],
        "provides": ["a"],
        "security": False,
        "post": {},
    },
}


def test_a_package_requires_its_own_version_where_it_says_so():
    assert "Requires: kernel-core = 5.14.0-2.el9\n" in rpm.spec(ROWS, 1)
    assert "%package -n nvidia-driver\n" not in rpm.spec(ROWS, 1)
    assert "Version: 570\nRelease: 1\nEpoch: 3\nProvides: a\n" in rpm.spec(ROWS, 0)


def test_a_version_may_have_an_installation_that_does_something():
    assert '%post -n kernel -p <lua>\nos.execute("sleep 20")\n' in rpm.spec(ROWS, 1)
    assert "%post" not in rpm.spec(ROWS, 0)


def test_a_fresh_host_has_the_oldest_and_security_updates_are_the_newest():
    assert rpm.start(ROWS) == [("kernel", "5.14.0-1.el9")]
    assert 'version="5.14.0" release="2.el9"' in rpm.updateinfo(ROWS)
    assert "nvidia-driver" not in rpm.updateinfo(ROWS)


@pytest.mark.slow
def test_the_repository_is_built_once_and_its_packages_are_signed(tmp_path: Path):
    directory = rpm.build(tmp_path / "rpm")
    stamp = (directory / "el9" / "repodata" / "repomd.xml").stat()
    assert rpm.build(directory) == directory
    assert (directory / "el9" / "repodata" / "repomd.xml").stat() == stamp
    names = {path.name for path in (directory / "start").iterdir()}
    assert names == {f"{name}-{full.rpartition(':')[2]}.x86_64.rpm" for name, full in rpm.start(rpm.packages())}
    database = ["--dbpath", str(tmp_path / "database")]
    subprocess.run(["rpm", *database, "--import", directory / "RPM-GPG-KEY"], check=True)
    files = sorted((directory / "el9").glob("*.rpm"))
    done = subprocess.run(["rpm", *database, "--checksig", *files], capture_output=True, text=True, check=True)
    assert done.stdout.count("signatures OK") == len(files)
