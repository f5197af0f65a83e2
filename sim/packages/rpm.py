# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed rpm repository of empty packages, made from rpm.yml with rpmbuild, rpmsign and createrepo_c.

python -m sim.packages.rpm [DIRECTORY]

DIRECTORY (default: the lab's mirror) gets `start/`, the packages that a fresh host has installed, `el9/`, the
repository of all, and `RPM-GPG-KEY`, the public key. It is built anew only when its ingredients have changed.
"""

import fcntl
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from sim.lab import cache
from sim.lab.process import call, say
from sim.packages import signing

CATALOGUE = Path(__file__).with_name("rpm.yml")
DEFAULT = cache.MIRROR / "rpm"
SIGNER = "gpufleet-lab <lab@example.com>"


def packages(catalogue: Path = CATALOGUE) -> dict[str, dict[str, Any]]:
    """Name -> {versions, installed, requires, provides, security, post}, defaults filled in."""
    document = yaml.safe_load(catalogue.read_text())
    empty = {
        "versions": document["default_versions"],
        "installed": 0,
        "requires": [],
        "provides": [],
        "security": False,
        "post": {},
    }
    return {name: {**empty, **row} for name, row in document["packages"].items()}


def start(rows: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """What a fresh host has installed: (name, version)."""
    return [(name, full) for name, row in rows.items() for full in row["versions"][: row["installed"]]]


def spec(rows: dict[str, dict[str, Any]], turn: int) -> str:
    """One spec file that makes the `turn`-th version of every package that has so many."""
    lines = ["Name: gpufleet-lab", "Version: 1", f"Release: {turn}", "Summary: packages of the lab", "License: GPL-3.0"]
    for name, row in rows.items():
        if turn >= len(row["versions"]):
            continue
        full = row["versions"][turn]
        epoch, _, rest = full.rpartition(":")
        version, _, release = rest.partition("-")
        lines += ["", f"%package -n {name}", f"Summary: stand-in for {name}", f"Version: {version}"]
        lines += [f"Release: {release}", *([f"Epoch: {epoch}"] if epoch else [])]
        for tag in ("Requires", "Provides"):
            lines += [f"{tag}: {value.replace('%{v}', full)}" for value in row[tag.lower()]]
        lines += [f"%description -n {name}", "Empty.", f"%files -n {name}"]
        if full in row["post"]:
            # in rpm's own Lua: a script for the shell requires /bin/sh, which is no package here
            lines += [f"%post -n {name} -p <lua>", f'os.execute("{row["post"][full]}")']
    return "\n".join([*lines, "", "%description", "Not made.", ""])


def updateinfo(rows: dict[str, dict[str, Any]]) -> str:
    """What a distribution says about its updates: which of them mend a security problem."""
    packages_xml = []
    for name, row in rows.items():
        if row["security"]:
            epoch, _, rest = row["versions"][-1].rpartition(":")
            version, _, release = rest.partition("-")
            packages_xml.append(
                f'<package name="{name}" epoch="{epoch or 0}" version="{version}" release="{release}" arch="x86_64">'
                f"<filename>{name}-{rest}.x86_64.rpm</filename></package>"
            )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><updates><update from="lab" status="final" type="security" version="1">'
        "<id>LAB-1</id><title>An update</title><severity>Important</severity><issued date='2025-06-01 00:00:00'/>"
        '<pkglist><collection short="lab"><name>lab</name>'
        + "".join(packages_xml)
        + "</collection></pkglist></update></updates>\n"
    )


def digest() -> str:
    """What the repository is made from, in twelve hexadecimal digits."""
    return hashlib.sha256(CATALOGUE.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]


def build(directory: Path = DEFAULT) -> Path:
    """Make the repository unless it is there and current; returns `directory`. Of two at once, one waits."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = directory / "digest"
        if not stamp.exists() or stamp.read_text() != digest():
            say(f"building the rpm repository {directory}")
            _build(packages(), directory)
    return directory


def _build(rows: dict[str, dict[str, Any]], directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gpufleet-rpm-") as scratch:
        top = Path(scratch)
        for turn in range(max(len(row["versions"]) for row in rows.values())):
            path = top / f"{turn}.spec"
            path.write_text(spec(rows, turn))
            flags = ["--target", "x86_64", "--define", f"_topdir {top}"]
            call(["rpmbuild", "--quiet", "-bb", *flags, str(path)], timeout=600)
        made = top / "RPMS" / "x86_64"
        _sign(top, sorted(made.glob("*.rpm")))
        repository, fresh = top / "out" / "el9", top / "out" / "start"
        shutil.copytree(made, repository)
        call(["createrepo_c", "--quiet", str(repository)], timeout=300)
        (top / "updateinfo.xml").write_text(updateinfo(rows))
        call(["modifyrepo_c", "--mdtype=updateinfo", str(top / "updateinfo.xml"), str(repository / "repodata")])
        fresh.mkdir()
        for name, full in start(rows):
            shutil.copy(made / f"{name}-{full.rpartition(':')[2]}.x86_64.rpm", fresh)
        shutil.copy(top / "RPM-GPG-KEY", top / "out")
        (top / "out" / "digest").write_text(digest())
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(top / "out", directory)


def _sign(top: Path, files: list[Path]) -> None:
    with signing.gpg(SIGNER, "rsa3072") as gpg:
        call([*gpg, "--armor", "--output", str(top / "RPM-GPG-KEY"), "--export", SIGNER])
        home = gpg[gpg.index("--homedir") + 1]
        macros = {"__gpg": shutil.which("gpg"), "_gpg_path": home, "_gpg_name": SIGNER}
        flags = [word for macro in macros.items() for word in ("--define", " ".join(map(str, macro)))]
        call(["rpmsign", *flags, "--addsign", *map(str, files)], timeout=600)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT))
