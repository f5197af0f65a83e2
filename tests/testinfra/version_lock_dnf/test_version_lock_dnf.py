# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on hosts with dnf4 and dnf5, seen by dnf and rpm and not by the collection's own readers.

The hosts' repository offers newer versions of all that is installed (sim/packages/rpm.yml). The tests run in this
order: first simulations, then what really moves packages.
"""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CONVERGE = Path(__file__).parents[3] / "molecule/shared/converge.yml"
LISTS = ("/etc/dnf/plugins/versionlock.list", "/etc/dnf/versionlock.toml")
TOOLKIT = {
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
}
KERNEL = {"kernel", "kernel-core", "kernel-devel", "kernel-modules", "kernel-modules-core"}
#: Installed, with a newer version in the repository, and nobody's lock on them; tzdata is locked by somebody else.
FREE = {"kernel-headers", "nvidia-gpu-firmware"}
OFFENDERS = [
    "akmod-nvidia",
    "cuda",
    "cuda-12-8",
    "cuda-drivers",
    "cuda-runtime-12-8",
    "kmod-nvidia",
    "kmod-nvidia-latest-dkms",
    "kmod-nvidia-open-dkms",
    "libnvidia-cfg",
    "libnvidia-ml",
    "nvidia-driver",
    "nvidia-driver-cuda",
    "nvidia-driver-libs",
    "nvidia-open",
    "nvidia-persistenced",
    "nvidia-x11-drv",
    "nvtop",
    "xorg-x11-drv-nvidia-cuda",
]
WELCOME = [
    "cuda-compat-12-8",
    "cuda-toolkit-12-8",
    "datacenter-gpu-manager",
    "libnvidia-nscq",
    "nvidia-fabric-manager",
    "nvidia-imex",
    "nvlsm",
]


@pytest.fixture
def unlocked(host):
    """The options with which dnf overlooks locks and excludes."""
    is_dnf5 = "dnf5" in host.check_output("readlink -f /usr/bin/dnf")
    return "--setopt='disable_excludes=*'" if is_dnf5 else "--disableplugin=versionlock --disableexcludes=all"


def installed(host):
    """{name-version} of the rpm database."""
    rows = host.check_output("rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\\n'").splitlines()
    return {tuple(row.split()) for row in rows if not row.startswith("gpg-pubkey")}


def of(names, packages):
    return {row for row in packages if row[0] in names}


def upgradable(host, options=""):
    """Names that `dnf check-upgrade` tells; its exit code is 100 when there are any."""
    done = host.run(f"dnf -q check-upgrade {options}")
    assert done.rc in (0, 100)
    return set(re.findall(r"^(\S+)\.x86_64 ", done.stdout, re.MULTILINE))


def converge(playbook, **variables):
    return playbook(CONVERGE, "-e", json.dumps(variables))


def record(host):
    return json.loads(host.file("/var/lib/gpufleet/version_lock.json").content_string)


# -- simulations ---------------------------------------------------------------------------------------------------


def test_E1_dnf_lists_a_lock_for_every_installed_version(host):
    listed = host.check_output("dnf -q versionlock list")
    for name, version in of(TOOLKIT | KERNEL, installed(host)):
        line4, lines5 = rf"^{name}-0:{version}\.\*$", rf"^Package name: {name}\nevr = {version}$"
        assert re.search(f"{line4}|{lines5}", listed, re.MULTILINE), (name, version)
    assert len(of(KERNEL, installed(host))) == 10


def test_E18_without_the_lock_everything_would_move(host, unlocked):
    """`check-upgrade` hides what is locked: only past the locks it tells what there is."""
    assert upgradable(host) == FREE
    assert upgradable(host, unlocked) == FREE | KERNEL | TOOLKIT | {"tzdata"}


def test_E18_the_proof_is_in_the_record(host):
    proof = {step["command"]: step["result"] for step in record(host)["proof"]}
    assert proof["dnf --assumeno upgrade"] == "touches nothing of the set"
    assert proof["dnf --assumeno install cuda"] == "dnf refuses"
    assert "14 of 14 locks are applied" in proof.values()


@pytest.fixture
def malformed(host):
    """Something malformed that dnf passes over without an error code, and that disables a lock."""
    if host.file("/usr/bin/dnf5").exists:
        do = "printf '[main]\\nexcludepkgs=\\n' > /etc/dnf/libdnf5.conf.d/zz-site.conf"  # takes back every exclusion
        undo = "rm /etc/dnf/libdnf5.conf.d/zz-site.conf"
        complaint = "'dnf install nvtop' would touch libnvidia-ml"
    else:
        do = "sed -i.kept s/^kernel-core-0:/kernel-core-O:/ /etc/dnf/plugins/versionlock.list"
        undo = "cd /etc/dnf/plugins && mv versionlock.list.kept versionlock.list"
        complaint = "locks are applied"
    host.check_output(do)
    yield complaint
    with host.sudo():
        host.check_output(undo)


def test_E18_a_malformed_exclude_that_disables_the_lock_fails_the_proof(host, playbook, malformed, tmp_path):
    assert host.run("dnf -q check-upgrade").rc in (0, 100)
    options = {"gpu_verify_depth": "standard", "gpu_report_directory": str(tmp_path)}
    words = " ".join(playbook("verify.yml", "-e", json.dumps(options)).output.split())
    assert "version_lock_proof: version_lock: the lock does not hold" in words
    assert malformed in words


def test_entries_of_others_are_as_they_were(host):
    path = next(path for path in LISTS if host.file(path).exists)
    before = host.file("/root/foreign-locks").content_string
    assert "tzdata" in before
    assert host.file(path).content_string.startswith(before)
    assert "mokutil" in host.file("/etc/dnf/dnf.conf").content_string
    assert host.run("dnf -y install mokutil").rc == 1


# -- what really moves packages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OFFENDERS)
def test_D7_D8_offenders_are_refused(host, name):
    before = installed(host)
    assert host.run(f"dnf -y install {name}").rc == 1
    assert installed(host) == before


def test_E18_an_upgrade_of_everything_by_ansible_moves_nothing_of_the_set(host):
    before = installed(host)
    module = "ansible.builtin.dnf5" if host.file("/usr/bin/dnf5").exists else "ansible.builtin.dnf"
    host.ansible(module, "name='*' state=latest", check=False, become=True)
    after = installed(host)
    assert {name for name, _version in before ^ after} == FREE


def test_E19_a_real_upgrade_moves_nothing_of_the_set_and_something_else(host):
    host.check_output("dnf -y downgrade " + " ".join(FREE))
    before = installed(host)
    host.check_output("dnf -y upgrade")
    assert {name for name, _version in before ^ installed(host)} == FREE


def test_D8_what_brings_no_driver_is_installed_beside_the_lock(host, playbook):
    host.check_output("dnf -y install " + " ".join(WELCOME))
    try:
        assert set(WELCOME) <= {name for name, _version in installed(host)}
        # What belongs to the driver is locked from now on, so the plan asks for it.
        plan = playbook("plan.yml").output
        assert "Lock libnvidia-nscq, nvidia-fabric-manager, nvidia-imex, nvlsm" in plan
    finally:
        host.check_output("dnf -y remove cuda-libraries-12-8 cuda-nvcc-12-8 " + " ".join(WELCOME))


def test_the_plan_names_a_lock_that_was_removed_by_hand_and_the_role_sets_it_again(host, playbook):
    host.check_output("dnf -y versionlock delete kernel-core")
    assert "Lock kernel-core" in playbook("plan.yml").output
    assert "kernel-core" in upgradable(host)
    assert converge(playbook).recap["changed"] == 1
    assert upgradable(host) == set()
    assert converge(playbook).recap["changed"] == 0


def test_E4_a_move_of_half_of_what_belongs_together_is_refused(host, playbook):
    before = installed(host)
    run = converge(playbook, version_lock_versions={"nvidia-container-toolkit": "1.17.8-1"})
    assert run.rc != 0
    assert "In the way are locked packages: libnvidia-container-tools=1.17.4-1" in re.sub(r"\s+", " ", run.output)
    assert installed(host) == before
    assert upgradable(host) == set()


@pytest.mark.parametrize("version", ["1.17.8-1", "1.17.4-1"])
def test_E2_a_move_up_and_down_lifts_its_locks_and_sets_them_again(host, playbook, version):
    kernels = of(KERNEL, installed(host))
    run = converge(playbook, version_lock_versions=dict.fromkeys(TOOLKIT, version))
    assert run.rc == 0, run.output
    assert of(TOOLKIT, installed(host)) == {(name, version) for name in TOOLKIT}
    assert of(KERNEL, installed(host)) == kernels
    assert record(host)["lifted"] is None
    assert upgradable(host) == set()


def test_P16_a_run_killed_during_the_lift_is_named_by_the_plan_and_repaired(host, playbook):
    """The newer libnvsdm's installation takes a while (sim/packages/rpm.yml)."""
    assert converge(playbook, version_lock_versions={"libnvsdm": "570.124.06-1"}).rc == 0
    assert "libnvsdm" in host.check_output("dnf -q versionlock list")
    path = next(path for path in LISTS if host.file(path).exists)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(converge, playbook, version_lock_versions={"libnvsdm": "570.133.20-1"})
        while host.run("pgrep -x -f 'sleep 12'").rc != 0:
            assert not run.done(), run.result().output
            time.sleep(0.5)
        host.check_output("kill -KILL $(ps -o ppid= -p $(pgrep -o -f 'install libnvsdm[-]'))")
        assert run.result().rc != 0
    assert "libnvsdm" not in host.file(path).content_string
    plan = " ".join(playbook("plan.yml").output.split())
    assert "the lock was lifted by a run that did not end" in plan and "Lock libnvsdm again" in plan
    done = converge(playbook)  # waits for the transaction, which goes on
    assert done.rc == 0, done.output
    assert of({"libnvsdm"}, installed(host)) == {("libnvsdm", "570.133.20-1")}
    assert re.search(r"libnvsdm(-0:|\nevr = )570\.133\.20-1", host.check_output("dnf -q versionlock list"))
    assert record(host)["lifted"] is None
    assert converge(playbook).recap["changed"] == 0


def test_a_kernel_that_is_named_comes_in_beside_the_others(host, playbook):
    """The last test: it leaves a newer kernel."""
    run = converge(playbook, version_lock_versions=dict.fromkeys(KERNEL, "5.14.0-570.12.1.el9"))
    assert run.rc == 0, run.output
    assert len(of(KERNEL, installed(host))) == 15
    assert host.check_output("dnf -q versionlock list").count("kernel-core") == 3
