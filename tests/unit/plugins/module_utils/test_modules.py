# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import gzip
import lzma

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _dkms, _modules
from tests.unit.hosts import Dir, Link

RELEASE = "6.1.0-18-amd64"
KO = b"\x7fELF" + bytes(100) + b"\0srcversion=ABC\0license=Dual MIT/GPL\0version=580.65.06\0name=nvidia\0" + bytes(100)


def module(name="updates/dkms/nvidia.ko", data=KO):
    return {f"/lib/modules/{RELEASE}/{name}": data}


def test_loaded_modules_and_their_holders(make_host):
    host = make_host(
        {
            "/sys/module/nvidia/holders/nvidia_uvm": Dir(),
            "/sys/module/nvidia/version": "580.65.06\n",
            "/sys/module/nvidia_drm": Dir(),
        }
    )
    assert _modules.loaded(host, "nvidia") and _modules.loaded(host, "nvidia-drm")
    assert _modules.holders(host, "nvidia") == ["nvidia_uvm"]
    assert _modules.loaded_version(host, "nvidia") == "580.65.06"
    assert _modules.loaded(host, "nouveau") is False
    assert _modules.holders(host, "nouveau") == []


@pytest.mark.parametrize("tree", [{}, {"/sys/module": Dir()}, {"/sys/module": ""}])
def test_a_host_that_shows_no_modules_does_not_say_that_one_is_not_loaded(make_host, tree):
    assert _modules.loaded(make_host(tree), "nouveau") is None


@pytest.mark.parametrize(
    "files",
    [
        module(),
        module("updates/dkms/nvidia.ko.xz", lzma.compress(KO)),
        module("extra/nvidia.ko.gz", gzip.compress(KO)),
        module("kernel/drivers/video/nvidia.ko", bytes((1 << 20) - 130) + KO),
    ],
)
def test_D12_the_version_is_read_from_the_module_file(make_host, files):
    host = make_host(files)
    assert _modules.info(host, RELEASE, "nvidia") == {
        "path": next(iter(files)),
        "version": "580.65.06",
        "license": "Dual MIT/GPL",
    }


def test_D12_a_zstd_module_is_read_by_modinfo(make_host):
    path = f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko.zst"
    host = make_host(
        {path: b"\x28\xb5\x2f\xfd"},
        {("modinfo", "-F", "version", path): (0, "580.65.06\n"), ("modinfo", "-F", "license", path): (0, "NVIDIA\n")},
    )
    assert _modules.info(host, RELEASE, "nvidia") == {"path": path, "version": "580.65.06", "license": "NVIDIA"}


def test_a_dkms_module_wins_over_the_kernels_own(make_host):
    host = make_host(
        {**module(), **module("kernel/drivers/video/nvidia.ko", KO.replace(b"580.65.06", b"535.98\0\0\0"))}
    )
    assert _modules.installed_version(host, RELEASE, "nvidia") == "580.65.06"


def test_B3_no_module_for_this_kernel_is_none(make_host):
    host = make_host({"/lib/modules/6.1.0-9-amd64/updates/dkms/nvidia.ko": KO, "/usr/bin/nvidia-smi": ""})
    assert _modules.installed_version(host, RELEASE, "nvidia") is None


@pytest.mark.parametrize("data", [b"", lzma.compress(KO)[:40], b"not compressed"])
def test_a_damaged_module_has_no_version(make_host, data):
    host = make_host(module("updates/dkms/nvidia.ko.xz", data))
    assert _modules.info(host, RELEASE, "nvidia")["version"] is None


def test_a_module_is_found_under_either_spelling(make_host):
    host = make_host(module("updates/dkms/nvidia-drm.ko"))
    assert _modules.path(host, RELEASE, "nvidia_drm").endswith("nvidia-drm.ko")


DKMS = "/var/lib/dkms/nvidia"


def test_dkms_rows_are_read_from_its_tree(make_host):
    host = make_host(
        {
            "/var/lib/dkms/dkms_dbversion": "2.0.0\n",
            "/usr/src/nvidia-580.65.06/dkms.conf": "",
            f"{DKMS}/580.65.06/source": Link("/usr/src/nvidia-580.65.06"),
            f"{DKMS}/580.65.06/{RELEASE}/x86_64/module/nvidia.ko": "",
            f"{DKMS}/580.65.06/6.1.0-9-amd64/x86_64/module/nvidia.ko": "",
            f"{DKMS}/580.65.06/build/make.log": "",
            f"{DKMS}/580.65.06/6.5.0/x86_64/log/make.log": "",
            f"{DKMS}/kernel-{RELEASE}-x86_64": Link(f"580.65.06/{RELEASE}/x86_64"),
            "/usr/src/lustre-1/dkms.conf": "",
            "/var/lib/dkms/lustre/1/source": Link("/usr/src/lustre-1"),
            "/var/lib/dkms/gone/2/source": Link("/usr/src/gone-2"),
        }
    )
    assert _dkms.rows(host) == [
        {"module": "gone", "version": "2", "kernel": None, "arch": None, "status": "broken"},
        {"module": "lustre", "version": "1", "kernel": None, "arch": None, "status": "added"},
        {"module": "nvidia", "version": "580.65.06", "kernel": RELEASE, "arch": "x86_64", "status": "installed"},
        {"module": "nvidia", "version": "580.65.06", "kernel": "6.1.0-9-amd64", "arch": "x86_64", "status": "built"},
    ]


def test_no_dkms_no_rows(make_host):
    assert _dkms.rows(make_host()) == []
