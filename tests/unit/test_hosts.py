# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from tests.unit.hosts import Dir, File, Link


def test_the_tree_holds_files_folders_and_links(make_host):
    host = make_host(
        {
            "/etc/a": "text",
            "/sys/module/x": Dir(),
            "/rel": Link("etc/a"),
            "/abs": Link("/etc/a"),
            "/k": File("s", 0o600),
        }
    )
    assert host.read_text("/rel") == host.read_text("/abs") == "text"
    assert host.readlink("/abs") == "/etc/a"
    assert host.exists("/sys/module/x")
    assert host.stat("/k").st_mode & 0o777 == 0o600
    assert host.tree()["/abs"] == Link("/etc/a")


def test_an_absolute_link_never_leads_to_the_real_machine(make_host):
    assert not make_host({"/build": Link("/usr")}).exists("/build")


def test_an_unrecorded_command_fails_the_test(make_host):
    host = make_host({}, {("true",): (0, "")})
    assert host.run(["true"]).ok
    with pytest.raises(AssertionError, match="does not record"):
        host.run(["true", "--really"])
    assert host.calls == [("true",), ("true", "--really")]


def test_answers_can_come_one_after_another_or_change_the_tree(make_host):
    def create(host):
        host.put({"/made": "yes"})
        return (0, "made")

    host = make_host({}, {("status",): [(1, ""), (0, "up")], ("create",): create})
    assert [host.run(["status"]).rc, host.run(["status"]).rc] == [1, 0]
    assert host.run(["create"]).ok
    assert host.read_text("/made") == "yes"
