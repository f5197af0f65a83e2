# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installed packages as rpm's database records them.

Since rpm 4.16 (EL 9, Fedora 33) that is a SQLite file with one header blob a package; it is read here without running a
tool. For what is older or else (Berkeley DB on EL 8, ndb), or where Python lacks sqlite3, ``rpm`` is asked, once.

Source of the header's layout: the chapter "Header format" of rpm's manual; of the tables: the schema in the file.
"""

import struct

#: Where the file is; newer distributions keep it below /usr.
DATABASES = ("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite")
#: The tags of a header that identify a package.
_TAGS = {1000: "name", 1001: "version", 1002: "release", 1003: "epoch", 1022: "arch"}
_INT32 = 4
#: The tags that make up the paths of a package's files, an array each.
_DIRECTORY_OF, _BASENAMES, _DIRECTORIES = 1116, 1117, 1118
_QUERY = ["rpm", "-qa", "--qf", "%{NAME} %{EPOCHNUM} %{VERSION} %{RELEASE} %{ARCH}\\n"]
#: A line with the name alone, because some packages have no files; then one for each file.
_FILES_QUERY = ["rpm", "-qa", "--qf", "%{NAME}\\n[%{=NAME} %{FILENAMES}\\n]"]


def installed(host):
    """Packages of the rpm database, the last installed first: list of ``{name, version, arch}``.

    ``version`` is ``[epoch:]version-release``, without an epoch of 0. Public keys, which rpm keeps among the packages,
    are left out. Only for a host whose packages are rpms: where the file is not found, ``rpm`` is asked.
    """
    return host.once("rpm", lambda: _installed(host))


def _installed(host):
    for path in DATABASES:
        rows = host.consult(path, _rows)
        if rows is not None:
            return rows
    result = host.run(_QUERY, timeout=60)
    if not result.ok:
        host.unreadable["the rpm database"] = result.summary()
        return []
    fields = [line.split(" ") for line in result.out.splitlines()]
    return [_row(*words) for words in fields if len(words) == 5 and words[0] != "gpg-pubkey"]


def files(host, words):
    """The files of the installed packages whose names have one of ``words`` in them: dict of name -> list of paths."""

    def read(path):
        blobs = _blobs(path)
        return None if blobs is None else [parse_files(blob) for blob in blobs if _named(blob, words)]

    for path in DATABASES:
        listings = host.consult(path, read)
        if listings is not None:
            break
    else:
        result = host.run(_FILES_QUERY + [f"*{word}*" for word in words], timeout=60)
        if not result.ok:
            host.unreadable["the rpm database"] = result.summary()
            return {}
        rows = [line.partition(" ") for line in result.out.splitlines()]
        listings = [(name, [path] if path else []) for name, _space, path in rows]
    found: dict = {}
    for name, paths in listings:
        found.setdefault(name, []).extend(paths)
    return found


def _named(blob, words):
    name = parse_header(blob).get("name", "")
    return any(word in name for word in words)


def _rows(path):
    """The rows of a SQLite database; None when this Python or this SQLite cannot read it."""
    blobs = _blobs(path)
    if blobs is None:
        return None
    headers = [parse_header(blob) for blob in blobs]
    return [
        _row(header["name"], header.get("epoch", 0), header["version"], header["release"], header.get("arch", ""))
        for header in headers
        if header.get("name") != "gpg-pubkey"
    ]


def _blobs(path):
    """The headers of a SQLite database, the last installed first; None when it cannot be read here."""
    try:
        import sqlite3
    except ImportError:
        return None
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            return [blob for (blob,) in connection.execute("SELECT blob FROM Packages ORDER BY hnum DESC")]
        finally:
            connection.close()
    except sqlite3.Error:
        return None


def _row(name, epoch, version, release, arch):
    prefix = "" if str(epoch) == "0" else f"{epoch}:"
    return {"name": name, "version": f"{prefix}{version}-{release}", "arch": arch}


def _entries(blob, tags):
    """The index entries of one header blob with these tags: ``(tag, type, start of its data, count)``.

    A header is two counts (index entries, bytes of data), the index (tag, type, offset, count; each an int32 of the
    network's byte order), and the data that the offsets point into.
    """
    entries, _size = struct.unpack_from(">II", blob, 0)
    data = 8 + 16 * entries
    for index in range(entries):
        tag, kind, offset, count = struct.unpack_from(">IIII", blob, 8 + 16 * index)
        if tag in tags:
            yield tag, kind, data + offset, count


def parse_header(blob):
    """The identifying tags of one header blob: dict of name, version, release, arch (str) and epoch (int, if any)."""
    found = {}
    for tag, kind, start, _count in _entries(blob, _TAGS):
        if kind == _INT32:
            found[_TAGS[tag]] = struct.unpack_from(">I", blob, start)[0]
        else:
            found[_TAGS[tag]] = bytes(blob[start : blob.index(b"\0", start)]).decode("utf-8", "replace")
    return found


def parse_files(blob):
    """``(name, [path])`` of one header blob: rpm keeps a path as a name and the number of its directory."""
    arrays: dict = {_DIRECTORY_OF: [], _BASENAMES: [], _DIRECTORIES: []}
    for tag, kind, start, count in _entries(blob, arrays):
        if kind == _INT32:
            arrays[tag] = list(struct.unpack_from(f">{count}I", blob, start))
        else:
            words = bytes(blob[start:]).split(b"\0", count)[:count]
            arrays[tag] = [word.decode("utf-8", "replace") for word in words]
    names = zip(arrays[_DIRECTORY_OF], arrays[_BASENAMES])
    return parse_header(blob)["name"], [arrays[_DIRECTORIES][number] + name for number, name in names]
