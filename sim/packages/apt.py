# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed apt repository of nearly empty packages, made from catalogue.yml with dpkg-deb and gpg.

    <directory>/key.asc                      the public key; see signing.py
    <directory>/dists/<suite>/InRelease      one suite each of the catalogue
    <directory>/pool/<name>_<version>.deb

A host reads it with `deb [signed-by=/etc/apt/keyrings/gpufleet-lab.asc] <mirror>/apt <suite> main`. Sources: the
repository format of Debian's wiki, deb-control(5).
"""

import fcntl
import gzip
import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import yaml

from sim.lab import cache
from sim.lab.process import call, say
from sim.packages import signing

CATALOGUE = Path(__file__).with_name("catalogue.yml")
#: Files of the packages that name one of these folders in the catalogue; @VERSION@ is the upstream version.
PAYLOAD = Path(__file__).with_name("payload")
DEFAULT = cache.MIRROR / "apt"
SIGNER = "gpufleet lab <lab@example.com>"


def catalogue(path: Path = CATALOGUE) -> dict[str, Any]:
    """Suites: ``{suite: {origin, label, codename, packages: {name: [version]}}}``; and fields by name."""
    document = yaml.safe_load(path.read_text())
    return {"suites": document["suites"], "packages": document["packages"]}


def control(name: str, version: str, fields: dict[str, Any]) -> str:
    """The control file; ``@VERSION@`` in a dependency is the package's own."""
    lines = [f"Package: {name}", f"Version: {version}", "Architecture: amd64", f"Maintainer: {SIGNER}"]
    for field in ("depends", "recommends", "conflicts", "provides"):
        if fields.get(field):
            lines.append(f"{field.capitalize()}: {', '.join(fields[field])}".replace("@VERSION@", version))
    return "\n".join([*lines, "Section: misc", "Priority: optional", f"Description: stand-in for {name}", ""])


def digest() -> str:
    """What the repository is made from."""
    sources = [CATALOGUE, Path(__file__), *sorted(path for path in PAYLOAD.rglob("*") if path.is_file())]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def build(directory: Path = DEFAULT) -> Path:
    """Make the repository unless it is there and current; returns `directory`. Of two at once, one waits."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = directory / "digest"
        if stamp.exists() and stamp.read_text() == digest():
            return directory
        fresh = Path(tempfile.mkdtemp(prefix=".apt-", dir=directory.parent))
        try:
            _build(catalogue(), fresh)
            (fresh / "digest").write_text(digest())
            fresh.chmod(0o755)
            shutil.rmtree(directory, ignore_errors=True)
            fresh.rename(directory)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    say(f"{directory}: {len(list(directory.glob('pool/*.deb')))} packages")
    return directory


def _build(document: dict[str, Any], directory: Path) -> None:
    (directory / "pool").mkdir()
    stanzas: dict[tuple[str, str], str] = {}
    for suite, row in document["suites"].items():
        rows = [(name, version) for name, versions in row["packages"].items() for version in versions]
        for name, version in rows:
            if (name, version) not in stanzas:
                fields = document["packages"].get(name, {})
                fields = {**fields, **fields.get("at", {}).get(version, {})}
                stanzas[name, version] = _package(name, version, fields, directory)
        _index(directory / "dists" / suite, suite, row, [stanzas[key] for key in rows])
    _sign(directory)


def _package(name: str, version: str, fields: dict[str, Any], directory: Path) -> str:
    """Make one package; its stanza for an index."""
    text = control(name, version, fields)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN" / "control").write_text(text)
        for script, body in fields.get("scripts", {}).items():
            (root / "DEBIAN" / script).write_text(f"#!/bin/sh\n{body}\n")
            (root / "DEBIAN" / script).chmod(0o755)
        if "payload" in fields:
            _payload(PAYLOAD / fields["payload"], root, version)
        readme = root / "usr" / "share" / "doc" / name / "README"
        readme.parent.mkdir(parents=True)
        readme.write_text(f"{name} {version}: a stand-in, made for tests.\n")
        archive = directory / "pool" / f"{name}_{version.replace(':', '%3a')}_amd64.deb"
        call(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(archive)])
    data = archive.read_bytes()
    facts = f"Filename: pool/{archive.name.replace('%', '%25')}\nSize: {len(data)}\n"
    return text + facts + f"SHA256: {hashlib.sha256(data).hexdigest()}\n"


def _payload(source: Path, root: Path, version: str) -> None:
    """Copy the files of a package, programs executable."""
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        target = root / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text().replace("@VERSION@", version.rpartition("-")[0]))
        target.chmod(0o755 if target.parent.name == "bin" else 0o644)


def _index(directory: Path, suite: str, row: dict[str, Any], stanzas: Iterable[str]) -> None:
    packages = "\n".join(stanzas).encode()
    binary = directory / "main" / "binary-amd64"
    binary.mkdir(parents=True)
    (binary / "Packages").write_bytes(packages)
    (binary / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
    lines = [f"Origin: {row['origin']}", f"Label: {row['label']}", f"Suite: {suite}"]
    lines += [f"Codename: {row.get('codename', suite)}", f"Date: {formatdate(usegmt=True)}"]
    lines += ["Architectures: amd64", "Components: main", "SHA256:"]
    for path in sorted(binary.iterdir()):
        data = path.read_bytes()
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {path.relative_to(directory)}")
    (directory / "Release").write_text("\n".join(lines) + "\n")


def _sign(directory: Path) -> None:
    with signing.gpg(SIGNER, "ed25519") as gpg:
        call([*gpg, "--armor", "--output", str(directory / "key.asc"), "--export", SIGNER])
        for release in sorted(directory.glob("dists/*/Release")):
            call([*gpg, "--clearsign", "--output", str(release.with_name("InRelease")), str(release)])
