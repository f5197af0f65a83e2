# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel command line: GRUB's drop-in read by a real shell, boot entries as literal files."""

import subprocess

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _boot_loader
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._nouveau import TOKENS, Nouveau

TOKEN = TOKENS["initramfs-tools"][0]
DROP_IN = "/etc/default/grub.d/99-gpufleet-nouveau.cfg"
MAKE = ("grub-mkconfig", "-o", "/boot/grub/grub.cfg")


def grub_cfg(arguments, own_entry=""):
    return (
        "### BEGIN /etc/grub.d/10_linux ###\n"
        "menuentry 'Debian' {\n"
        f"\tlinux\t/boot/vmlinuz-6.1.0-25-amd64 root=UUID=1 ro {arguments}\n"
        "\tinitrd\t/boot/initrd.img-6.1.0-25-amd64\n"
        "}\n"
        "menuentry 'Debian (recovery mode)' {\n"
        f"\tlinux\t/boot/vmlinuz-6.1.0-25-amd64 root=UUID=1 ro single {arguments}\n"
        "}\n"
        "### END /etc/grub.d/10_linux ###\n"
        "### BEGIN /etc/grub.d/40_custom ###\n"
        f"menuentry 'mine' {{\n\tlinux /boot/mine {own_entry}\n}}\n"
        "### END /etc/grub.d/40_custom ###\n"
    )


def grub_host(make_host, arguments="quiet", files=None, commands=None):
    tree = {"/usr/sbin/grub-mkconfig": "", "/boot/grub/grub.cfg": grub_cfg(arguments), "/etc/default/grub": "A=1\n"}
    return make_host(dict(tree, **(files or {})), commands)


def shell_value(host):
    """GRUB_CMDLINE_LINUX as grub-mkconfig sees it: the files sourced in its order, by a real shell."""
    files = ["/etc/default/grub"] + host.glob("/etc/default/grub.d/*.cfg")
    script = "".join(f". {host.path(path)}\n" for path in files) + 'printf "%s" "$GRUB_CMDLINE_LINUX"'
    return subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("defaults", "drop_ins", "kept"),
    [
        ('GRUB_CMDLINE_LINUX=""\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n', {}, []),
        ("GRUB_CMDLINE_LINUX='console=ttyS0 foo=\"a b\"' # mine\n", {}, ["console=ttyS0", 'foo="a', 'b"']),
        ("# GRUB_CMDLINE_LINUX=old\n", {}, []),
        (
            'GRUB_CMDLINE_LINUX="a"\n',
            {"50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX="crashkernel=512M"\n'},
            ["crashkernel=512M"],
        ),
        ('GRUB_CMDLINE_LINUX_DEFAULT="it\'s"\nGRUB_CMDLINE_LINUX=one\n', {}, ["one"]),
    ],
)
def test_A12_our_drop_in_appends_to_whatever_the_user_wrote(make_host, defaults, drop_ins, kept):
    files = {"/etc/default/grub": defaults, DROP_IN: _boot_loader.drop_in_text((TOKEN,))}
    files.update({"/etc/default/grub.d/" + name: text for name, text in drop_ins.items()})
    host = grub_host(make_host, files=files)
    assert shell_value(host).split() == [*kept, TOKEN]


@pytest.mark.parametrize(
    ("name", "text", "overrides"),
    [
        ("99-zz.cfg", 'GRUB_CMDLINE_LINUX="mine"\n', True),
        ("99-zz.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX mine"\n', False),
        ("99-zz.cfg", 'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} mine"\n', False),
        ("99-zz.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX_DEFAULT mine"\n', True),
        ("99-zz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n', False),
        ("99-zz.cfg", '# GRUB_CMDLINE_LINUX="mine"\n', False),
        ("10-first.cfg", 'GRUB_CMDLINE_LINUX="mine"\n', False),
    ],
)
def test_A12_what_overrides_our_drop_in(make_host, name, text, overrides):
    path = "/etc/default/grub.d/" + name
    host = grub_host(make_host, files={path: text})
    assert _boot_loader.read(host, "nouveau")["overriding"] == ([path] if overrides else [])


def test_A11_order_and_duplicates_of_others_do_not_matter(make_host):
    host = grub_host(make_host, f"crashkernel=1G quiet crashkernel=512M {TOKEN} quiet")
    state = _boot_loader.read(host, "nouveau")
    assert _boot_loader.missing(state, [TOKEN]) == []
    assert _boot_loader.present(state, [TOKEN]) == [TOKEN]


def test_the_users_own_entries_are_not_judged(make_host):
    host = grub_host(make_host)
    host.put({"/boot/grub/grub.cfg": grub_cfg("quiet", own_entry=TOKEN)})
    assert _boot_loader.present(_boot_loader.read(host, "nouveau"), [TOKEN]) == []


def generate(host):
    """What grub-mkconfig does with the sourced value."""
    host.put({"/boot/grub/grub.cfg": grub_cfg(shell_value(host))})
    return 0, ""


def converge(host, **options):
    concern = Nouveau()
    desired = validated(concern, options)
    state, difference = concern.inspect(host, desired)
    if difference.changed:
        concern.apply(host, desired, state, difference)
    return difference


def test_A11_second_run_changes_nothing_and_withdrawal_takes_only_ours(make_host):
    checks = {("sh", "-n", path): (0, "") for path in ("/etc/default/grub", DROP_IN)}
    host = grub_host(make_host, files={"/etc/default/grub": "GRUB_CMDLINE_LINUX=nouveau.modeset=0\n"}, commands=checks)
    host.commands[MAKE] = generate
    assert converge(host, kernel_command_line=True).changed
    assert TOKEN in host.read_text("/boot/grub/grub.cfg")
    host.calls.clear()
    assert not converge(host, kernel_command_line=True).changed
    assert host.calls == []
    assert converge(host, kernel_command_line=False).changed
    assert TOKEN not in host.read_text("/boot/grub/grub.cfg")
    assert "nouveau.modeset=0" in host.read_text("/boot/grub/grub.cfg")
    assert not host.exists(DROP_IN)
    assert host.read_text("/etc/default/grub") == "GRUB_CMDLINE_LINUX=nouveau.modeset=0\n"


def test_A12_a_file_that_the_shell_cannot_read_stops_before_grub_is_called(make_host):
    broken = {("sh", "-n", "/etc/default/grub"): (2, "", "Syntax error: Unterminated quoted string")}
    host = grub_host(make_host, files={"/etc/default/grub": 'GRUB_CMDLINE_LINUX="quiet\n'}, commands=broken)
    with pytest.raises(ConcernError, match="Unterminated quoted string.*Correct /etc/default/grub"):
        converge(host, kernel_command_line=True)
    assert not host.exists(DROP_IN)
    assert not host.exists("/etc/modprobe.d/gpufleet-nouveau.conf")


def test_A12_an_override_is_named_and_everything_is_put_back(make_host):
    override = "/etc/default/grub.d/99-zz.cfg"
    checks = {("sh", "-n", path): (0, "") for path in ("/etc/default/grub", override)}
    host = grub_host(make_host, files={override: "GRUB_CMDLINE_LINUX=mine\n"}, commands=checks)
    host.commands[MAKE] = generate
    with pytest.raises(ConcernError, match="99-zz.cfg"):
        converge(host, kernel_command_line=True)
    assert not host.exists(DROP_IN)
    assert not host.exists("/etc/modprobe.d/gpufleet-nouveau.conf")


def test_A12_boot_entries_that_cannot_be_put_back_are_told_with_the_first_reason(make_host):
    checks = {("sh", "-n", "/etc/default/grub"): (0, "")}
    host = grub_host(make_host, commands=checks)
    host.commands[MAKE] = [(1, "", "first reason"), (1, "", "second reason")]
    with pytest.raises(ConcernError, match="first reason.*could NOT be generated.*second reason"):
        converge(host, kernel_command_line=True)
    assert not host.exists(DROP_IN)


def test_an_unsupported_boot_loader_names_the_variable(make_host):
    with pytest.raises(ConcernError, match="nouveau_kernel_command_line: false"):
        converge(make_host({}), kernel_command_line=True)


# -- Enterprise Linux ----------------------------------------------------------------------------------------------

ENTRY = "/boot/loader/entries/0123-5.14.0-427.el9.x86_64.conf"


def el_host(make_host, options, environment=""):
    return make_host(
        {
            "/usr/sbin/grubby": "",
            "/boot/loader/entries/0123-0-rescue.conf": "options root=/dev/sda1 ro\n",
            ENTRY: f"title EL\nversion 5.14.0\noptions {options}\n",
            "/boot/grub2/grubenv": environment,
        }
    )


def test_grubby_entries_are_read_from_their_files(make_host):
    state = _boot_loader.read(el_host(make_host, f"root=/dev/sda1 ro {TOKEN}"), "nouveau")
    assert state["kind"] == "grubby"
    assert _boot_loader.missing(state, [TOKEN]) == [TOKEN]  # the rescue entry lacks it


def test_EL8_entries_take_their_options_from_the_environment(make_host):
    host = el_host(make_host, "$kernelopts $tuned_params", f"kernelopts=root=/dev/sda1 ro {TOKEN} \n")
    assert TOKEN in _boot_loader.read(host, "nouveau")["entries"][1]


def test_grubby_adds_and_removes_only_our_token(make_host):
    host = el_host(make_host, "root=/dev/sda1 ro quiet")
    rescue = "/boot/loader/entries/0123-0-rescue.conf"

    def add(host):
        host.put({path: host.read_text(path).rstrip() + f" {TOKEN}\n" for path in (ENTRY, rescue)})
        return 0, ""

    def remove(host):
        host.put({path: host.read_text(path).replace(" " + TOKEN, "") for path in (ENTRY, rescue)})
        return 0, ""

    host.commands[("grubby", "--update-kernel=ALL", "--args=" + TOKEN)] = add
    host.commands[("grubby", "--update-kernel=ALL", "--remove-args=" + TOKEN)] = remove
    assert converge(host, kernel_command_line=True).changed
    assert not converge(host, kernel_command_line=True).changed
    assert converge(host, state="absent").changed
    assert not converge(host, state="absent").changed
    assert host.calls[-1][2] == "--remove-args=" + TOKEN
