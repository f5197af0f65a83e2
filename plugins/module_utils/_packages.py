# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages as the package manager's own database records them, read from its file."""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _rpm

DPKG_STATUS = "/var/lib/dpkg/status"
DPKG_INFO = "/var/lib/dpkg/info"
_FIELD = re.compile(r"^(Package|Status|Version|Architecture): (.*)$", re.MULTILINE)


def manager(host):
    """The package manager that owns this host: ``apt``, ``dnf`` or None."""
    status = host.stat(DPKG_STATUS)
    dnf = any(host.exists("/usr/bin/" + tool) for tool in ("dnf", "dnf5", "yum"))
    # Either family can have the other's tools installed as packages: dpkg's database is empty then.
    if status is not None and (status.st_size or not dnf):
        return "apt"
    return "dnf" if dnf else None


def installed(host):
    """Packages whose files are (at least partly) on the host.

    :returns: ``{name: {version: str, arch: str, status: str, hold: bool}}``. On apt hosts ``status`` is dpkg's third
        word: ``installed``, or ``unpacked``, ``half-configured`` and the like when an installation was cut off. A
        foreign architecture's package of the same name is ``name:arch``. On dnf hosts a package may be there several
        times (kernels): the last installed has the bare name, the others are ``name:version.arch``; rpm knows no
        status but ``installed`` and no hold. Empty on a host without either.
    """
    return host.once("packages", lambda: _read(host))


def _read(host):
    owner = manager(host)
    if owner == "apt":
        return parse_status(host.read_text(DPKG_STATUS) or "")
    packages: dict = {}
    for row in _rpm.installed(host) if owner == "dnf" else []:
        key = "{name}:{version}.{arch}".format(**row) if row["name"] in packages else row["name"]
        packages[key] = {"version": row["version"], "arch": row["arch"], "status": "installed", "hold": False}
    return packages


def parse_status(text):
    """Parse dpkg's status file; see :func:`installed`."""
    packages = {}
    for stanza in text.split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        words = fields.get("Status", "").split()
        if len(words) != 3 or words[2] in ("not-installed", "config-files"):
            continue
        name = fields["Package"]
        if name in packages:
            name += ":" + fields.get("Architecture", "")
        packages[name] = {
            "version": fields.get("Version", ""),
            "arch": fields.get("Architecture", ""),
            "status": words[2],
            "hold": words[0] == "hold",
        }
    return packages


def files(host, words):
    """The files of the installed packages whose names have one of ``words`` in them: name (as in :func:`installed`, on
    dnf hosts always bare) -> list of paths. On apt hosts a path below /usr/lib may be listed below /lib.
    """
    if manager(host) == "dnf":
        return _rpm.files(host, words)
    found = {}
    for name, package in installed(host).items():
        if any(word in name for word in words):
            bare, _colon, arch = name.partition(":")
            listings = [f"{DPKG_INFO}/{bare}.list", f"{DPKG_INFO}/{bare}:{arch or package['arch']}.list"]
            found[name] = [line for path in listings for line in (host.read_text(path) or "").splitlines()]
    return found
