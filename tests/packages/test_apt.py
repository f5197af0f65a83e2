# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's repository, seen by the real apt and dpkg in a root of their own."""

import os
import re
import subprocess

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import version_set
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import _candidates
from sim.lab import cache
from sim.packages import apt
from sim.runfile.package import KNOWN_VERSIONS

CONFIGURATION = """
Dir "{root}";
Dir::State::status "{root}/status";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "root";
"""
TOOLKIT = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
]


class Apt:
    """apt over an empty root that trusts only the repository's key."""

    def __init__(self, root, repository, suites):
        for folder in (
            "etc/apt/apt.conf.d",
            "lists/partial",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
        ):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()
        (root / "apt.conf").write_text(CONFIGURATION.format(root=root))
        lines = [f"deb [signed-by={repository}/key.asc] file:{repository} {suite} main\n" for suite in suites]
        (root / "etc/apt/sources.list").write_text("".join(lines))
        self.environment = {**os.environ, "APT_CONFIG": str(root / "apt.conf"), "LC_ALL": "C"}

    def run(self, *argv):
        return subprocess.run(argv, capture_output=True, text=True, env=self.environment, check=False)

    def simulated(self, *names):
        done = self.run("apt-get", "-s", "-y", "install", *names)
        return done.returncode, dict(re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", done.stdout, re.MULTILINE))


@pytest.fixture
def stable(repository, tmp_path):
    tools = Apt(tmp_path, repository, ["stable"])
    done = tools.run("apt-get", "update", "--error-on=any")
    assert done.returncode == 0, done.stderr
    return tools


def test_apt_believes_the_signature_of_every_suite(repository, tmp_path):
    tools = Apt(tmp_path, repository, apt.catalogue()["suites"])
    done = tools.run("apt-get", "update", "--error-on=any")
    assert (done.returncode, done.stderr) == (0, "")


def test_apt_refuses_an_index_that_was_changed_after_signing(repository, tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(repository), str(copy)], check=True)
    release = copy / "dists/stable/InRelease"
    release.write_text(release.read_text().replace("Label: gpufleet lab", "Label: another"))
    assert Apt(tmp_path / "root", copy, ["stable"]).run("apt-get", "update", "--error-on=any").returncode != 0


def test_a_second_build_changes_nothing_and_a_changed_catalogue_makes_another_with_the_same_key(
    repository, monkeypatch
):
    release = repository / "dists/stable/InRelease"
    before, key = release.read_bytes(), (repository / "key.asc").read_bytes()
    apt.build(repository)
    assert release.read_bytes() == before
    monkeypatch.setattr(apt, "digest", lambda: "another")
    apt.build(repository)
    assert release.read_bytes() != before
    # A host that runs meanwhile has the old one, and goes on trusting the repository.
    assert (repository / "key.asc").read_bytes() == key


def test_nobody_else_reads_the_private_key(repository):
    kept = cache.CACHE / "packages-ed25519.key"
    assert kept.stat().st_mode & 0o077 == 0
    assert cache.MIRROR not in kept.parents


def test_a_built_package_has_the_fields_of_the_catalogue(repository):
    archive = repository / "pool" / "nvidia-container-toolkit_1.17.8-1_amd64.deb"
    fields = subprocess.run(["dpkg-deb", "-f", str(archive)], capture_output=True, text=True, check=True).stdout
    assert "Version: 1.17.8-1\n" in fields
    assert "nvidia-container-toolkit-base (= 1.17.8-1), libnvidia-container-tools (= 1.17.8-1)" in fields


def test_every_dependency_is_in_the_catalogue():
    document = apt.catalogue()
    names = {name for suite in document["suites"].values() for name in suite["packages"]}
    assert set(document["packages"]) <= names
    for fields in document["packages"].values():
        for row in (fields, *fields.get("at", {}).values()):
            for dependency in row.get("depends", []):
                assert {word.split()[0] for word in dependency.split("|")} <= names


def test_G13_apt_cannot_solve_an_older_toolkit_unless_all_four_are_named(stable):
    rc, _installed = stable.simulated("nvidia-container-toolkit=1.17.8-1")
    assert rc == 100
    wanted = dict.fromkeys(TOOLKIT, "1.17.8-1")
    assert stable.simulated(*(f"{name}=1.17.8-1" for name in TOOLKIT)) == (0, wanted)


@pytest.mark.parametrize(
    "name", ["nvtop", "nvidia-opencl-dev", "nvidia-cuda-toolkit", "cuda", "cuda-drivers", "nvidia-driver-580"]
)
def test_D7_D8_the_offenders_bring_a_driver_in(stable, name):
    rc, installed = stable.simulated(name)
    assert rc == 0
    assert [package for package in installed if _candidates.is_driver(package) and package != name]


@pytest.mark.parametrize("name", ["cuda-toolkit-12-8", "nvidia-container-toolkit", "nvidia-fabricmanager", "nvlsm"])
def test_D8_the_others_bring_none(stable, name):
    rc, installed = stable.simulated(name)
    assert rc == 0
    assert not [package for package in installed if _candidates.is_driver(package)]


@pytest.mark.parametrize("version", sorted(KNOWN_VERSIONS))
def test_J1_every_driver_of_the_lab_finds_its_fabric_manager(repository, tmp_path, version):
    tools = Apt(tmp_path, repository, ["fabric"])
    assert tools.run("apt-get", "update", "--error-on=any").returncode == 0
    names = version_set.names("nvidia-fabricmanager", int(version.split(".")[0]), "apt")
    offered = tools.run("apt-cache", "madison", *names).stdout
    assert f"{names[0]} | {version}-1 |" in offered


def test_J1_the_fabric_manager_of_another_branch_goes_out_in_the_same_step(repository, tmp_path):
    tools = Apt(tmp_path, repository, ["fabric"])
    tools.run("apt-get", "update", "--error-on=any")
    rc, installed = tools.simulated("nvidia-fabricmanager=580.95.05-1", "nvidia-fabricmanager-570-")
    assert (rc, installed) == (0, {"nvidia-fabricmanager": "580.95.05-1"})
