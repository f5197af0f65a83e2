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


@pytest.fixture
def kernels(host):
    """Installed kernel packages: name -> version."""
    rows = host.check_output(
        "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' 'linux-image-*' 'linux-headers-*'"
    )
    return dict(line.split()[1:] for line in rows.splitlines() if line.startswith("installed "))


def simulated(host, command):
    """Packages that apt would install, upgrade or remove."""
    done = host.run("apt-get -s -y -o Debug::NoLocking=true " + command)
    return done.rc, set(re.findall(r"^(?:Inst|Remv) (\S+)", done.stdout, re.MULTILINE))


def test_E2_the_kernels_are_held_by_their_names(host, kernels):
    assert kernels
    held = host.check_output("apt-mark showhold").split()
    assert set(kernels) <= set(held)
    assert "*" not in " ".join(held)


def test_E9_apt_keeps_the_installed_versions(host, kernels):
    for name, version in kernels.items():
        policy = host.check_output("apt-cache policy %s", name)
        assert f"Installed: {version}\n  Candidate: {version}\n" in policy
        assert re.search(rf"\*\*\* {re.escape(version)} 1001$", policy, re.MULTILINE)


def test_E19_a_full_upgrade_touches_no_locked_package(host, kernels):
    rc, touched = simulated(host, "dist-upgrade")
    assert rc == 0
    assert not touched.intersection(kernels)
    assert not [name for name in touched if name.startswith(("linux-image", "linux-headers", "nvidia", "libnvidia"))]


@pytest.mark.parametrize("name", ["nvidia-driver", "nvidia-smi", "libcuda1", "cuda-drivers", "cuda"])
def test_D7_D8_a_second_driver_cannot_be_installed(host, name):
    rc, touched = simulated(host, "install " + name)
    assert rc != 0
    assert touched == set()


def test_E6_the_pin_holds_without_the_hold(host, kernels):
    names = " ".join(kernels)
    host.check_output("apt-mark unhold " + names)
    try:
        assert not simulated(host, "dist-upgrade")[1].intersection(kernels)
    finally:
        host.check_output("apt-mark hold " + names)


def test_apt_accepts_our_file_without_a_word(host):
    assert host.file(OURS).mode == 0o644
    done = host.run("apt-cache policy")
    assert (done.rc, done.stderr) == (0, "")


def test_the_proof_is_kept_for_the_reader(host):
    proof = json.loads(host.file(RECORD).content_string)["proof"]
    assert {"command": "apt-get -s dist-upgrade", "result": "touches nothing of the set"} in proof
