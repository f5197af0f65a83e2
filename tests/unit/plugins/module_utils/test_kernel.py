# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _kernel
from tests.unit.hosts import Dir, Link

OLD, NEW = "6.1.0-9-amd64", "6.1.0-18-amd64"
GRUB_CFG = f"""\
if [ "${{next_entry}}" ] ; then
  set default="${{next_entry}}"
fi
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {{
	load_video
	if [ x$grub_platform = xxen ]; then insmod gzio; fi
	linux	/boot/vmlinuz-{NEW} root=/dev/vda1 ro quiet
}}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-1' {{
	menuentry 'Debian, with Linux {NEW}' {{
		linux	/boot/vmlinuz-{NEW} root=/dev/vda1 ro quiet
	}}
	menuentry 'Debian, with Linux {NEW} (recovery mode)' {{
		linux	/boot/vmlinuz-{NEW} root=/dev/vda1 ro single
	}}
	menuentry 'Debian, with Linux {OLD}' {{
		linux	/boot/vmlinuz-{OLD} root=/dev/vda1 ro quiet
	}}
}}
menuentry 'UEFI Firmware Settings' {{
	fwsetup
}}
"""


@pytest.fixture
def two_kernels(make_host):
    def make(files=None):
        tree = {"/proc/sys/kernel/osrelease": OLD + "\n", "/proc/cmdline": "root=/dev/vda1 ro quiet\n"}
        for release in (OLD, NEW):
            tree.update(
                {
                    f"/lib/modules/{release}/kernel": Dir(),
                    f"/boot/vmlinuz-{release}": "",
                    f"/boot/initrd.img-{release}": "",
                }
            )
        return make_host({**tree, "/boot/grub/grub.cfg": GRUB_CFG, **(files or {})})

    return make


def by_release(facts):
    return {kernel["release"]: kernel for kernel in facts["installed"]}


def test_an_empty_machine_is_described_and_nothing_raises(make_host):
    facts = _kernel.read(make_host())
    assert facts == {
        "running": "",
        "default": None,
        "installed": [],
        "cmdline": "",
        "secure_boot": "unsupported",
        "sig_enforce": None,
        "lockdown": None,
        "initramfs_tool": None,
    }
    assert _kernel.bootable(facts) == []


def test_B1_headers_count_only_for_exactly_that_kernel(two_kernels):
    host = two_kernels(
        {
            f"/usr/src/linux-headers-{NEW}/Makefile": "",
            f"/lib/modules/{NEW}/build": Link(f"/usr/src/linux-headers-{NEW}"),
        }
    )
    assert {release: kernel["headers"] for release, kernel in by_release(_kernel.read(host)).items()} == {
        NEW: True,
        OLD: False,
    }


def test_B2_a_dangling_build_link_is_no_headers(two_kernels):
    host = two_kernels({f"/lib/modules/{OLD}/build": Link(f"/usr/src/linux-headers-{OLD}")})
    assert by_release(_kernel.read(host))[OLD]["headers"] is False


def test_a_removed_kernels_remnants_are_not_installed(two_kernels):
    host = two_kernels(
        {
            "/lib/modules/5.10.0-1-amd64/updates/dkms/nvidia.ko": "",
            "/boot/vmlinuz-0-rescue-abc": "",
            "/boot/vmlinuz-6.0.1.old": "",
        }
    )
    assert [kernel["release"] for kernel in _kernel.read(host)["installed"]] == [NEW, OLD]


@pytest.mark.parametrize(
    ("files", "default"),
    [
        ({}, NEW),
        ({"/etc/default/grub": "GRUB_DEFAULT=0\n"}, NEW),
        ({"/etc/default/grub": 'GRUB_DEFAULT="1>2"\n'}, OLD),
        (
            {
                "/etc/default/grub": "GRUB_DEFAULT=0\n",
                "/etc/default/grub.d/50-pin.cfg": "GRUB_DEFAULT='1>2' # pinned\n",
            },
            OLD,
        ),
        ({"/etc/default/grub": f'GRUB_DEFAULT="gnulinux-advanced-1>gnulinux-{OLD}-advanced-1"\n'}, OLD),
        (
            {
                "/etc/default/grub": "GRUB_DEFAULT=saved\n",
                "/boot/grub/grubenv": f"# GRUB\nsaved_entry=gnulinux-{OLD}-advanced-1\n",
            },
            OLD,
        ),
        ({"/boot/grub/grubenv": f"# GRUB\nsaved_entry=gnulinux-{OLD}-advanced-1\n"}, NEW),
        ({"/boot/grub2/grubenv": f"next_entry=abc-{OLD}\n"}, OLD),
        ({"/etc/default/grub": "GRUB_DEFAULT=2\n"}, NEW),
        ({"/etc/default/grub": "GRUB_DEFAULT=9>9\n"}, NEW),
        ({"/etc/default/grub": "GRUB_DEFAULT=1\n"}, NEW),
    ],
)
def test_the_default_is_the_newest_unless_grub_says_otherwise(two_kernels, files, default):
    assert _kernel.read(two_kernels(files))["default"] == default


def test_bootable_names_the_default_first_then_the_running_one(two_kernels):
    host = two_kernels({"/lib/modules/6.5.0-1-amd64/kernel": Dir()})
    assert _kernel.bootable(_kernel.read(host)) == [NEW, OLD, "6.5.0-1-amd64"]


def test_a_running_kernel_that_is_not_installed_cannot_boot_next(two_kernels):
    host = two_kernels({"/proc/sys/kernel/osrelease": "6.12.0-container\n"})
    assert _kernel.bootable(_kernel.read(host)) == [NEW, OLD]


@pytest.mark.parametrize(
    ("text", "family", "major"),
    [
        ("gcc-12 (Debian 12.2.0-14) 12.2.0", "gcc", 12),
        ("x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0", "gcc", 12),
        ("x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", "gcc", 13),
        ("gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)", "gcc", 11),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1", "clang", 14),
        ("Debian clang version 19.1.7 (3+b1)", "clang", 19),
        ("a compiler", None, None),
    ],
)
def test_B4_the_compiler_of_each_kernel_is_read_from_its_config(two_kernels, text, family, major):
    host = two_kernels({f"/boot/config-{NEW}": f'CONFIG_X86=y\nCONFIG_CC_VERSION_TEXT="{text}"\nCONFIG_CC_IS_GCC=y\n'})
    facts = by_release(_kernel.read(host))
    assert facts[NEW]["compiler"] == {"text": text, "family": family, "major": major}
    assert facts[OLD]["compiler"] is None


VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "unsupported"),
        ({VARIABLE: b"\x06\0\0\0\x01"}, "enabled"),
        ({VARIABLE: b"\x06\0\0\0\0"}, "disabled"),
        ({VARIABLE: b"\x06"}, "unknown"),
        ({"/sys/firmware/efi/efivars": Dir()}, "unknown"),
        ({"/sys/firmware/efi/efivars/BootOrder-8be4df61": b"\x07\0\0\0\0"}, "unsupported"),
    ],
)
def test_B9_secure_boot_is_read_from_the_firmware_variable(make_host, files, state):
    assert _kernel.read(make_host(files))["secure_boot"] == state


def test_module_signature_and_lockdown(make_host):
    host = make_host(
        {
            "/sys/module/module/parameters/sig_enforce": "Y\n",
            "/sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
        }
    )
    facts = _kernel.read(host)
    assert (facts["sig_enforce"], facts["lockdown"]) == (True, "integrity")


@pytest.mark.parametrize(
    ("files", "tool"),
    [
        (["/usr/sbin/mkinitramfs", "/usr/sbin/update-initramfs"], "initramfs-tools"),
        (["/usr/bin/dracut"], "dracut"),
        (["/usr/bin/dracut", "/usr/sbin/update-initramfs"], "dracut"),
        (["/usr/bin/dracut", "/usr/sbin/mkinitramfs", "/etc/kernel/postinst.d/initramfs-tools"], "initramfs-tools"),
        (["/usr/bin/dracut", "/usr/sbin/mkinitramfs", "/etc/kernel/postinst.d/dracut"], "dracut"),
        ([], None),
    ],
)
def test_A6_the_initramfs_tool_is_the_one_that_owns_the_images(make_host, files, tool):
    assert _kernel.read(make_host(dict.fromkeys(files, "")))["initramfs_tool"] == tool


def test_releases_sort_as_versions():
    releases = ["6.1.0-9-amd64", "6.1.0-18-amd64", "6.10.0", "6.10.0-rc3", "5.14.0-503.el9", "5.14.0-1000.el9"]
    assert sorted(releases, key=_kernel.version_key) == [
        "5.14.0-503.el9",
        "5.14.0-1000.el9",
        "6.1.0-9-amd64",
        "6.1.0-18-amd64",
        "6.10.0-rc3",
        "6.10.0",
    ]
