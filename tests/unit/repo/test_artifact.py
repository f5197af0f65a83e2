# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball that users install: what is in it, and that its playbooks start from it."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.unit.repo import laws

BIN = Path(sys.executable).parent


def run(*argv, cwd, **environment):
    keep = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(cwd), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, cwd=cwd, env=keep | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    # from a copy of what git tracks: a checkout's untracked files are no part of a release
    folder = tmp_path_factory.mktemp("build")
    files = run("git", "ls-files", "-z", cwd=laws.repository()).split("\0")
    for name in filter(None, files):
        source, copy = laws.repository() / name, folder / "source" / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    run("ansible-galaxy", "collection", "build", "--output-path", str(folder), str(folder / "source"), cwd=folder)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def members(tarball):
    with tarfile.open(tarball) as archive:
        return {member.name for member in archive.getmembers() if not member.isdir()}


def test_it_holds_what_runs(members):
    for pattern in ("playbooks/*.yml", "roles/*/tasks/main.yml", "plugins/**/*.py", "meta/runtime.yml"):
        wanted = {str(path.relative_to(laws.repository())) for path in laws.repository().glob(pattern)}
        tracked = set(run("git", "ls-files", cwd=laws.repository()).split())
        assert wanted & tracked <= members
    assert {"README.md", "LICENSE", "CHANGELOG.md"} <= members


def test_it_holds_nothing_of_the_test_bed(members):
    allowed = {"playbooks", "roles", "plugins", "meta", "docs", "MANIFEST.json", "FILES.json"}
    allowed |= {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert {name.partition("/")[0] for name in members} <= allowed


def test_installed_playbooks_run_by_their_full_name(tarball, tmp_path):
    run("ansible-galaxy", "collection", "install", "--offline", "-p", "collections", str(tarball), cwd=tmp_path)
    listed = run(
        *("ansible-playbook", "-i", "h1,", "--list-tasks", "-e", "gpu_hosts=all", "gpufleet.metal.site"),
        cwd=tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"),
    )
    assert "gpufleet.metal.gpu_assess" in listed
