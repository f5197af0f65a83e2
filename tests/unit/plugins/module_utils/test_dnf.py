# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _dnf
from tests.unit.hosts import Link


@pytest.mark.parametrize(
    ("files", "version", "command"),
    [
        ({"/usr/bin/dnf": Link("dnf-3"), "/usr/bin/dnf-3": ""}, 4, "dnf"),
        ({"/usr/bin/dnf": Link("dnf5"), "/usr/bin/dnf5": "", "/usr/bin/dnf-3": ""}, 5, "dnf"),
        ({"/usr/bin/dnf": Link("dnf-3"), "/usr/bin/dnf-3": "", "/usr/bin/dnf5": ""}, 4, "dnf"),
        ({"/usr/bin/dnf5": ""}, 5, "dnf5"),
        ({"/usr/bin/yum": ""}, 4, "yum"),
        ({}, None, "dnf"),
    ],
)
def test_E18_which_dnf_the_command_is(make_host, files, version, command):
    host = make_host(files)
    assert (_dnf.version(host), _dnf.command(host)) == (version, command)


def test_who_is_at_work_is_named(make_host):
    host = make_host(
        {
            "/var/cache/dnf/metadata_lock.pid": "123",
            "/proc/123/comm": "dnf\n",
            "/var/lib/dnf/rpmdb_lock.pid": "124",  # that process has died
            "/var/lib/rpm/.rpm.lock": "",
            "/proc/7/comm": "packagekitd\n",
        }
    )
    inode = host.stat("/var/lib/rpm/.rpm.lock").st_ino
    lines = f"1: POSIX  ADVISORY  WRITE 7 fe:01:{inode} 0 EOF\n1: -> POSIX  ADVISORY  WRITE 8 fe:01:{inode} 0 EOF\n"
    host.put({"/proc/locks": lines + f"2: POSIX  ADVISORY  READ 9 fe:01:{inode} 0 EOF\n"})
    assert _dnf.running(host) == [
        "dnf (pid 123) holds /var/cache/dnf/metadata_lock.pid",
        "packagekitd (pid 7) holds /var/lib/rpm/.rpm.lock",
    ]


def test_nobody_is_at_work(make_host):
    assert _dnf.running(make_host({"/var/lib/rpm/.rpm.lock": "", "/proc/locks": ""})) == []
