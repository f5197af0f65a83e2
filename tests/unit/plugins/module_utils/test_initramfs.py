# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _initramfs
from ansible_collections.gpufleet.metal.plugins.module_utils._initramfs import parse_listing

LSINITRAMFS = """\
kernel/x86/microcode/GenuineIntel.bin
.
etc/modprobe.d
etc/modprobe.d/gpufleet-nouveau.conf
lib
usr/lib/modules/6.1.0-18-amd64/kernel/drivers/gpu/drm/nouveau/nouveau.ko
usr/lib/modules/6.1.0-18-amd64/updates/dkms/nvidia-drm.ko
usr/lib/modules/6.1.0-18-amd64/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko
usr/lib/firmware/nvidia/ga100/gsp/bootloader-535.113.01.bin
"""

LSINITRD = """\
Image: /boot/initramfs-5.14.0-427.el9.x86_64.img: 38M
========================================================================
drwxr-xr-x   3 root     root            0 Jan  1  1970 .
lrwxrwxrwx   1 root     root            7 Jan  1  1970 bin -> usr/bin
-rw-r--r--   1 root     root          117 Jan  1  1970 etc/modprobe.d/gpufleet-nouveau.conf
-rw-r--r-- 1 root root 1234567 Jan  1  1970 usr/lib/modules/5.14.0-427.el9/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz
-rw-r--r-- 1 root root 123456 Jan  1  1970 usr/lib/modules/5.14.0-427.el9/kernel/drivers/gpu/nova-core/nova-core.ko.zst
========================================================================
"""


def test_lsinitramfs_listing():
    assert parse_listing(LSINITRAMFS) == {
        "modules": ["nouveau", "nvidia_drm"],
        "configuration": ["gpufleet-nouveau.conf"],
    }


def test_lsinitrd_listing_looks_like_ls():
    assert parse_listing(LSINITRD) == {"modules": ["nouveau", "nova_core"], "configuration": ["gpufleet-nouveau.conf"]}


@pytest.mark.parametrize(
    "line",
    [
        "usr/lib/modules/6.1.0/kernel/drivers/gpu/drm/nouveau",
        "usr/share/doc/nouveau.ko.txt",
        "etc/modprobe.d/note.txt",
        "lrwxrwxrwx 1 root root 7 Jan 1 1970 nouveau -> /usr/lib/modules/6.1.0/kernel/nouveau.ko",
        "",
    ],
)
def test_lines_that_only_look_like_it(line):
    assert parse_listing(line) == {"modules": [], "configuration": []}


def test_A6_a_removed_tool_leaves_its_hook_and_programs_but_does_not_own_the_images(make_host):
    files = ["/usr/bin/dracut", "/usr/sbin/mkinitramfs", "/usr/sbin/update-initramfs"]
    hooks = ["/etc/kernel/postinst.d/dracut", "/etc/kernel/postinst.d/initramfs-tools"]
    status = (
        "Package: initramfs-tools\nStatus: deinstall ok config-files\nVersion: 0.142\nArchitecture: all\n\n"
        "Package: initramfs-tools-core\nStatus: install ok installed\nVersion: 0.142\nArchitecture: all\n\n"
        "Package: dracut\nStatus: install ok installed\nVersion: 059-4\nArchitecture: all\n\n"
    )
    host = make_host(dict(dict.fromkeys(files + hooks, ""), **{"/var/lib/dpkg/status": status}))
    assert _initramfs.read(host)["tool"] == "dracut"
