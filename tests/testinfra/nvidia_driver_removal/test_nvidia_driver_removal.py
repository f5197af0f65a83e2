# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rest of a driver's life, after converge has changed the flavour of its modules. The tests go one after another: a
kernel came for which nothing was built, back to the first flavour, removed, no way back any more."""

VERSION = "580.95.05"
BOOT = "cat /run/gpufleet-sim/boot_id"


def kernels(host):
    return [path.split("/")[3] for path in host.check_output("ls -d /lib/modules/*/kernel").split()]


def has_flavour(host, licence):
    """The loaded driver and the modules of every kernel are of the flavour that comes with this licence."""
    assert ("Open Kernel" in host.file("/proc/driver/nvidia/version").content_string) == (licence != "NVIDIA")
    assert {host.check_output("modinfo -k %s -F license nvidia", release) for release in kernels(host)} == {licence}
    return True


def test_D9_another_flavour_of_the_same_version_is_whole_on_every_kernel(host, whole):
    assert whole(VERSION)
    assert has_flavour(host, "NVIDIA")


def test_C8_after_a_kernel_update_without_a_build_the_next_run_repairs(host, playbook, whole):
    """The way a kernel update leaves a host on which DKMS could not build."""
    running = host.check_output("uname -r")
    other = next(release for release in kernels(host) if release != running)
    host.check_output(f"dkms remove -m nvidia -v {VERSION} -k {other}")
    assert host.run("modinfo -k %s nvidia", other).rc != 0
    boot, log = host.check_output(BOOT), host.check_output("stat -c %Y /var/log/nvidia-installer.log")
    done = playbook("upgrade.yml")
    assert done.rc == 0, done.output
    assert whole(VERSION)
    assert has_flavour(host, "NVIDIA")
    # DKMS alone: the loaded driver was not touched
    assert (host.check_output(BOOT), host.check_output("stat -c %Y /var/log/nvidia-installer.log")) == (boot, log)


def test_rollback_goes_back_to_the_flavour_before(host, playbook, whole):
    done = playbook("rollback.yml", "-e", "nvidia_driver_runfile_base_url=http://192.0.2.1")
    assert done.rc == 0, done.output
    assert whole(VERSION)
    assert has_flavour(host, "Dual MIT/GPL")


def test_absent_leaves_no_file_of_ours(host, playbook):
    done = playbook("upgrade.yml", "-e", "nvidia_driver_state=absent", "-e", "version_lock_state=absent")
    assert done.rc == 0, done.output
    assert not host.file("/sys/module/nvidia").exists
    assert host.check_output("dkms status") == ""
    left = host.check_output(
        "find / -xdev '(' -path /proc -o -path /sys -o -path /run -o -path /home -o -path /var/log ')' -prune -o "
        "'(' -name 'libnvidia*' -o -name 'gpufleet-nvidia*' -o -name 'NVIDIA-Linux*' -o -name 'nvidia-[0-9]*' "
        "-o -path '*/updates/dkms/nvidia*' -o -path '/lib/firmware/nvidia/[0-9]*' "
        "-o -path '/var/lib/gpufleet/driver/*' -o -path '/var/lib/gpufleet/runfiles*' ')' -print"
    )
    assert left == ""


def test_absent_again_changes_nothing(playbook):
    done = playbook("upgrade.yml", "-e", "nvidia_driver_state=absent", "-e", "version_lock_state=absent")
    assert (done.rc, done.recap["changed"]) == (0, 0), done.output


def test_without_a_way_back_rollback_explains_that(playbook):
    done = playbook("rollback.yml")
    assert done.rc == 2
    assert "there is no way back on this host" in " ".join(done.output.split())
