# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What protects the machine that carries a lab host. People run the lab on their laptops: these must hold."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

SYSCALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall({arguments})
print(errno.errorcode[ctypes.get_errno()] if result == -1 else "allowed")
"""
#: x86-64 numbers, from the kernel's syscall_64.tbl.
FORBIDDEN_CALLS = {
    "init_module": "175, ctypes.create_string_buffer(64), 64, b''",
    "finit_module": "313, libc.open(b'/bin/true', 0), b'', 0",
    "delete_module": "176, b'loop', 0",
    "kexec_load": "246, 0, 0, None, 0",
    "iopl": "172, 3",
    "settimeofday": "164, None, None",
    "swapon": "167, b'/dev/null', 0",
    "syslog": "103, 5, None, 0",
}


#: Opening is enough to know: nothing is written, in case it would work.
OPEN = """
import errno, os
try:
    os.close(os.open({path!r}, os.O_WRONLY))
    print("allowed")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
#: How the kernel says no; ENOENT: this kernel, or the view over it, has no such file.
REFUSALS = ("EACCES", "EPERM", "EROFS", "ENOENT")


@pytest.fixture(autouse=True)
def _answers(guest):
    """A host that is down refuses everything, which proves nothing."""
    assert guest.output("echo", "here") == "here"


def assert_refused(guest, path):
    assert guest.python(OPEN.format(path=path)) in REFUSALS


def test_root_inside_is_nobody_outside(guest):
    inside, outside, count = guest.output("cat", "/proc/self/uid_map").split()
    assert (int(inside), int(count)) == (0, 65536)
    assert int(outside) >= 65536


def test_capabilities_that_reach_the_machine_are_gone(guest):
    bounding = int(guest.output("sed", "-n", "s/^CapBnd:\\s*//p", "/proc/self/status"), 16)
    numbers = {"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_TIME": 25, "SYSLOG": 34, "BPF": 39, "PERFMON": 38}
    assert [name for name, number in numbers.items() if bounding >> number & 1] == []


@pytest.mark.parametrize("call", FORBIDDEN_CALLS)
def test_system_call_is_refused(guest, call):
    answer = guest.python(SYSCALL.format(arguments=FORBIDDEN_CALLS[call]))
    assert answer in ("EPERM", "ENOSYS"), f"{call}: {answer}"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/panic",
        "/proc/sys/vm/drop_caches",
        "/sys/kernel/mm/ksm/run",
        "/sys/power/state",
        "/sys/bus/pci/rescan",
    ],
)
def test_control_file_cannot_be_written(guest, path):
    assert_refused(guest, path)


@pytest.mark.parametrize("argv", ["-t sysfs sysfs /mnt", "-t debugfs none /mnt", "-t devtmpfs none /mnt"])
def test_another_way_to_the_kernel_cannot_be_mounted(guest, argv):
    done = guest.run("mount", *argv.split())
    assert done.returncode == 32, done.stderr  # mount(8): the mount failed
    assert "permission denied" in done.stderr


def test_proc_and_sys_cannot_be_made_writable(guest):
    for path in ("/proc/sys", "/sys/devices/system/cpu", "/sys/fs/cgroup"):
        guest.run("mount", "-o", "remount,rw", path)
    assert_refused(guest, "/proc/sys/kernel/panic")
    assert_refused(guest, "/sys/devices/system/cpu/cpu1/online")


def test_what_lies_under_the_view_stays_out_of_reach(guest):
    """Taking the mounts away uncovers a /sys that the kernel still guards."""
    # In subshells: a shell ends at once when the redirection of `:` fails.
    script = "umount --lazy --recursive /sys; for f in /sys/bus/pci/rescan /sys/power/state; do "
    script += "if (: >>$f) 2>/dev/null; then echo $f; fi; done; echo tried"
    assert guest.output("unshare", "--mount", "sh", "-c", script) == "tried"


def test_no_device_of_the_machine_is_there(guest):
    assert guest.output("find", "/dev", "-type", "b") == ""
    assert "Operation not permitted" in guest.run("mknod", "/tmp/disk", "b", "8", "0").stderr
    guest.output("test", "!", "-e", "/dev/mem")


def test_processes_of_the_machine_are_out_of_sight(guest):
    assert "boot.py" in guest.output("cat", "/proc/1/cmdline") or "init" in guest.output("cat", "/proc/1/cmdline")
    assert guest.output("readlink", "/proc/self/ns/pid") != os.readlink("/proc/self/ns/pid")


def test_loading_the_simulated_driver_leaves_the_machine_alone(guest):
    def modules():
        return sorted(path.name for path in Path("/sys/module").iterdir())

    before = modules()
    guest.run("modprobe", "loop")
    guest.run("modprobe", "-r", "nouveau")
    guest.output("modprobe", "nouveau")
    assert modules() == before
