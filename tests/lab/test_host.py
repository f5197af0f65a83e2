# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab host looks and behaves like the machine it stands for."""

import json

import pytest

from sim import machine

pytestmark = pytest.mark.lab

GPU = "/sys/bus/pci/devices/0000:1b:00.0"


@pytest.fixture(scope="module")
def described():
    return machine.load("hgx-h100-8")


def read(guest, path):
    return guest.output("cat", path)


def test_systemd_is_up_and_nothing_failed(guest):
    assert guest.output("systemctl", "--failed", "--no-legend", "--plain") == ""


def test_gpus_are_on_the_pci_bus(guest, described):
    names = guest.output("ls", "/sys/bus/pci/devices").split()
    assert {gpu["pci"] for gpu in described["gpus"]} <= set(names)
    assert read(guest, f"{GPU}/device") == "0x2330"
    assert read(guest, f"{GPU}/max_link_speed") == "32.0 GT/s PCIe"


def test_upstream_port_is_found_through_the_resolved_path(guest, described):
    upstream = described["gpus"][0]["upstream"]
    port = guest.output("dirname", guest.output("realpath", GPU))
    assert port.endswith(f"/{upstream['pci']}")
    assert read(guest, f"{port}/max_link_width") == str(upstream["max_width"])


def test_kernel_release_is_the_one_grub_starts(guest):
    release = read(guest, "/proc/sys/kernel/osrelease")
    assert guest.output("uname", "-r") == release
    assert f"vmlinuz-{release} " in read(guest, "/proc/cmdline")
    guest.output("test", "-e", f"/lib/modules/{release}/build/Makefile")
    assert len(guest.output("ls", "/lib/modules").split()) == 2


def test_fresh_host_has_nouveau_and_no_nvidia(guest):
    assert guest.output("readlink", "-f", f"{GPU}/driver").endswith("/nouveau")
    assert guest.run("test", "-e", "/proc/driver/nvidia").returncode != 0
    assert "nouveau" in guest.output("lsmod")


def test_description_on_the_host_is_the_loaded_one(guest, described):
    assert json.loads(read(guest, "/etc/gpufleet-sim/machine.json")) == json.loads(json.dumps(described))


def test_unknown_module_is_refused_like_kmod_does(guest):
    done = guest.run("modprobe", "no-such-module")
    assert done.returncode == 1
    assert "Module no-such-module not found in directory /lib/modules/" in done.stderr


def test_nouveau_holds_the_console(guest):
    done = guest.run("modprobe", "-r", "nouveau")
    assert done.returncode == 1
    assert "Module nouveau is in use" in done.stderr
    assert int(read(guest, "/sys/module/nouveau/refcnt")) > 0
    assert guest.output("readlink", "-f", f"{GPU}/driver").endswith("/nouveau")


def test_reboot_keeps_the_disk_and_changes_the_boot(guest, lab):
    before = read(guest, "/run/gpufleet-sim/boot_id")
    guest.output("touch", "/var/lib/kept", "/run/gone")
    done = lab("reboot", guest.name)
    assert done.returncode == 0, done.stderr
    assert read(guest, "/run/gpufleet-sim/boot_id") != before
    guest.output("test", "-e", "/var/lib/kept")
    assert guest.run("test", "-e", "/run/gone").returncode != 0


def test_A1_blacklist_without_new_initramfs_does_not_keep_nouveau_out(guest, lab):
    guest.output("sh", "-c", "echo 'blacklist nouveau' > /etc/modprobe.d/block.conf")
    lab("reboot", guest.name)
    assert "nouveau" in guest.output("lsmod")
    guest.output("update-initramfs", "-u", "-k", "all")
    lab("reboot", guest.name)
    assert "nouveau" not in guest.output("lsmod")
    guest.output("rm", "/etc/modprobe.d/block.conf")
    guest.output("update-initramfs", "-u", "-k", "all")


def test_command_line_comes_from_grub(guest, lab):
    guest.output("sed", "-i", 's/^GRUB_CMDLINE_LINUX=.*/GRUB_CMDLINE_LINUX="iommu=pt"/', "/etc/default/grub")
    guest.output("update-grub")
    other = guest.output("sh", "-c", "ls /lib/modules | sort -V | head -n 1")
    guest.output("gpufleet-lab-next-kernel", other)
    lab("reboot", guest.name)
    assert "iommu=pt" in read(guest, "/proc/cmdline").split()
    assert read(guest, "/proc/sys/kernel/osrelease") == other
