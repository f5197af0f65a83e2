# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on a Debian host, seen by apt and dpkg and not by the collection's own readers."""

import json
import re

import pytest

OURS = "/etc/apt/preferences.d/00-gpufleet-version-lock"
RECORD = "/var/lib/gpufleet/version_lock.json"


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


@pytest.fixture(scope="module")
def locked(host):
    """Installed kernel and toolkit packages: name -> version."""
    with host.sudo():
        rows = host.check_output("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'").splitlines()
    pattern = re.compile(
        r"installed ((?:linux-(?:image|headers)-|nvidia-container|libnvidia-container|nvlsm)\S*) (\S+)"
    )
    return dict(match.groups() for match in map(pattern.fullmatch, rows) if match)


@pytest.fixture(scope="module")
def tempting(host, locked):
    """apt options that show a repository with a newer version of everything that is locked, and with drivers.

    Whatever repositories the host has, and whether it reaches them, this one offers what an upgrade would take.
    """
    offers = dict.fromkeys(locked, "")
    offers.update({"bash": "", "cuda-toolkit-12-8": "", "libcuda1": "", "nvidia-fabricmanager-570": ""})
    offers.update({"nvidia-driver": "libcuda1", "nvidia-smi": "libcuda1", "nvtop": "libcuda1"})
    offers.update({"cuda": "cuda-drivers", "cuda-drivers": "nvidia-driver"})
    packages = "\n".join(
        f"Package: {name}\nArchitecture: amd64\nVersion: 99:1\nMaintainer: n <n@example.com>\nFilename: ./{name}.deb\n"
        f"Size: 1\nSHA256: {'1' * 64}\n" + (f"Depends: {depends}\n" if depends else "") + "Description: a package\n"
        for name, depends in offers.items()
    )
    with host.sudo():
        folder = host.check_output("mktemp -d")
        host.check_output("mkdir -p %s/lists/partial && chmod 755 %s", folder, folder)
        host.check_output("printf %%s %s > %s/Packages", packages, folder)
        host.check_output("echo %s > %s/sources.list", f"deb [trusted=yes] file:{folder} ./", folder)
        options = f"-o Dir::Etc::sourcelist={folder}/sources.list -o Dir::Etc::sourceparts=/dev/null"
        options += f" -o Dir::State::lists={folder}/lists -o APT::Sandbox::User=root"
        options += " -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
        host.check_output(f"apt-get {options} update --error-on=any")
    yield options
    with host.sudo():
        host.check_output("rm -r %s", folder)


def simulated(host, options, command):
    """Packages that apt would install, upgrade or remove."""
    done = host.run(f"apt-get -s -y {options} {command}")
    return done.rc, set(re.findall(r"^(?:Inst|Remv) (\S+)", done.stdout, re.MULTILINE))


def test_E2_the_packages_are_held_by_their_names(host, locked):
    assert [name for name in locked if name.startswith("linux-image")]
    held = host.check_output("apt-mark showhold").split()
    assert set(locked) <= set(held)
    assert "*" not in " ".join(held)


def test_E9_apt_keeps_the_installed_versions(host, tempting, locked):
    for name, version in locked.items():
        policy = host.check_output(f"apt-cache {tempting} policy {name}")
        assert f"Installed: {version}\n  Candidate: {version}\n" in policy
        assert re.search(r"^     99:1 -1$", policy, re.MULTILINE)


def test_E19_a_full_upgrade_touches_no_locked_package(host, tempting):
    assert simulated(host, tempting, "dist-upgrade") == (0, {"bash"})


def test_E6_the_pin_holds_without_the_hold(host, tempting, locked):
    names = " ".join(locked)
    host.check_output("apt-mark unhold " + names)
    try:
        assert simulated(host, tempting, "dist-upgrade") == (0, {"bash"})
    finally:
        host.check_output("apt-mark hold " + names)


def test_without_our_file_and_holds_apt_would_move_them(host, tempting, locked):
    host.check_output("sed 's/^Status: hold/Status: install/' /var/lib/dpkg/status > /tmp/status-without-holds")
    options = " -o Dir::Etc::preferencesparts=/dev/null -o Dir::State::status=/tmp/status-without-holds"
    rc, touched = simulated(host, tempting + options, "dist-upgrade")
    assert (rc, touched) == (0, {"bash", *locked})


@pytest.mark.parametrize("name", ["nvidia-driver", "nvidia-smi", "libcuda1", "cuda-drivers", "cuda", "nvtop"])
def test_D7_D8_a_second_driver_cannot_come_in(host, tempting, name):
    assert simulated(host, tempting, "install " + name) == (100, set())


@pytest.mark.parametrize("name", ["cuda-toolkit-12-8", "nvidia-fabricmanager-570"])
def test_D8_what_brings_no_driver_can_be_installed(host, tempting, name):
    assert simulated(host, tempting, "install " + name) == (0, {name})


def test_apt_accepts_our_file_without_a_word(host):
    assert host.file(OURS).mode == 0o644
    done = host.run("apt-cache policy bash")
    assert (done.rc, done.stderr) == (0, "")


def test_the_proof_is_kept_for_the_reader(host):
    proof = json.loads(host.file(RECORD).content_string)["proof"]
    assert {"command": "apt-get -s dist-upgrade", "result": "touches nothing of the set"} in proof
