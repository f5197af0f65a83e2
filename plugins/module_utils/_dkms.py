# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DKMS state, read from its tree below /var/lib/dkms as dkms itself does."""

TREE = "/var/lib/dkms"


def rows(host):
    """What ``dkms status`` would list.

    :returns: list of ``{module, version, kernel, arch, status}``. ``status`` is ``added`` (source registered;
        ``kernel`` and ``arch`` are None), ``built``, ``installed``, or ``broken`` (the source link leads nowhere).
    """
    return host.once("dkms", lambda: _rows(host))


def _rows(host):
    found = []
    for module in host.listdir(TREE):
        for version in host.listdir(f"{TREE}/{module}"):
            base = f"{TREE}/{module}/{version}"
            # kernel-<release>-<arch> beside the versions are the links that mark an installed build
            if version.startswith("kernel-") or (
                host.readlink(base + "/source") is None and not host.exists(base + "/source")
            ):
                continue
            builds = _builds(host, module, version, base)
            if not host.exists(base + "/source"):
                builds = [dict(build, status="broken") for build in builds] or [
                    _row(module, version, None, None, "broken")
                ]
            found += builds or [_row(module, version, None, None, "added")]
    return found


def _builds(host, module, version, base):
    builds = []
    for kernel in host.listdir(base):
        if kernel in ("source", "build"):
            continue
        for arch in host.listdir(f"{base}/{kernel}"):
            if not host.listdir(f"{base}/{kernel}/{arch}/module"):
                continue
            link = host.readlink(f"{TREE}/{module}/kernel-{kernel}-{arch}") or ""
            status = "installed" if f"{version}/{kernel}/{arch}" in link else "built"
            builds.append(_row(module, version, kernel, arch, status))
    return builds


def _row(module, version, kernel, arch, status):
    return {"module": module, "version": version, "kernel": kernel, "arch": arch, "status": status}
