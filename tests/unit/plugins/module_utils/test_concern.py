# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The body of every concern's module: real ``run_module`` on a literal tree."""

import contextlib
import errno
import json
import os
import signal

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.metal.plugins.module_utils import _concern
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, Difference
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Busy
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import binding
from ansible_collections.gpufleet.metal.plugins.modules import nvidia_driver
from tests.unit.plugins.module_utils.nvidia_driver import trees

FILE = "/etc/demo"


class Demo(Concern):
    """One file with one word in it."""

    name = "demo"
    options: dict = {"word": {"type": "str", "default": "yes"}}

    def read(self, host, desired):
        return {"word": host.read_value(FILE)}

    def assess(self, state, desired):
        difference = Difference()
        if state["word"] != desired["word"]:
            difference.add(FILE, state["word"], desired["word"], "it is wanted", "Write " + FILE)
        return difference

    def apply(self, host, desired, state, difference):
        host.write(FILE, desired["word"])


@pytest.fixture
def run(monkeypatch, capsys):
    """``run(host, main, **arguments)``: the module's answer, as Ansible would get it."""

    def call(host, main, **arguments):
        monkeypatch.setattr(_concern, "Host", lambda: host)
        with patch_module_args(arguments), contextlib.suppress(SystemExit):
            main()
        return json.loads(capsys.readouterr().out)

    return call


def test_a_change_is_made_once_and_only_said_in_check_mode(make_host, run):
    host = make_host()

    def demo():
        _concern.run_module(Demo())

    assert run(host, demo, _ansible_check_mode=True)["actions"] == ["Write " + FILE]
    assert not host.exists(FILE)
    assert run(host, demo)["changed"]
    assert not run(host, demo)["changed"]


def test_P12_the_host_is_inspected_again_once_the_other_run_has_ended(make_host, run):
    host = make_host()

    @contextlib.contextmanager
    def exclusive(timeout):
        host.put({FILE: "yes"})  # what the run that was waited for did
        yield

    host.exclusive = exclusive
    answer = run(host, lambda: _concern.run_module(Demo()))
    assert not answer["changed"]
    assert answer["actions"] == []


def test_P12_a_run_that_does_not_end_is_named_with_the_remedy(make_host, run):
    host = make_host()

    @contextlib.contextmanager
    def exclusive(timeout):
        raise Busy("/run/lock")
        yield

    host.exclusive = exclusive
    answer = run(host, lambda: _concern.run_module(Demo()))
    assert answer["failed"]
    assert "another run" in answer["msg"]
    assert "/run/lock" in answer["msg"]


def test_P12_a_connection_that_drops_with_its_terminal_does_not_end_the_work(make_host, run, monkeypatch):
    host = make_host()
    previous = signal.getsignal(signal.SIGHUP)
    apply = Demo.apply

    def hang_up(self, *arguments):
        os.kill(os.getpid(), signal.SIGHUP)
        apply(self, *arguments)

    monkeypatch.setattr(Demo, "apply", hang_up)
    try:
        assert run(host, lambda: _concern.run_module(Demo()))["changed"]
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert host.read_value(FILE) == "yes"


def test_a_host_that_refuses_to_be_written_is_a_message_and_no_crash(make_host, run):
    host = make_host()

    def write(path, content, mode=0o644):
        raise OSError(errno.EROFS, "Read-only file system", path)

    host.write = write
    answer = run(host, lambda: _concern.run_module(Demo()))
    assert answer["failed"]
    assert "Read-only file system" in answer["msg"]
    assert "run again" in answer["msg"]


def test_applied_but_still_different_is_a_failure(make_host, run):
    host = make_host()
    host.write = lambda path, content, mode=0o644: None
    answer = run(host, lambda: _concern.run_module(Demo()))
    assert "applied, but on re-reading the host these still differ: " + FILE in answer["msg"]


def test_the_driver_leaves_the_nvml_binding_only_when_it_changes_the_host(make_host, run):
    arguments = {"version": trees.VERSION, "runfile_sha256": trees.SHA256, "_nvml_binding": binding.pack(b"x = 1\n")}
    host = make_host(trees.virgin(), trees.tools())
    assert run(host, nvidia_driver.main, **arguments)["changed"]
    stored = host.glob(binding.STORE + "*.py")
    assert [host.read_bytes(path) for path in stored] == [b"x = 1\n"]
    host.remove(stored[0])
    assert not run(host, nvidia_driver.main, **arguments)["changed"]
    assert host.glob(binding.STORE + "*.py") == []
