# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package itself: integrity, header options, reproducible bytes, and the options each branch knows."""

import hashlib
import re

import pytest

from sim.runfile import __main__ as cli
from sim.runfile.package import KNOWN_VERSIONS, BuildError, build, options

VERSION = "570.133.20"


def names(version):
    return {name for _, name, _ in options(version)}


def test_check_accepts_a_whole_package(host, package):
    result = host.command("sh", package(VERSION), "--check")
    assert (result.returncode, result.stderr) == (0, "")


def test_C3_truncated_package_is_refused_and_its_checksum_differs(host, nvml, tmp_path):
    run = build(VERSION, tmp_path, nvml=nvml, truncated=True)
    result = host.command("sh", run, "--check")
    assert result.returncode == 1
    assert "Unexpected archive size" in result.stderr
    wanted = (tmp_path / f"{run.name}.sha256sum").read_text().split()[0]
    assert hashlib.sha256(run.read_bytes()).hexdigest() != wanted
    assert host.install(run).returncode == 1
    assert host.files() == set()


def test_C4_changed_archive_names_both_checksums(host, package, tmp_path):
    data = bytearray(package(VERSION).read_bytes())
    data[-1] ^= 1
    (tmp_path / "changed.run").write_bytes(data)
    result = host.command("sh", tmp_path / "changed.run", "--check")
    assert result.returncode == 1
    assert "Error in MD5 checksums:" in result.stderr


def test_checksum_file_is_what_sha256sum_reads(package):
    run = package(VERSION)
    text = run.with_name(run.name + ".sha256sum").read_text()
    assert text == f"{hashlib.sha256(run.read_bytes()).hexdigest()}  NVIDIA-Linux-x86_64-570.133.20.run\n"


def test_same_input_gives_the_same_bytes(package, nvml, tmp_path):
    assert build(VERSION, tmp_path, nvml=nvml).read_bytes() == package(VERSION).read_bytes()


def test_missing_nvml_says_what_to_build(tmp_path, capsys):
    missing = tmp_path / "no.so"
    assert cli.main(["build", "--version", VERSION, "--output", str(tmp_path), "--nvml", str(missing)]) == 1
    assert "run `make -C sim/nvml` first" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["570", "570.1.2.3", "latest", "470.256.02"])
def test_versions_that_cannot_be_built(version, tmp_path, nvml):
    with pytest.raises(BuildError):
        build(version, tmp_path, nvml=nvml)


def test_two_part_version_builds(package):
    assert package("570.144").name == "NVIDIA-Linux-x86_64-570.144.run"


def test_other_architecture_is_a_row_of_a_table(nvml, tmp_path):
    assert build(VERSION, tmp_path, "aarch64", nvml).name == "NVIDIA-Linux-aarch64-570.133.20.run"


def test_info_names_the_version_and_the_target_folder(host, package):
    result = host.command("sh", package(VERSION), "--info")
    assert "Identification    : NVIDIA Accelerated Graphics Driver for Linux-x86_64 570.133.20" in result.stdout
    assert "Target directory  : NVIDIA-Linux-x86_64-570.133.20" in result.stdout


def test_extract_only_into_a_target_that_must_not_exist(host, package):
    result = host.command("sh", package(VERSION), "-x", "--target", host.root / "there")
    assert result.returncode == 0, result.stderr
    present = {path.name for path in (host.root / "there").iterdir()}
    assert {".manifest", "nvidia-installer", "kernel", "kernel-open", "supported-gpus", "firmware"} <= present
    assert (host.root / "there/libnvidia-ml.so.570.133.20").is_file()
    assert host.command("sh", package(VERSION), "-x", "--target", host.root / "there").returncode == 1


@pytest.mark.parametrize(
    ("option", "first"),
    [
        ("skip-module-load", 550),
        ("allow-installation-with-running-driver", 550),
        ("rebuild-initramfs", 550),
        ("kernel-module-type", 560),
        ("print-recommended-kernel-module-type", 560),
    ],
)
def test_options_that_came_with_a_branch(option, first):
    for version in KNOWN_VERSIONS:
        assert (option in names(version)) == (int(version[:3]) >= first), version


@pytest.mark.parametrize("version", sorted(KNOWN_VERSIONS))
def test_options_every_branch_knows(version):
    common = """
    silent ui no-questions accept-license dkms no-opengl-files no-nouveau-check tmpdir kernel-name log-file-name
    uninstall concurrency-level no-x-check no-cc-version-check no-distro-scripts kernel-module-build-directory no-drm
    no-peermem
    """
    assert set(common.split()) <= names(version)


@pytest.mark.parametrize(
    ("version", "option"),
    [
        ("535.129.03", "--skip-module-load"),
        ("535.129.03", "--kernel-module-type=open"),
        ("550.127.08", "-M=open"),
        ("570.133.20", "--no-such-thing"),
        ("570.133.20", "--no-silent"),
        ("570.133.20", "--dkms=yes"),
        ("570.133.20", "-m=kernel-closed"),
        ("570.133.20", "--kernel-module-type=closed"),
        ("570.133.20", "stray"),
    ],
)
def test_unknown_option_changes_nothing(host, package, version, option):
    result = host.install(package(version), option)
    assert result.returncode == 1
    assert re.search(
        r"Invalid commandline, please run `\S*nvidia-installer --help` for usage information", result.stderr
    )
    assert host.files() == set()
    assert list((host.root / "tmp").iterdir()) == []


def test_help_lists_options_of_the_header_and_of_the_branch(host, package):
    text = host.command("sh", package("535.129.03"), "--advanced-options").stdout
    assert "--extract-only" in text and "--no-nouveau-check" in text
    assert "--skip-module-load" not in text
    assert "--skip-module-load" in host.command("sh", package(VERSION), "--advanced-options").stdout


@pytest.mark.parametrize(("device", "answer"), [("0x2330", "open"), ("0x1db6", "proprietary"), ("0x2901", "open")])
def test_recommended_kernel_module_type(host, package, device, answer):
    host.gpu(device)
    result = host.command("sh", package(VERSION), "--silent", "--print-recommended-kernel-module-type")
    assert (result.returncode, result.stdout) == (0, answer + "\n")
