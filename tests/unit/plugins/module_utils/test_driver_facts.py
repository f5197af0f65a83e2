# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _driver_facts
from tests.unit.hosts import Dir, Link

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
FOLDER = "/usr/lib/x86_64-linux-gnu"
RELEASE = "6.1.0-18-amd64"
RUNFILE = {
    "/proc/driver/nvidia/version": OPEN,
    f"{FOLDER}/libnvidia-ml.so": Link("libnvidia-ml.so.1"),
    f"{FOLDER}/libnvidia-ml.so.1": Link("libnvidia-ml.so.580.65.06"),
    f"{FOLDER}/libnvidia-ml.so.580.65.06": "",
    f"/lib/modules/{RELEASE}/kernel": Dir(),
    f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko": b"\0version=580.65.06\0license=Dual MIT/GPL\0",
    "/usr/bin/nvidia-uninstall": "",
}


def dpkg(packages):
    """dpkg's database: name -> list of files."""
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n" for name in packages
    )
    lists = {f"/var/lib/dpkg/info/{name}.list": "/.\n" + "\n".join(files) + "\n" for name, files in packages.items()}
    return {"/var/lib/dpkg/status": status, **lists}


def test_an_empty_machine_has_no_driver(make_host):
    assert _driver_facts.read(make_host()) == {
        "loaded": None,
        "library": None,
        "libraries": [],
        "modules": {},
        "dkms": [],
        "packages": [],
        "provenance": None,
        "parameters": {"asked": {}, "in_force": {}},
        "match": "absent",
        "nouveau": {"loaded": None, "builtin": False},
    }


def test_a_runfile_driver(make_host):
    found = _driver_facts.read(make_host(RUNFILE))
    assert found["loaded"] == {"version": "580.65.06", "flavour": "open"}
    assert found["library"] == {"version": "580.65.06", "path": f"{FOLDER}/libnvidia-ml.so.580.65.06"}
    assert found["modules"] == {RELEASE: "580.65.06"}
    assert (found["match"], found["provenance"], found["packages"]) == ("match", "runfile", [])


def test_M16_a_new_library_over_an_old_module_is_its_own_state(make_host):
    old = OPEN.replace("580.65.06", "535.98")
    assert _driver_facts.read(make_host({**RUNFILE, "/proc/driver/nvidia/version": old}))["match"] == "mismatch"


def test_a_driver_on_disk_that_is_not_loaded(make_host):
    files = {path: content for path, content in RUNFILE.items() if not path.startswith("/proc")}
    assert _driver_facts.read(make_host(files))["match"] == "unloaded"


def test_the_library_is_the_one_that_programs_get(make_host):
    host = make_host({**RUNFILE, f"{FOLDER}/libnvidia-ml.so.590.10.01": ""})
    found = _driver_facts.read(host)
    assert found["library"]["version"] == "580.65.06"
    assert [library["version"] for library in found["libraries"]] == ["580.65.06", "590.10.01"]


@pytest.mark.parametrize(
    ("cached", "folder"), [("/opt/driver/lib", "/opt/driver/lib"), ("/lib/x86_64-linux-gnu", FOLDER)]
)
def test_the_loaders_cache_tells_of_other_folders(make_host, cached, folder):
    host = make_host(
        {
            "/etc/ld.so.cache": b"glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0"
            + cached.encode()
            + b"/libnvidia-ml.so.1\0libz\0",
            f"{folder}/libnvidia-ml.so.1": Link("libnvidia-ml.so.580.65.06"),
            f"{folder}/libnvidia-ml.so.580.65.06": "",
        }
    )
    found = _driver_facts.read(host)
    assert found["libraries"] == [{"version": "580.65.06", "path": f"{folder}/libnvidia-ml.so.580.65.06"}]


def test_D6_packages_of_a_driver_are_named_and_the_toolkits_are_not(make_host):
    host = make_host(
        dpkg(
            {
                "libnvidia-compute-535": [f"{FOLDER}/libnvidia-ml.so.535.98"],
                "nvidia-driver-535": ["/usr/share/doc/nvidia-driver-535"],
                "nvidia-container-toolkit": ["/usr/bin/nvidia-ctk"],
                "nvidia-fabricmanager": ["/usr/bin/nv-fabricmanager"],
                "cuda-drivers": ["/usr/share/doc/cuda-drivers"],
                "nvidia-dkms-535": ["/usr/src/nvidia-535.98/dkms.conf"],
            }
        )
    )
    found = _driver_facts.read(host)
    assert found["packages"] == ["cuda-drivers", "libnvidia-compute-535", "nvidia-dkms-535", "nvidia-driver-535"]
    assert found["provenance"] == "packages"


def test_D10_prebuilt_modules_are_part_of_the_driver_and_a_kernel_of_that_flavour_is_not(make_host):
    kernel = "6.8.0-45-generic"
    prebuilt = {
        f"linux-modules-nvidia-535-{kernel}": ["/usr/share/doc/linux-modules-nvidia"],
        f"linux-objects-nvidia-535-{kernel}": [f"/lib/modules/{kernel}/kernel/nvidia-535/bits/nvidia/nv.o"],
        f"linux-signatures-nvidia-{kernel}": [f"/lib/modules/{kernel}/kernel/nvidia-535/bits/nvidia.ko.sig"],
    }
    others = {"linux-modules-6.8.0-1010-nvidia-64k": ["/lib/modules/6.8.0-1010-nvidia-64k/kernel/a.ko"]}
    assert _driver_facts.read(make_host(dpkg({**prebuilt, **others})))["packages"] == sorted(prebuilt)


def test_D6_the_cuda_toolkits_own_copies_are_no_driver(make_host):
    targets = "/usr/local/cuda-13.0/targets/x86_64-linux"
    toolkit = {
        "cuda-compat-13-0": ["/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"],
        "cuda-driver-dev-13-0": [f"{targets}/lib/stubs/libcuda.so"],
        "cuda-nvml-dev-13-0": [f"{targets}/lib/stubs/libnvidia-ml.so", f"{targets}/include/nvml.h"],
        "nvidia-cuda-dev": ["/usr/lib/x86_64-linux-gnu/stubs/libcuda.so"],
    }
    driver = {"libcuda1": ["/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.247.01"]}
    assert _driver_facts.read(make_host(dpkg({**toolkit, **driver})))["packages"] == ["libcuda1"]


def test_D6_a_runfile_over_packages_is_mixed(make_host):
    host = make_host({**RUNFILE, **dpkg({"libnvidia-compute-535": [f"{FOLDER}/libnvidia-ml.so.535.98"]})})
    assert _driver_facts.read(host)["provenance"] == "mixed"


def test_parameters_asked_and_in_force(make_host):
    host = make_host(
        {
            "/etc/modprobe.d/nvidia.conf": '# ours\noptions nvidia NVreg_EnableMSI=1 \\\n  NVreg_RegistryDwords="a=1"\n'
            "options nvidia-drm modeset=1\n",
            "/usr/lib/modprobe.d/nvidia.conf": "options nvidia NVreg_EnableMSI=0\n",
            "/usr/lib/modprobe.d/other.conf": "options nvidia NVreg_EnableGpuFirmware=0\noptions snd x=1\n",
            "/proc/cmdline": "quiet nvidia.NVreg_EnableGpuFirmware=1 nvidia-drm.fbdev=1 root=x\n",
            "/proc/driver/nvidia/params": 'EnableMSI: 1\nRegistryDwords: "a=1"\nTemporaryFilePath: ""\n',
            "/sys/module/nvidia_drm/parameters/modeset": "Y\n",
        }
    )
    assert _driver_facts.read(host)["parameters"] == {
        "asked": {
            "NVreg_EnableMSI": "1",
            "NVreg_RegistryDwords": "a=1",
            "NVreg_EnableGpuFirmware": "1",
            "nvidia_drm.modeset": "1",
            "nvidia_drm.fbdev": "1",
        },
        "in_force": {"EnableMSI": 1, "RegistryDwords": "a=1", "TemporaryFilePath": "", "nvidia_drm.modeset": "Y"},
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/module/nouveau": Dir()}, {"loaded": True, "builtin": False}),
        (
            {
                "/sys/module/ext4": Dir(),
                "/proc/sys/kernel/osrelease": RELEASE,
                f"/lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/gpu/drm/nouveau/nouveau.ko\n",
            },
            {"loaded": False, "builtin": True},
        ),
    ],
)
def test_nouveau_beside_the_driver(make_host, files, expected):
    assert _driver_facts.read(make_host(files))["nouveau"] == expected
