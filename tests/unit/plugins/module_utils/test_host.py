# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real door to a machine: commands that are really run, files that are really written."""

import os
import signal
import stat
import time

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._host import RC_NOT_FOUND, RC_TIMEOUT, Busy, Host

TRANSLATED = '[ "$LC_ALL" = C ] && [ "$LANGUAGE" = C ] && echo "not installed" || echo "non installé"'


@pytest.mark.parametrize("language", ["fr_FR.UTF-8", "zh_CN.UTF-8", "pl_PL.UTF-8"])
def test_M22_every_command_speaks_untranslated_whatever_the_session_speaks(monkeypatch, language):
    for name in ("LANG", "LC_ALL", "LC_MESSAGES", "LANGUAGE"):
        monkeypatch.setenv(name, language)
    assert Host().run(["sh", "-c", TRANSLATED]).out == "not installed\n"
    assert Host().run(["sh", "-c", TRANSLATED], env={"CC": "/usr/bin/gcc-12"}).out == "not installed\n"


def test_a_command_that_hangs_is_ended_with_its_children():
    started = time.monotonic()
    answer = Host().run(["sh", "-c", "sleep 60 & echo $!; wait"], timeout=0.5)
    assert time.monotonic() - started < 10
    assert answer.rc == RC_TIMEOUT and not answer.ok
    assert "stopped after 0.5 s" in answer.err
    assert not Host().read_text(f"/proc/{answer.out.strip()}/cmdline")  # gone, or nothing but its exit status


def test_a_command_that_is_not_there_is_an_answer():
    assert Host().run(["gpufleet-no-such-command"]).rc == RC_NOT_FOUND


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    host = Host(root=str(tmp_path))
    host.write("/etc/file", "old", mode=0o600)
    monkeypatch.setattr(os, "replace", lambda *_paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        host.write("/etc/file", "new")
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["file"]
    assert host.read_text("/etc/file") == "old"
    assert stat.S_IMODE(os.stat(tmp_path / "etc/file").st_mode) == 0o600


def test_P12_the_change_lock_has_one_holder(tmp_path):
    other = Host(root=str(tmp_path)).exclusive(timeout=0)
    with Host(root=str(tmp_path)).exclusive(timeout=0), pytest.raises(Busy, match="change.lock"):
        other.__enter__()
    with Host(root=str(tmp_path)).exclusive(timeout=0):
        pass


@pytest.mark.parametrize("keeps_lock", [True, False])
def test_P12_what_a_killed_run_had_begun_keeps_the_lock_to_its_end_where_it_has_to(tmp_path, keeps_lock):
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    work = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.1; done"
    killed = os.fork()
    if not killed:
        host = Host(root=str(tmp_path))
        with host.exclusive(timeout=0):
            host.run(["sh", "-c", work], keeps_lock=keeps_lock)
        os._exit(0)
    while not ready.exists():
        time.sleep(0.05)
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    next_run = Host(root=str(tmp_path))
    if keeps_lock:
        with pytest.raises(Busy):
            next_run.exclusive(timeout=0).__enter__()
    go_on.touch()
    with next_run.exclusive(timeout=30 if keeps_lock else 0):
        pass
