# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on a host, seen without the collection's own readers."""

BLACKLIST = "/etc/modprobe.d/gpufleet-nouveau.conf"


def images(host):
    return host.check_output("find /boot -maxdepth 1 -name 'initrd.img-*'").split()


def test_blacklist_names_both_drivers(host):
    blacklist = host.file(BLACKLIST)
    assert {"blacklist nouveau", "blacklist nova_core", "options nouveau modeset=0"} <= set(
        blacklist.content_string.splitlines()
    )
    assert (blacklist.user, blacklist.group, blacklist.mode) == ("root", "root", 0o644)


def test_every_installed_kernel_has_an_image_that_blocks_nouveau(host):
    found = images(host)
    assert len(found) == len(host.check_output("ls -d /lib/modules/*/kernel").split())
    for image in found:
        listing = host.check_output("lsinitramfs %s", image)
        assert BLACKLIST.lstrip("/") in listing or "/nouveau.ko" not in listing, image


def test_images_are_not_readable_by_others_than_before(host):
    for image in images(host):
        assert host.file(image).mode & 0o022 == 0


def test_nothing_of_the_change_is_left_beside_the_images(host):
    assert host.check_output("find /boot -name '*gpufleet*'") == ""


def test_the_command_line_is_left_alone_by_default(host):
    assert not host.file("/etc/default/grub.d/99-gpufleet-nouveau.cfg").exists


def test_the_user_files_of_modprobe_are_untouched(host):
    assert host.run("dpkg --verify kmod").stdout == ""
