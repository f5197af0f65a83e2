# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from ansible_collections.gpufleet.metal.plugins.module_utils import _services
from tests.unit.hosts import Dir, Link

UNITS = "/lib/systemd/system/"
CONTAINER = "4f" * 32


def test_no_systemd_no_services(make_host):
    assert _services.read(make_host()) == []


def test_services_are_read_from_unit_files_and_control_groups(make_host):
    host = make_host(
        {
            "/run/systemd/system": Dir(),
            UNITS + "docker.service": "[Unit]\n",
            "/etc/systemd/system/multi-user.target.wants/docker.service": Link(UNITS + "docker.service"),
            "/sys/fs/cgroup/system.slice/docker.service/cgroup.procs": "811\n812\n",
            UNITS + "containerd.service": "[Unit]\n",
            "/etc/systemd/system/nvidia-persistenced.service": Link("/dev/null"),
        }
    )
    found = {service["unit"]: service for service in _services.read(host)}
    assert found["docker.service"] == {
        "unit": "docker.service",
        "path": UNITS + "docker.service",
        "enabled": True,
        "masked": False,
        "active": True,
        "pids": [811, 812],
    }
    assert (found["containerd.service"]["enabled"], found["containerd.service"]["active"]) == (False, False)
    assert found["nvidia-persistenced.service"]["masked"] is True
    assert len(found) == 3


def test_activity_is_unknown_where_systemd_does_not_run(make_host):
    assert _services.read(make_host({UNITS + "docker.service": ""}))[0]["active"] is None


def test_holders_name_process_unit_and_container(make_host):
    host = make_host(
        {
            "/sys/module/nvidia/holders/nvidia_uvm": Dir(),
            "/sys/module/nvidia/refcnt": "4\n",
            "/sys/module/nvidia_uvm": Dir(),
            "/proc/77/fd/3": Link("/dev/nvidia0"),
            "/proc/77/fd/4": Link("/dev/nvidia-uvm"),
            "/proc/77/fd/5": Link("/dev/nvidia0"),
            "/proc/77/comm": "python3\n",
            "/proc/77/cgroup": f"0::/system.slice/docker-{CONTAINER}.scope\n",
            "/proc/78/fd/1": Link("/dev/null"),
            "/proc/79/fd/9": Link("/dev/nvidiactl"),
            "/proc/79/comm": "nvidia-persiste\n",
            "/proc/79/cgroup": "0::/system.slice/nvidia-persistenced.service\n",
        }
    )
    assert _services.holders(host) == {
        "modules": {
            "nvidia": {"holders": ["nvidia_uvm"], "references": 4},
            "nvidia_uvm": {"holders": [], "references": None},
        },
        "processes": [
            {
                "pid": 77,
                "name": "python3",
                "unit": f"docker-{CONTAINER}.scope",
                "container": CONTAINER[:12],
                "devices": ["/dev/nvidia-uvm", "/dev/nvidia0"],
            },
            {
                "pid": 79,
                "name": "nvidia-persiste",
                "unit": "nvidia-persistenced.service",
                "container": None,
                "devices": ["/dev/nvidiactl"],
            },
        ],
        "hidden_processes": 0,
    }


def test_a_process_that_is_gone_is_described_by_its_number_alone(make_host):
    assert _services.process(make_host(), 5) == {"pid": 5, "name": None, "unit": None, "container": None}


def test_processes_that_may_not_be_looked_into_are_counted(make_host):
    host = make_host({"/proc/1/comm": "init\n", "/proc/2/comm": "x\n"})
    listdir = host.listdir

    def refused(path):
        if path == "/proc/1/fd":
            host.unreadable[path] = "Permission denied"
            return []
        return listdir(path)

    host.listdir = refused
    assert _services.holders(host)["hidden_processes"] == 1
    assert host.unreadable == {}
