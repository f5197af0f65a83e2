# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on a host, seen without the collection's own readers."""

import json
import re

import pytest

LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture
def version(host):
    """The loaded driver's version, as the kernel tells it."""
    return re.search(r"  (\d+\.\d+(?:\.\d+)?) ", host.file("/proc/driver/nvidia/version").content_string).group(1)


def kernels(host):
    return [path.split("/")[3] for path in host.check_output("ls -d /lib/modules/*/kernel").split()]


def gpu_count(host):
    classes = host.check_output("cat /sys/bus/pci/devices/*/class").split()
    return sum(text.startswith(("0x0300", "0x0302")) for text in classes)


def test_library_has_the_version_of_the_loaded_module(host, version):
    assert host.file(f"{LIBRARIES}/libnvidia-ml.so.{version}").is_file
    assert host.file(f"{LIBRARIES}/libnvidia-ml.so.1").linked_to == f"{LIBRARIES}/libnvidia-ml.so.{version}"
    assert len(host.check_output(f"ls {LIBRARIES}/libnvidia-ml.so.*.*").split()) == 1


def test_every_kernel_has_the_module_in_this_version(host, version):
    status = host.check_output("dkms status")
    for release in kernels(host):
        assert re.search(rf"nvidia/{version}, {re.escape(release)}, \w+: installed", status)
        assert host.check_output("modinfo -k %s -F version nvidia", release) == version


def test_firmware_has_this_version(host, version):
    assert host.check_output("ls /lib/firmware/nvidia") == version


def test_no_opengl_file_and_no_package_owns_what_was_installed(host, version):
    assert host.run(f"ls {LIBRARIES}/libGLX_nvidia.so*").rc != 0
    assert host.run(f"dpkg -S {LIBRARIES}/libnvidia-ml.so.{version}").rc != 0


def test_in_kernel_drivers_are_gone(host):
    assert not host.file("/sys/module/nouveau").exists


def test_device_files_are_there(host):
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(gpu_count(host)))]:
        assert host.file(f"/dev/{name}").exists


def test_persistence_daemon_runs_as_its_own_user(host):
    service = host.service("nvidia-persistenced")
    assert service.is_running
    assert service.is_enabled
    assert host.service("gpufleet-nvidia-devices").is_enabled
    assert host.file("/run/nvidia-persistenced").user == "nvidia-persistenced"
    assert host.user("nvidia-persistenced").shell == "/usr/sbin/nologin"
    assert {process.user for process in host.process.filter(comm="nvidia-persiste")} == {"nvidia-persistenced"}


def test_driver_answers(host, version):
    assert version in host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader")


def test_runfile_is_kept_and_the_temporary_directory_is_empty(host, version):
    assert host.file(f"/var/lib/gpufleet/runfiles/NVIDIA-Linux-x86_64-{version}.run").is_file
    assert host.check_output("ls -A /var/lib/gpufleet/tmp") == ""


def test_no_transaction_is_open(host):
    phase = json.loads(host.file("/var/lib/gpufleet/driver/journal.json").content_string)["phase"]
    assert phase in ("done", "staged")  # the host's first driver was staged for a reboot


def test_no_unit_failed(host):
    assert host.check_output("systemctl list-units --failed --no-legend 'nvidia*' 'gpufleet*'") == ""
