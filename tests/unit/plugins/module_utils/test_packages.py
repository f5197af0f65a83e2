# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from ansible_collections.gpufleet.metal.plugins.module_utils import _packages

STATUS = """\
Package: linux-image-amd64
Status: hold ok installed
Architecture: amd64
Version: 6.1.148-1
Description: Linux for 64-bit PCs
 Version: this line belongs to the description

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.36-9

Package: docker.io
Status: install ok half-configured
Architecture: amd64
Version: 20.10.24

Package: oldthing
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: wanted-later
Status: hold ok not-installed
"""


def test_installed_packages_with_their_holds(make_host):
    found = _packages.installed(make_host({"/var/lib/dpkg/status": STATUS}))
    assert found == {
        "linux-image-amd64": {"version": "6.1.148-1", "arch": "amd64", "status": "installed", "hold": True},
        "libc6": {"version": "2.36-9", "arch": "amd64", "status": "installed", "hold": False},
        "libc6:i386": {"version": "2.36-9", "arch": "i386", "status": "installed", "hold": False},
        "docker.io": {"version": "20.10.24", "arch": "amd64", "status": "half-configured", "hold": False},
    }


def test_the_manager_is_told_by_its_own_files(make_host):
    assert _packages.manager(make_host()) is None
    assert _packages.manager(make_host({"/usr/bin/dnf": ""})) == "dnf"
    assert _packages.manager(make_host({"/usr/bin/dnf": "", "/var/lib/dpkg/status": STATUS})) == "apt"


def test_a_host_without_dpkg_has_no_packages(make_host):
    assert _packages.installed(make_host()) == {}
