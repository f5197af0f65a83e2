# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role only looks: what is tested here is that nothing of it is on the host."""


def test_no_probe_is_left(host):
    assert host.check_output("find / -xdev -name '.gpufleet-exec-probe'") == ""


def test_nothing_was_prepared_for_a_driver(host):
    assert not host.file("/var/lib/gpufleet").exists
    assert host.run("ls -d /etc/modprobe.d/gpufleet-* /etc/apt/apt.conf.d/*gpufleet*").stdout == ""


def test_no_driver_was_installed(host):
    assert host.run("ls -d /usr/src/nvidia-* /usr/lib/x86_64-linux-gnu/libnvidia-ml.so*").stdout == ""
