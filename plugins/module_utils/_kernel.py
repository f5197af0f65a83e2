# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels of a host: the running one, the installed ones and the one that boots next; all read from files."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _packages

_EFI = "/sys/firmware/efi"
_SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_INITRAMFS = ("/boot/initrd.img-%s", "/boot/initramfs-%s.img", "/boot/initrd-%s")
_GRUB_ENVIRONMENT = ("/boot/grub/grubenv", "/boot/grub2/grubenv")
_GRUB_MENU = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")


def read(host):
    """What is known about the kernels.

    :returns: dict with

        * ``running``: str; ``cmdline``: str; ``default``: the release that the boot loader starts next, or None;
        * ``installed``: list of ``{release, headers, compiler, initramfs}``, newest first. ``headers`` is True when the
          release's build folder has a Makefile (a dangling link has none); ``compiler`` is ``{text, family, major}`` of
          the compiler that built the kernel, or None; ``initramfs`` is a path or None;
        * ``secure_boot``: ``enabled``, ``disabled``, ``unsupported`` or ``unknown``; ``sig_enforce``: bool or None;
          ``lockdown``: ``none``, ``integrity``, ``confidentiality`` or None;
        * ``initramfs_tool``: ``initramfs-tools``, ``dracut`` or None.
    """
    return host.once("kernel", lambda: _read(host))


def bootable(facts):
    """Releases that the machine may boot next, the most likely first: the default, the running one, the others."""
    installed = [kernel["release"] for kernel in facts["installed"]]
    first = [release for release in (facts["default"], facts["running"]) if release in installed]
    return list(dict.fromkeys(first + installed))


def version_key(release):
    """Sort key of a kernel release: numbers compare as numbers, a release candidate is older than its release."""
    key = []
    for token in re.findall(r"\d+|[A-Za-z]+", release):
        key.append((2, int(token), "") if token.isdigit() else (-1 if token == "rc" else 1, 0, token))
    return key + [(0, 0, "")]


def _read(host):
    cmdline = host.read_value("/proc/cmdline") or ""
    releases = _installed(host)
    return {
        "running": host.read_value("/proc/sys/kernel/osrelease") or "",
        "default": _default(host, releases),
        "installed": [
            {
                "release": release,
                "headers": host.exists(f"/lib/modules/{release}/build/Makefile"),
                "compiler": _compiler(host, release),
                "initramfs": next((path % release for path in _INITRAMFS if host.exists(path % release)), None),
            }
            for release in releases
        ],
        "cmdline": cmdline,
        "secure_boot": _secure_boot(host),
        "sig_enforce": _sig_enforce(host, cmdline),
        "lockdown": _lockdown(host),
        "initramfs_tool": _initramfs_tool(host),
    }


def _installed(host):
    """Releases with an image or with modules, newest first. Built modules alone are a removed kernel's remnant."""
    releases = [release for release in host.listdir("/lib/modules") if host.exists(f"/lib/modules/{release}/kernel")]
    for name in host.listdir("/boot"):
        match = re.match(r"vmlinu[xz]-(\d.*?)(\.old|\.bak)?\Z", name)
        if match and not match.group(2) and not match.group(1).startswith("0-rescue"):
            releases.append(match.group(1))
    return sorted(set(releases), key=version_key, reverse=True)


def _compiler(host, release):
    for path in ("/boot/config-%s", "/lib/modules/%s/config", "/lib/modules/%s/build/include/config/auto.conf"):
        text = host.read_text(path % release)
        match = re.search(r'^CONFIG_CC_VERSION_TEXT="(.*)"', text or "", re.MULTILINE)
        if match:
            return parse_compiler(match.group(1))
    return None


def parse_compiler(text):
    """``{text, family, major}`` of a kernel's CONFIG_CC_VERSION_TEXT, such as ``gcc-12 (Debian 12.2.0-14) 12.2.0``."""
    family = "clang" if "clang" in text else "gcc" if re.search(r"gcc|GCC", text) else None
    # the version stands after the packager's parenthesis (gcc) or after the word version (clang)
    match = (
        re.search(r"version (\d+)\.", text) or re.search(r"\) (\d+)\.", text) or re.search(r"(?<![\d.])(\d+)\.\d", text)
    )
    return {"text": text, "family": family, "major": int(match.group(1)) if match else None}


def _default(host, releases):
    """The release that starts next: GRUB's one-time entry, its saved or configured default, else the newest image."""
    with_image = [release for release in releases if host.exists("/boot/vmlinuz-" + release)] or releases
    if not with_image:
        return None
    environment = _grub_environment(host)
    choice = _grub_default(host)
    wanted = environment.get("next_entry") or (environment.get("saved_entry") if choice == "saved" else choice) or "0"
    return _menu_release(host, wanted, with_image) or with_image[0]


def _grub_environment(host):
    for path in _GRUB_ENVIRONMENT:
        text = host.read_text(path)
        if text:
            return dict(re.findall(r"^(next_entry|saved_entry)=(.+)$", text, re.MULTILINE))
    return {}


def _grub_default(host):
    """GRUB_DEFAULT as the shell would have it after every file was sourced. EL writes "saved" there."""
    value = "0"
    for path in ["/etc/default/grub"] + host.glob("/etc/default/grub.d/*.cfg"):
        found = re.findall(r"^\s*GRUB_DEFAULT=(.*?)\s*(?:#.*)?$", host.read_text(path) or "", re.MULTILINE)
        value = found[-1].strip("'\"") if found else value
    return value


def _menu_release(host, wanted, releases):
    """The release behind a menu choice: an index (``1>2``), an id or a title; None when it is not one of ours."""
    if not re.match(r"\d+(>\d+)*\Z", wanted):
        named = [release for release in releases if re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", wanted)]
        return max(named, key=len) if named else None
    for path in _GRUB_MENU:
        menu = host.read_text(path)
        if menu:
            entries = parse_menu(menu)
            for index in [int(part) for part in wanted.split(">")]:
                if not isinstance(entries, list) or index >= len(entries):
                    return None
                entries = entries[index]
            while isinstance(entries, list):  # a submenu alone starts its first entry
                entries = entries[0] if entries else None
            return entries if entries in releases else None
    return None


def parse_menu(text):
    """grub.cfg's entries in order: a kernel release (or "" for something else) per menuentry, a list per submenu."""
    stack = [[]]
    opened = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("menuentry", "submenu") and line.rstrip().endswith("{"):
            if words[0] == "submenu":
                submenu = []
                stack[-1].append(submenu)
                stack.append(submenu)
            else:
                stack[-1].append("")
            opened.append(words[0])
        elif words and words[-1] == "{":
            opened.append("")
        elif words == ["}"] and opened:
            if opened.pop() == "submenu":
                stack.pop()
        elif words and words[0] in ("linux", "linuxefi", "linux16") and "menuentry" in opened:
            match = re.search(r"/vmlinuz-(\S+)", line)
            stack[-1][-1] = match.group(1) if match else ""
    return stack[0]


def _secure_boot(host):
    """From the firmware's variable: four bytes of attributes, then one byte of value."""
    if not host.exists(_EFI):
        return "unsupported"
    data = host.read_bytes(f"{_EFI}/efivars/{_SECURE_BOOT}")
    if data and len(data) >= 5:
        return "enabled" if data[4] == 1 else "disabled"
    # other variables but not this one: firmware without Secure Boot; no variables at all: efivarfs is not mounted
    return "unsupported" if host.listdir(_EFI + "/efivars") and data is None else "unknown"


def _sig_enforce(host, cmdline):
    value = host.read_value("/sys/module/module/parameters/sig_enforce")
    if value is None:
        return True if "module.sig_enforce=1" in cmdline.split() or "module.sig_enforce" in cmdline.split() else None
    return value == "Y"


def _lockdown(host):
    match = re.search(r"\[(\w+)\]", host.read_text("/sys/kernel/security/lockdown") or "")
    return match.group(1) if match else None


def _initramfs_tool(host):
    """The tool that owns the images. Both may be installed; the one that hooks into kernel installation owns them."""
    present = {
        "initramfs-tools": any(host.exists(path + "mkinitramfs") for path in ("/usr/sbin/", "/sbin/")),
        "dracut": any(host.exists(path + "dracut") for path in ("/usr/bin/", "/usr/sbin/", "/sbin/")),
    }
    if all(present.values()):
        # each package brings the hook; one that was removed leaves its hook and part of its programs behind
        owners = [tool for tool in present if tool in _packages.installed(host)]
        if len(owners) == 1:
            return owners[0]
        hooked = host.exists("/etc/kernel/postinst.d/dracut") and not host.exists(
            "/etc/kernel/postinst.d/initramfs-tools"
        )
        return "dracut" if hooked else "initramfs-tools"
    return next((tool for tool, there in present.items() if there), None)
