# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a real kernel can say. The tests build on one another: the last one leaves the other kernel running."""

import io
import json
import re
import subprocess
import tarfile
import time
from pathlib import Path

import ansible
import pytest

from sim.vm import qemu

ROOT = Path(__file__).parents[3]
VERSION = "580.95.05"
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
ON_HOST = "/tmp/gpufleet-test"
#: A module of somebody else that stands on the driver's, as gdrdrv does.
HOLDER = """
#include <linux/module.h>
#include "nv.h"
static int __init holder_init(void) { return nvidia_core_attach("holder"); }
static void __exit holder_exit(void) { nvidia_core_detach("holder"); }
module_init(holder_init);
module_exit(holder_exit);
MODULE_LICENSE("GPL");
"""
#: The collection's own code, asked on the machine as root.
USERS = """
import json, sys
sys.path.insert(0, "{path}")
from ansible_collections.gpufleet.metal.plugins.module_utils import _host
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import unload
host = _host.Host()
users = unload.read(host)
answer = {{"users": users, "obstacles": unload.obstacles(users), "order": unload.order(users)}}
if {unload}:
    answer["unload"] = unload.unload(host, users)
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def collection():
    """The module_utils of the collection and of Ansible, below ON_HOST on the machine."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(Path(ansible.__file__).parent / "module_utils", "ansible/module_utils")
        for path in sorted((ROOT / "plugins" / "module_utils").rglob("*.py")):
            tar.add(path, f"ansible_collections/gpufleet/metal/{path.relative_to(ROOT)}")
    unpack = f"sudo rm -rf {ON_HOST}; mkdir {ON_HOST} && cd {ON_HOST} && tar -xzf - && touch ansible/__init__.py"
    subprocess.run(qemu.ssh(unpack), input=archive.getvalue(), check=True)


def users(host, unload=False):
    program = USERS.format(path=ON_HOST, unload=unload)
    return json.loads(host.check_output("python3 -c %s", program))


def loaded(host):
    return [name for name in MODULES if host.file(f"/sys/module/{name}").exists]


def facts(host):
    answer = host.ansible("gpufleet.metal.gpu_facts", "", check=False, become=True)
    return answer["ansible_facts"]["gpu"]


def test_the_kernel_runs_the_driver(host):
    assert VERSION in host.file("/proc/driver/nvidia/version").content_string
    assert host.check_output("cat /sys/module/nvidia/version") == VERSION
    assert not host.file("/sys/module/nouveau").exists
    for address in ("0000:21:00.0", "0000:81:00.0"):
        assert host.check_output(f"readlink -f /sys/bus/pci/devices/{address}/driver").endswith("/drivers/nvidia")


def test_no_initramfs_lets_nouveau_in(host):
    for image in host.check_output("ls /boot/initrd.img-*").split():
        listing = host.check_output("lsinitramfs %s", image)
        assert "nouveau.ko" not in listing or "etc/modprobe.d/gpufleet-nouveau.conf" in listing


def test_dkms_built_for_both_kernels(host):
    releases = host.check_output("ls /lib/modules").split()
    assert len(releases) == 2
    status = host.check_output("dkms status")
    for release in releases:
        assert re.search(rf"nvidia/{VERSION}, {re.escape(release)}, x86_64: installed", status)
        assert host.check_output("modinfo -k %s -F vermagic nvidia", release).split()[0] == release


def test_facts_are_the_kernels_own(host):
    found = facts(host)
    assert found["driver"]["loaded"]["version"] == VERSION
    assert found["driver"]["match"] == "match"
    assert found["driver"]["parameters"]["in_force"]["EnableMSI"] in (1, "1")
    assert found["kernel"]["running"] == host.check_output("uname -r")
    assert [gpu["driver"] for gpu in found["pci"]["gpus"]] == ["nvidia", "nvidia"]
    assert [gpu["link"]["width"] for gpu in found["pci"]["gpus"]] == [16, 16]
    assert len(found["nvml"]["gpus"]) == 2


def test_what_the_machine_cannot_show_is_not_measured(host, playbook):
    """QEMU gives no NUMA node to these functions and no access control to their ports: nothing is made up."""
    assert {gpu["numa_node"] for gpu in facts(host)["pci"]["gpus"]} == {None}
    done = playbook("verify.yml", "-e", f"gpu_report_directory={ROOT}/build/vm/report")
    assert done.rc == 0, done.output
    checks = {check["id"]: check for check in _checks(ROOT / "build/vm/report")}
    assert checks["pcie_access_control"]["result"] == "not_measured"
    others = {name: check["result"] for name, check in checks.items() if name != "pcie_access_control"}
    assert set(others.values()) == {"pass"}, others


def _checks(folder):
    report = json.loads((folder / "report.json").read_text())
    return [check for row in report["hosts"] for check in row["checks"]]


def test_who_holds_the_driver_is_told_and_nothing_is_unloaded(host, collection):
    host.check_output("modprobe -a nvidia-drm nvidia-peermem")
    host.check_output("systemctl stop nvidia-persistenced")
    process = "exec 3<>/dev/nvidiactl; exec sleep 600"
    host.check_output("systemd-run --quiet --unit=job.service bash -c %s", process)
    found = users(host)
    assert re.fullmatch(r"sleep \(pid \d+, unit job\.service\)", found["obstacles"][0]), found
    assert found["order"].index("nvidia_drm") < found["order"].index("nvidia_modeset") < found["order"].index("nvidia")
    assert found["order"][-1] == "nvidia"
    assert host.run("rmmod nvidia").rc != 0
    # whoever tries in spite of it loses nothing: what was unloaded on the way is there again
    assert "nvidia" in users(host, unload=True)["unload"]
    assert set(loaded(host)) == set(MODULES)
    host.check_output("systemctl stop job.service")


def test_a_foreign_module_on_top_is_told(host, collection):
    source = f"{ON_HOST}/holder"
    host.check_output(f"cp -r /usr/src/nvidia-{VERSION} {source}")
    host.check_output("printf %%s %s >%s", HOLDER, f"{source}/holder.c")
    host.check_output(f"echo 'obj-m += holder.o' >> {source}/Kbuild")
    host.check_output(f"make -C {source} modules")
    host.check_output(f"insmod {source}/holder.ko")
    found = users(host)
    assert found["users"]["foreign"] == ["holder"]
    assert found["obstacles"] == ["kernel module holder"]
    host.check_output("rmmod holder")


def test_with_nobody_on_it_the_driver_is_unloaded_and_comes_back(host, collection):
    found = users(host, unload=True)
    assert found["obstacles"] == []
    assert found["unload"] is None
    assert loaded(host) == []
    assert not host.file("/proc/driver/nvidia/version").exists
    host.check_output("modprobe -a nvidia nvidia-uvm")
    host.check_output("systemctl start nvidia-persistenced")
    assert "nvidia-persiste" in users(host)["users"]["processes"][0]["command"]


def test_the_other_kernel_boots_and_still_works(host, playbook):
    boot_id = host.check_output("cat /proc/sys/kernel/random/boot_id")
    newest = host.check_output("uname -r")
    (other,) = set(host.check_output("ls /lib/modules").split()) - {newest}
    menu = host.file("/boot/grub/grub.cfg").content_string
    outer = re.search(r"submenu .*'(gnulinux-advanced-[^']+)'", menu).group(1)
    inner = re.search(rf"menuentry .*'(gnulinux-{re.escape(other)}-advanced-[^']+)'", menu).group(1)
    host.check_output("grub-reboot %s", f"{outer}>{inner}")
    host.run("systemctl reboot")
    deadline = time.monotonic() + qemu.BOOT_DEADLINE
    read = qemu.ssh("cat /proc/sys/kernel/random/boot_id")
    while time.monotonic() < deadline:
        done = subprocess.run(read, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() != boot_id:
            break
        time.sleep(2)
    assert host.check_output("uname -r") == other
    assert VERSION in host.file("/proc/driver/nvidia/version").content_string
    assert not host.file("/sys/module/nouveau").exists
    done = playbook("verify.yml", "-e", f"gpu_report_directory={ROOT}/build/vm/report-{other}")
    assert done.rc == 0, done.output
