# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's parts that need no host."""

import pytest

from sim.lab import apt, images, inventory, mirror, network
from sim.lab.guest import bootloader
from sim.lab.process import LabError

GRUB = """
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="DEFAULT"
fi
menuentry 'Debian' --class os $menuentry_id_option 'simple' {
	if [ x$grub_platform = xxen ]; then insmod xzio; fi
	linux	/boot/vmlinuz-6.1.0-57 root=/dev/sda1 ro  quiet
}
submenu 'Advanced options' $menuentry_id_option 'advanced' {
	menuentry 'Debian, with Linux 6.1.0-57' $menuentry_id_option 'new' {
		linux	/boot/vmlinuz-6.1.0-57 root=/dev/sda1 ro
	}
	menuentry 'Debian, with Linux 6.1.0-56' $menuentry_id_option 'old' {
		linux	/boot/vmlinuz-6.1.0-56 root=/dev/sda1 ro iommu=pt
	}
}
menuentry 'Memory test' { linux16 /boot/memtest }
"""


@pytest.mark.parametrize(
    ("default", "environment", "release"),
    [
        ("0", {}, "6.1.0-57"),
        ("1>1", {}, "6.1.0-56"),
        ("advanced>old", {}, "6.1.0-56"),
        ("Advanced options>Debian, with Linux 6.1.0-56", {}, "6.1.0-56"),
        ("${saved_entry}", {"saved_entry": "1>old"}, "6.1.0-56"),
        ("${saved_entry}", {}, "6.1.0-57"),
        ("0", {"next_entry": "advanced>old"}, "6.1.0-56"),
        ("no such entry", {}, "6.1.0-57"),
    ],
)
def test_boot_loader_starts_the_entry_that_is_asked_for(default, environment, release):
    assert bootloader.choose(GRUB.replace("DEFAULT", default), environment).release == release


def test_command_line_is_what_follows_the_kernel():
    entry = bootloader.choose(GRUB.replace("DEFAULT", "1>1"), {})
    assert entry.command_line == "BOOT_IMAGE=/boot/vmlinuz-6.1.0-56 root=/dev/sda1 ro iommu=pt"


def test_a_choice_for_one_boot_is_forgotten(tmp_path):
    (tmp_path / "boot/grub").mkdir(parents=True)
    (tmp_path / bootloader.CONFIG).write_text(GRUB.replace("DEFAULT", "0"))
    (tmp_path / bootloader.ENVIRONMENT).write_text("# GRUB Environment Block\nnext_entry=1>1\n".ljust(1024, "#"))
    assert [bootloader.start(tmp_path).release for _ in range(2)] == ["6.1.0-56", "6.1.0-57"]
    assert len((tmp_path / bootloader.ENVIRONMENT).read_text()) == 1024


def test_mirrors_of_this_machine_are_used(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("# deb http://old.example.org/debian bookworm main\n")
    (tmp_path / "sources.list.d/debian.sources").write_text("URIs: https://mirror.example.org/pub/debian/\nSuites: x\n")
    (tmp_path / "sources.list.d/vendor.list").write_text("deb https://vendor.example.org/apt stable main\n")
    assert apt.mirrors(tmp_path) == {**apt.DEFAULTS, "debian": "https://mirror.example.org/pub/debian"}


def test_the_mirror_of_another_checkout_is_not_taken_for_ours(monkeypatch, tmp_path):
    monkeypatch.setattr(mirror, "_answers", lambda: True)
    monkeypatch.setattr(mirror, "PID_FILE", tmp_path / "mirror.pid")
    with pytest.raises(LabError, match="another checkout"):
        mirror.start()


def test_an_image_is_named_after_what_it_is_made_of(monkeypatch, tmp_path):
    (tmp_path / "setup.sh").write_text("one")
    monkeypatch.setattr(images, "SOURCE", tmp_path)
    first = images.tag(images.IMAGES["debian12"])
    assert first != images.tag(images.IMAGES["debian13"])
    (tmp_path / "setup.sh").write_text("two")
    assert images.tag(images.IMAGES["debian12"]) != first


def test_inventory_of_the_lab_names_three_different_machines():
    known = inventory.default()
    assert len({host.machine for host in known}) == len({host.address for host in known}) == 3


def test_hosts_beyond_the_inventory_get_addresses_of_their_own():
    chosen = inventory.chosen(["one=a30-2", "two=a30-2"], "debian13", {})
    assert [host.address for host in chosen] == [str(network.SUBNET[100]), str(network.SUBNET[101])]
    present = {"two": {"address": "10.213.77.101"}}
    assert inventory.chosen(["one=a30-2@debian12"], "debian13", {})[0].image == "debian12"
    assert inventory.chosen(["two=a30-2", "one=a30-2"], "debian13", present)[0].address == "10.213.77.101"


def test_a_name_without_machine_must_be_known():
    with pytest.raises(LabError, match="say which machine it is: other=MACHINE"):
        inventory.chosen(["other"], "debian12", {})
