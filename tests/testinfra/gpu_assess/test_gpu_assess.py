# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role only looks: nothing of the collection is on the host afterwards."""


def test_it_writes_nothing(host):
    assert (
        host.check_output("find /etc /var/lib /usr/local/lib -xdev -iname '*gpufleet*' -not -path '*gpufleet-sim*'")
        == ""
    )


def test_nothing_was_masked_or_held(host):
    assert host.check_output("find /etc/systemd/system -lname /dev/null") == ""
    assert host.check_output("apt-mark showhold") == ""
