# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import sqlite3
import struct

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts, _packages, _rpm

DATABASE = "/var/lib/rpm/rpmdb.sqlite"
QUERY = ("rpm", "-qa", "--qf", "%{NAME} %{EPOCHNUM} %{VERSION} %{RELEASE} %{ARCH}\\n")
KERNELS = [
    ("kernel-core", None, "5.14.0", "503.11.1.el9", "x86_64"),
    ("kernel-core", None, "5.14.0", "503.14.1.el9", "x86_64"),
]


def header(name, epoch, version, release, arch, files=()):
    """A header blob as rpm 4.18 writes it, with a tag before and a tag after those that identify the package."""
    index, store = [], b""

    def put(tag, kind, count, data):
        nonlocal store
        store += b"\0" * (-len(store) % 4 if kind == 4 else 0)
        index.append(struct.pack(">IIII", tag, kind, len(store), count))
        store += data

    put(100, 8, 1, b"C\0")
    for tag, text in ((1000, name), (1001, version), (1002, release)):
        put(tag, 6, 1, text.encode() + b"\0")
    if epoch is not None:
        put(1003, 4, 1, struct.pack(">I", epoch))
    if arch:
        put(1022, 6, 1, arch.encode() + b"\0")
    if files:
        folders = sorted({path.rpartition("/")[0] + "/" for path in files})
        numbers = [folders.index(path.rpartition("/")[0] + "/") for path in files]
        put(1116, 4, len(files), struct.pack(f">{len(files)}I", *numbers))
        put(1117, 8, len(files), b"".join(path.rpartition("/")[2].encode() + b"\0" for path in files))
        put(1118, 8, len(folders), b"".join(folder.encode() + b"\0" for folder in folders))
    put(1124, 6, 1, b"cpio\0")
    return struct.pack(">II", len(index), len(store)) + b"".join(index) + store


def rpm_database(host, packages, path=DATABASE):
    """Put a database with these packages, in the order of their installation, into the host's tree."""
    host.put({path: b""})
    connection = sqlite3.connect(host.path(path))
    connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
    connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(header(*row),) for row in packages])
    connection.commit()
    connection.close()
    host.forget()
    return host


@pytest.mark.parametrize("path", ["/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite"])
def test_packages_are_read_from_the_database_without_a_tool(make_host, path):
    packages = [
        ("gpg-pubkey", None, "8b9d3b56", "65a1", ""),
        ("nvidia-driver", 3, "570.124.06", "1.el9", "x86_64"),
        ("tzdata", 0, "2025b", "1.el9", "noarch"),
    ]
    host = rpm_database(make_host(), packages, path)
    assert _rpm.installed(host) == [
        {"name": "tzdata", "version": "2025b-1.el9", "arch": "noarch"},
        {"name": "nvidia-driver", "version": "3:570.124.06-1.el9", "arch": "x86_64"},
    ]
    assert host.calls == []


def test_of_several_kernels_the_last_installed_has_the_bare_name(make_host):
    host = rpm_database(make_host({"/usr/bin/dnf": ""}), KERNELS)
    assert _packages.installed(host) == {
        "kernel-core": {"version": "5.14.0-503.14.1.el9", "arch": "x86_64", "status": "installed", "hold": False},
        "kernel-core:5.14.0-503.11.1.el9.x86_64": {
            "version": "5.14.0-503.11.1.el9",
            "arch": "x86_64",
            "status": "installed",
            "hold": False,
        },
    }


@pytest.mark.parametrize("files", [{}, {"/var/lib/rpm/Packages": b"\x61\x15\x06\x00"}, {DATABASE: b"no database"}])
def test_rpm_is_asked_where_the_database_is_of_another_kind(make_host, files):
    out = "gpg-pubkey 0 8b9d3b56 65a1 (none)\nkernel-core 0 4.18.0 553.el8_10 x86_64\ncuda-drivers 1 570 1 x86_64\n"
    host = make_host(files, {QUERY: (0, out)})
    assert _rpm.installed(host) == [
        {"name": "kernel-core", "version": "4.18.0-553.el8_10", "arch": "x86_64"},
        {"name": "cuda-drivers", "version": "1:570-1", "arch": "x86_64"},
    ]


def test_what_rpm_refuses_to_tell_is_not_taken_for_an_empty_host(make_host):
    host = make_host({"/usr/bin/dnf": ""}, {QUERY: (1, "", "error: cannot open Packages database")})
    assert _packages.installed(host) == {}
    assert "cannot open Packages database" in host.unreadable["the rpm database"]


FILES = {
    "kmod-nvidia-open-dkms": ["/usr/src/nvidia-570.124.06/dkms.conf"],
    "libnvidia-ml": ["/usr/lib64/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.570.124.06"],
    "nvidia-driver": [],
    "nvidia-container-toolkit": ["/usr/bin/nvidia-ctk", "/usr/share/doc/nvidia-ctk/README"],
}
DRIVER = ["kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-driver"]


def test_D6_packages_that_own_driver_files_are_read_from_the_database(make_host):
    rows = [(name, 3, "570.124.06", "1.el9", "x86_64", paths) for name, paths in FILES.items()]
    host = rpm_database(make_host({"/usr/bin/dnf": ""}), [*rows, ("bash", None, "5.1", "1", "x86_64", ["/usr/bin/sh"])])
    assert _packages.files(host, ["nvidia"]) == FILES
    assert _driver_facts.read(host)["packages"] == DRIVER
    assert host.calls == []


def test_D6_without_sqlite_rpm_itself_names_the_owners(make_host):
    query = ("rpm", "-qa", "--qf", "%{NAME}\\n[%{=NAME} %{FILENAMES}\\n]", "*nvidia*", "*cuda*", "*nvml*")
    lines = [line for name, paths in FILES.items() for line in (name, *(f"{name} {path}" for path in paths))]
    host = make_host({"/usr/bin/dnf": "", DATABASE: b"no database"}, {query: (0, "\n".join(lines) + "\n")})
    assert _driver_facts.read(host)["packages"] == DRIVER
    host.commands[query] = (1, "", "error: cannot open Packages database")
    host.forget()
    assert _driver_facts.read(host)["packages"] == []
    assert "cannot open Packages database" in host.unreadable["the rpm database"]
