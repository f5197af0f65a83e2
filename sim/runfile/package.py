# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the package together: header, then a gzip-compressed tar with the payload. Same input, same bytes."""

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NVML = HERE.parent / "nvml" / "build" / "libnvidia-ml.so"

# Published data-centre versions and roughly when they were built (shown in /proc/driver/nvidia/version). Other versions
# build too, with the date of the newest known one.
KNOWN_VERSIONS = {
    "535.129.03": "Thu Oct 19 18:56:32 UTC 2023",
    "550.127.08": "Tue Oct 29 21:50:25 UTC 2024",
    "570.133.20": "Sun Mar 23 05:30:09 UTC 2025",
    "570.158.01": "Sat May 24 00:42:10 UTC 2025",
    "580.95.05": "Tue Sep 23 10:11:16 UTC 2025",
}
OLDEST_BRANCH = 535

# What differs by architecture: the word in file names and banners, and Debian's library folder.
ARCHITECTURES = {
    "x86_64": {"platform": "Linux-x86_64", "multiarch": "x86_64-linux-gnu"},
    "aarch64": {"platform": "Linux-aarch64", "multiarch": "aarch64-linux-gnu"},
}

FLAVOURS = {
    "kernel": ("NVIDIA", "NVIDIA UNIX {arch} Kernel Module  {version}  {date}"),
    "kernel-open": (
        "Dual MIT/GPL",
        "NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build  (gpufleet@sim)  {date}",
    ),
}


class BuildError(Exception):
    """The package cannot be built; the text says what to do."""


def branch(version):
    """535.129.03 -> 535. Versions have two or three parts."""
    match = re.fullmatch(r"(\d{3})\.\d{1,3}(?:\.\d{2})?", version)
    if not match:
        raise BuildError(f"{version!r} is not a driver version (570.144, 570.133.20)")
    number = int(match[1])
    if number < OLDEST_BRANCH:
        raise BuildError(f"{version}: branches before {OLDEST_BRANCH} have other options, which are not described here")
    return number


def table(name):
    """Rows of a text table in this folder, as lists of words; comments left out."""
    lines = (HERE / name).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def options(version):
    """(short letter or '-', name, kind) of every option the installer of a version knows."""
    number = branch(version)
    return [
        (short, name, kind)
        for since, until, short, name, kind in table("options.txt")
        if int(since) <= number and (until == "-" or number < int(until))
    ]


def fill(text, values):
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def build(version, output, arch="x86_64", nvml=None, truncated=False):
    """Write OUTPUT/NVIDIA-<platform>-<version>.run and .run.sha256sum; return the path of the package."""
    number = branch(version)
    nvml = nvml or NVML
    if not nvml.exists():
        raise BuildError(f"{nvml} is missing: run `make -C sim/nvml` first")
    name = f"NVIDIA-{ARCHITECTURES[arch]['platform']}-{version}"
    values = {
        "VERSION": version,
        "BRANCH": number,
        "NAME": name,
        "PLATFORM": ARCHITECTURES[arch]["platform"],
        "MULTIARCH": ARCHITECTURES[arch]["multiarch"],
        "DATE": KNOWN_VERSIONS.get(version, list(KNOWN_VERSIONS.values())[-1]),
        "OPTIONS": "\n".join(" ".join(option) for option in options(version)),
        "GPUS": "\n".join(" ".join(row[:4]) for row in table("gpus.txt")),
    }
    with tempfile.TemporaryDirectory(prefix="gpufleet-runfile-") as folder:
        payload = Path(folder)
        stage(payload, values, arch, nvml)
        archive = pack(payload)
    package = header(values, *archive) + archive[0]
    output.mkdir(parents=True, exist_ok=True)
    target = output / f"{name}.run"
    (output / f"{name}.run.sha256sum").write_text(f"{hashlib.sha256(package).hexdigest()}  {target.name}\n")
    target.write_bytes(package[: len(package) * 2 // 3] if truncated else package)
    target.chmod(0o755)
    return target


def stage(payload, values, arch, nvml):
    """Fill the payload folder, and write the manifest the installer works by."""
    (payload / "firmware").mkdir()
    (payload / "supported-gpus").mkdir()
    for size, chip in ((12, "tu10x"), (16, "ga10x")):
        text = f"gsp_{chip} {values['VERSION']}\n".encode()
        (payload / f"firmware/gsp_{chip}.bin").write_bytes(text.ljust(size * 1024, b"\0"))
    (payload / "supported-gpus/supported-gpus.json").write_text(supported_gpus(values["BRANCH"]))
    (payload / "README.txt").write_text(
        f"Simulated driver {values['VERSION']} of the gpufleet.metal test bed. It drives no hardware.\n"
    )
    (payload / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    (payload / "nvidia-persistenced-init.tar.bz2").write_bytes(samples())
    (payload / "nvidia-installer").write_text(fill((HERE / "installer.sh").read_text(), values))
    lines = []
    for kind, group, mode, source, destination in table("manifest.txt"):
        links, file = "", source
        if kind in ("library", "nvml"):
            base = source.partition(".so.")[0]
            file = f"{base}.so.{values['VERSION']}"
            links = f" {source} {base}.so"
            if kind == "nvml":
                shutil.copyfile(nvml, payload / file)
            else:
                compile_library(payload / file, source)
        elif kind == "program" and source != "nvidia-installer":
            text = (HERE / "payload" / source).read_text()
            (payload / source).write_text(fill(text, values))
        lines.append(f"{group} {mode} {file} {destination.replace('@VERSION@', values['VERSION'])}{links}\n")
    (payload / ".manifest").write_text("".join(lines))
    for folder, (licence, banner) in FLAVOURS.items():
        stage_modules(
            payload / folder, values, licence, banner.format(arch=arch, version=values["VERSION"], date=values["DATE"])
        )


def stage_modules(folder, values, licence, banner):
    folder.mkdir()
    for source in sorted((HERE / "kernel").iterdir()):
        (folder / source.name).write_text(fill(source.read_text(), values))
    constants = {"NV_VERSION_STRING": values["VERSION"], "NV_MODULE_LICENSE": licence, "NV_BANNER": banner}
    lines = [f"#define {name} {json.dumps(text)}\n" for name, text in constants.items()]
    (folder / "nv-version.h").write_text("".join(lines))


def supported_gpus(number):
    """supported-gpus.json as the real package has it.

    Device id, name, and among the features which modules drive the chip: `kernelopen`, and for a chip that the open and
    the proprietary ones drive, `gsp_proprietary_supported`. A chip that an older branch drove last names that branch.
    """
    chips = []
    for device, since, until, flavours, *name in table("gpus.txt"):
        if int(since) > number:
            continue
        features = ["kernelopen"] if "open" in flavours.split(",") else []
        if flavours == "open,proprietary":
            features.append("gsp_proprietary_supported")
        chip = {"devid": device.upper().replace("0X", "0x"), "name": " ".join(name), "features": features}
        if until != "-" and number >= int(until):
            chip["legacybranch"] = f"{int(until) - 10}.xx"
        chips.append(chip)
    return json.dumps({"chips": chips}, indent=2) + "\n"


def samples():
    """The archive with examples for the persistence daemon: documentation, nothing that is installed by itself."""
    unit = b"[Unit]\nDescription=NVIDIA Persistence Daemon (sample)\n\n[Service]\nType=forking\n"
    unit += b"ExecStart=/usr/bin/nvidia-persistenced --user @USER@\n"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:bz2") as archive:
        entry = tarfile.TarInfo("nvidia-persistenced-init/systemd/nvidia-persistenced.service.template")
        entry.size = len(unit)
        archive.addfile(entry, io.BytesIO(unit))
    return stream.getvalue()


def compile_library(target, soname):
    argv = ["gcc", "-shared", "-nostdlib", "-fPIC", "-s", "-Wl,--build-id=none", f"-Wl,-soname,{soname}"]
    argv += ["-o", str(target), str(HERE / "payload" / "placeholder.c")]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{soname} does not compile: {result.stderr.strip()}")


def pack(payload):
    """(compressed archive, its size unpacked in bytes). Order, times and owners are fixed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(payload.rglob("*")):
            entry = archive.gettarinfo(path, path.relative_to(payload).as_posix())
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            programs = ("nvidia-smi", "nvidia-persistenced", "nvidia-modprobe", "nvidia-installer")
            entry.mode = 0o755 if path.is_dir() or path.name in programs else 0o644
            archive.addfile(entry, io.BytesIO(path.read_bytes()) if path.is_file() else None)
    return gzip.compress(stream.getvalue(), mtime=0), len(stream.getvalue())


def header(values, archive, unpacked):
    """The shell script in front of the archive; it checks what follows its last line."""
    text = fill((HERE / "header.sh").read_text(), values)
    return fill(
        text,
        {
            "CRC": cksum(archive),
            "MD5": hashlib.md5(archive, usedforsecurity=False).hexdigest(),
            "SIZE": len(archive),
            "LINES": text.count("\n"),
            "KILOBYTES": unpacked // 1024,
        },
    ).encode()


def cksum(data):
    """POSIX cksum, which the header compares with on the host."""
    result = subprocess.run(["cksum"], input=data, capture_output=True, check=True)
    return result.stdout.split()[0].decode()
