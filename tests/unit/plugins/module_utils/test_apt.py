# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import itertools
import os
import pty
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

PARTS = "/etc/apt/apt.conf.d/"


def value(settings, key):
    return settings.get(key.lower(), (None, None))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('APT::Periodic::Enable "1";', "1"),
        ("APT::Periodic::Enable 1;", "1"),
        ('APT::Periodic { Enable "1"; };', "1"),
        ('APT { Periodic { Enable "1"; }; };', "1"),
        ('apt::periodic::enable "1";', "1"),
        ('APT::Periodic::Enable "0"; APT::Periodic::Enable "1";', "1"),
        ('// APT::Periodic::Enable "0";\nAPT::Periodic::Enable "1"; // "0";', "1"),
        ('APT::Periodic::Enable "1"; # APT::Periodic::Enable "0";', "1"),
        ('/* APT::Periodic::Enable\n "0"; */ APT::Periodic::Enable "1";', "1"),
        ('Acquire::http::Proxy "http://cache:3142/"; APT::Periodic::Enable "1";', "1"),
        ('Unattended-Upgrade::Origins { "a"; "b=c"; }; APT::Periodic::Enable "1";', "1"),
        ('APT::Periodic::Enable "1"; #clear APT::Periodic;', None),
        ('APT::Periodic::Enable:: "1";', None),
        ("", None),
    ],
)
def test_apt_conf_syntax(text, expected):
    settings = {}
    _apt.parse_config(text, "test", settings)
    assert value(settings, "APT::Periodic::Enable") == expected


def test_files_are_read_in_apts_order_and_only_those_that_apt_reads(make_host):
    host = make_host(
        {
            PARTS + "10a": 'K "first";',
            PARTS + "20b.conf": 'K "second"; Only "here";',
            PARTS + "90c.dpkg-dist": 'K "ignored";',
            PARTS + "90d~": 'K "ignored";',
            PARTS + ".hidden": 'K "ignored";',
        }
    )
    assert _apt.effective_config(host) == {"k": ("second", PARTS + "20b.conf"), "only": ("here", PARTS + "20b.conf")}
    host.put({"/etc/apt/apt.conf": 'K "main";'})
    assert _apt.effective_config(host)["k"] == ("main", "/etc/apt/apt.conf")


LOCKS = "1: POSIX  ADVISORY  WRITE 4242 fe:01:{inode} 0 EOF\n1: -> POSIX  ADVISORY  WRITE 4243 fe:01:{inode} 0 EOF\n"


def locked_host(make_host, clock=None):
    host = make_host({"/var/lib/dpkg/lock-frontend": "", "/proc/4242/comm": "unattended-upgr\n"}, clock=clock)
    inode = os.stat(host.path("/var/lib/dpkg/lock-frontend")).st_ino
    host.put({"/proc/locks": "2: FLOCK  ADVISORY  WRITE 7 fe:01:1 0 EOF\n" + LOCKS.format(inode=inode)})
    return host


def test_E14_the_holder_of_a_lock_is_named(make_host):
    holder = {"path": "/var/lib/dpkg/lock-frontend", "pid": "4242", "command": "unattended-upgr"}
    assert _apt.lock_holders(locked_host(make_host)) == [holder]


def test_E14_a_lock_that_stays_ends_the_wait_and_kills_nothing(make_host, monkeypatch):
    monkeypatch.setattr(_apt.time, "sleep", lambda seconds: None)
    host = locked_host(make_host, clock=itertools.count(0, 10).__next__)
    with pytest.raises(ConcernError, match=r"after 30 s: unattended-upgr \(pid 4242\) holds .*left alone"):
        _apt.wait_until_free(host, 30, "version_lock_wait_timeout")
    assert host.calls == []


def test_E14_the_wait_ends_when_the_lock_is_free(make_host, monkeypatch):
    host = locked_host(make_host, clock=itertools.count(0, 1).__next__)
    monkeypatch.setattr(_apt.time, "sleep", lambda seconds: host.put({"/proc/locks": ""}))
    _apt.wait_until_free(host, 30, "version_lock_wait_timeout")


# -- every command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_a_terminal", [False, True])
def test_E15_M22_no_command_can_ask_and_none_is_translated(tmp_path, monkeypatch, on_a_terminal):
    """A needrestart that would open a dialogue on a terminal, run by a play that has one."""
    needrestart = tmp_path / "needrestart"
    needrestart.write_text(
        '#!/bin/sh\n[ "$NEEDRESTART_MODE" != l ] && [ "$DEBIAN_FRONTEND" != noninteractive ] && read answer\n'
        'test -t 0 && read answer\necho "$NEEDRESTART_MODE $DEBIAN_FRONTEND $LC_ALL $LANGUAGE"\n'
    )
    needrestart.chmod(0o755)
    monkeypatch.setenv("LC_ALL", "fr_FR.UTF-8")
    monkeypatch.setenv("LANGUAGE", "fr")
    program = (
        "from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host\n"
        f"print(Host().run([{str(needrestart)!r}], timeout=5).out.strip())\n"
    )
    argv = [sys.executable, "-c", program]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    if not on_a_terminal:
        out = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment, timeout=30).stdout
    else:
        ours, theirs = pty.openpty()
        run = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        assert run.wait(timeout=30) == 0
        out = os.read(ours, 4096).decode()
        os.close(ours)
        os.close(theirs)
    assert out.strip() == "l noninteractive C C"
