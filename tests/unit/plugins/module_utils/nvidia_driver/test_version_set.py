# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version set, resolved from literal machines and repositories."""

import re

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import fabric_packages, version_set

SWITCH = {"address": "0000:07:00.0", "device": "0x22a3", "driver": "nvidia-nvswitch"}
APT_LIST = "/var/lib/apt/lists/repo_dists_stable_main_binary-amd64_Packages"
MADISON = """\
nvidia-fabricmanager | 580.105.08-1 | https://repo.example.org stable/main amd64 Packages
nvidia-fabricmanager | 580.95.05-1 | https://repo.example.org stable/main amd64 Packages
nvidia-fabricmanager-580 | 580.95.05-0ubuntu0.24.04.1 | https://ubuntu.example.org noble/multiverse amd64 Packages
"""


def gpus(device, count=8, driver=None):
    return [{"device": device, "driver": driver}] * count


def wants(kind, version="580.95.05", architecture="x86_64", manager="apt"):
    needed = version_set.resolve(kind, version, architecture, manager)
    return {part["names"][0]: part["version"] for part in needed["parts"]}


@pytest.mark.parametrize(
    ("machine", "switches", "bridges", "kind"),
    [
        (gpus("0x2330"), [SWITCH] * 4, 0, "nvswitch"),
        (gpus("0x20b2"), [SWITCH] * 6, 0, "nvswitch"),
        (gpus("0x2330"), [], 0, "none"),
        (gpus("0x2235", 2), [], 0, "none"),
        (gpus("0x2330"), [dict(SWITCH, driver="vfio-pci")] * 4, 0, "none"),
        ([], [SWITCH] * 4, 0, "none"),
        (gpus("0x2901"), [], 0, "nvlink5"),
        (gpus("0x3182"), [], 4, "nvlink5"),
        (gpus("0x2901", 1), [], 0, "none"),
        (gpus("0x2901", 1), [], 4, "nvlink5"),
        (gpus("0x2941", 4), [], 4, "rack"),
        (gpus("0x31c2", 4), [SWITCH], 0, "rack"),
        ([{"device": None, "driver": None}], [], 0, "none"),
    ],
    ids=[
        *("H100", "A100", "H100 without switches", "A40 pair", "switches of a virtual machine", "no GPU of the host"),
        *("B200", "B300", "one B200 of eight", "one B200 with its switches", "GB200", "GB300", "no device id"),
    ],
)
def test_J3_the_platform_follows_from_gpus_and_switches(machine, switches, bridges, kind):
    assert version_set.platform(machine, switches, bridges) == kind


def test_J3_no_nvswitch_needs_no_fabric_manager():
    assert version_set.resolve("none", "580.95.05", "x86_64", "apt") == {"parts": [], "unit": None, "modules": ()}


def test_J2_the_query_library_belongs_to_the_set_in_the_drivers_version():
    assert wants("nvswitch") == {"nvidia-fabricmanager": "580.95.05", "libnvidia-nscq": "580.95.05"}


def test_J5_nvlink5_needs_nvlsm_and_its_kernel_modules():
    needed = version_set.resolve("nvlink5", "580.95.05", "x86_64", "apt")
    assert needed["modules"] == ("ib_umad", "mlx5_ib")
    assert wants("nvlink5") == {
        "nvidia-fabricmanager": "580.95.05",
        "libnvidia-nscq": "580.95.05",
        "libnvsdm": "580.95.05",
        "nvlsm": None,
        "infiniband-diags": None,
    }


def test_libnvsdm_exists_for_x86_64_from_branch_570_on():
    assert "libnvsdm" not in wants("nvlink5", architecture="aarch64")
    assert "libnvsdm-570" in wants("nvlink5", "570.133.20")


def test_a_rack_gets_imex_and_no_fabric_manager_on_its_compute_nodes():
    assert wants("rack") == {"nvidia-imex": "580.95.05"}
    assert version_set.resolve("rack", "580.95.05", "aarch64", "apt")["unit"] is None


@pytest.mark.parametrize(
    ("base", "branch", "manager", "names"),
    [
        ("nvidia-fabricmanager", 570, "apt", ["nvidia-fabricmanager-570"]),
        ("nvidia-fabricmanager", 580, "apt", ["nvidia-fabricmanager", "nvidia-fabricmanager-580"]),
        ("libnvidia-nscq", 535, "apt", ["libnvidia-nscq-535"]),
        ("libnvidia-nscq", 590, "apt", ["libnvidia-nscq", "libnvidia-nscq-590"]),
        ("nvidia-fabricmanager", 570, "dnf", ["nvidia-fabric-manager", "nvidia-fabricmanager-570"]),
        ("nvidia-fabricmanager", 580, "dnf", ["nvidia-fabricmanager"]),
    ],
)
def test_J1_the_package_name_follows_the_branch(base, branch, manager, names):
    assert version_set.names(base, branch, manager) == names


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("580.95.05-1", "580.95.05"),
        ("580.95.05-0ubuntu0.24.04.1", "580.95.05"),
        ("3:570.133.20-1.el9", "570.133.20"),
        ("580.95.05-1ubuntu1", "580.95.05"),
        ("580.95.05~rc1-1", "580.95.05"),
        ("570.144", "570.144"),
    ],
)
def test_the_upstream_version_of_a_package(version, upstream):
    assert version_set.upstream(version) == upstream


@pytest.mark.parametrize("manager", ["apt", "dnf"])
@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("kind", ["nvswitch", "nvlink5", "rack"])
def test_B12_no_package_is_named_with_an_architecture_which_debs_and_rpms_spell_differently(
    kind, architecture, manager
):
    parts = version_set.resolve(kind, "570.133.20", architecture, manager)["parts"]
    words = re.split(r"[-_.:]", "-".join(name for part in parts for name in part["names"]))
    assert len(words) > 1
    assert not {"amd64", "arm64", "x86", "aarch64", "sbsa"} & set(words)


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_B12_a_kept_file_is_found_on_either_architecture(make_host, architecture):
    path = f"{fabric_packages.DIRECTORY}/nvidia-imex_580.95.05-1_{architecture}.deb"
    assert fabric_packages.kept(make_host({path: ""})) == {"nvidia-imex": {"580.95.05-1": path}}


def test_J1_the_branch_alone_does_not_fit():
    part = {"what": "fabric manager", "names": ["nvidia-fabricmanager-530"], "version": "530.41.03"}
    assert not version_set.fits(part, "530.30.02-1")
    assert version_set.choose(part, {"nvidia-fabricmanager-530": ["530.30.02-1"]}) is None
    assert version_set.choose(part, {"nvidia-fabricmanager-530": ["530.41.03-1"]}) == (
        "nvidia-fabricmanager-530",
        "530.41.03-1",
    )


def test_J1_availability_is_asked_of_apt_by_name_and_version(make_host):
    names = ["nvidia-fabricmanager", "nvidia-fabricmanager-580", "libnvidia-nscq"]
    host = make_host({APT_LIST: ""}, {("apt-cache", "madison", *names): (0, MADISON)})
    offered = version_set.offers(host, "apt", names)
    assert offered == {
        "nvidia-fabricmanager": ["580.105.08-1", "580.95.05-1"],
        "nvidia-fabricmanager-580": ["580.95.05-0ubuntu0.24.04.1"],
        "libnvidia-nscq": [],
    }
    part = version_set.resolve("nvswitch", "580.95.05", "x86_64", "apt")["parts"][0]
    assert version_set.choose(part, offered) == ("nvidia-fabricmanager", "580.95.05-1")


def test_J1_availability_is_asked_of_dnf(make_host):
    argv = ("dnf", "--quiet", "repoquery", "--queryformat", "%{name} %{version}-%{release}\n", "nvidia-fabricmanager")
    out = "nvidia-fabricmanager 580.82.07-1\n\nnvidia-fabricmanager 580.95.05-1\n"
    host = make_host({"/usr/bin/dnf": ""}, {argv: (0, out)})
    assert version_set.offers(host, "dnf", ["nvidia-fabricmanager"]) == {
        "nvidia-fabricmanager": ["580.95.05-1", "580.82.07-1"]
    }


def test_without_package_lists_nothing_is_known(make_host):
    assert version_set.offers(make_host(), "apt", ["nvidia-fabricmanager"]) is None
    assert version_set.offers(make_host(), None, ["nvidia-fabricmanager"]) is None


def test_J6_functions_that_lead_to_switches_are_counted_by_their_vital_product_data(make_host):
    base = "/sys/bus/pci/devices/0000:%s:00.0/%s"
    host = make_host(
        {
            base % ("05", "vendor"): "0x15b3\n",
            base % ("05", "vpd"): b"\x82\x10\x00ConnectX-7 SW_MNG\x00",
            base % ("06", "vendor"): "0x15b3\n",
            base % ("06", "vpd"): b"\x82\x10\x00ConnectX-7\x00",
            base % ("1b", "vendor"): "0x10de\n",
        }
    )
    assert version_set.management_bridges(host) == 1
