# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role only looks; that it passed on this host must be true without the collection's own readers."""


def test_the_loaded_driver_is_the_wanted_one(host):
    assert "580.95.05" in host.file("/proc/driver/nvidia/version").content_string


def test_every_gpu_on_the_bus_is_in_nvml(host):
    classes = host.check_output("cat /sys/bus/pci/devices/*/class").split()
    on_the_bus = sum(text.startswith(("0x0300", "0x0302")) for text in classes)
    assert len(host.check_output("nvidia-smi -L").splitlines()) == on_the_bus


def test_nouveau_is_gone(host):
    assert not host.file("/sys/module/nouveau").exists
