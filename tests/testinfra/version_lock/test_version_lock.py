# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves on a Debian host, seen by apt and dpkg and not by the collection's own readers.

The host's repositories offer newer versions of everything that is locked (molecule/version_lock/prepare.yml). The tests
run in this order: first simulations, then what really moves packages.
"""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONVERGE = ROOT / "molecule/shared/converge.yml"
OURS = "/etc/apt/preferences.d/00-gpufleet-version-lock"
RECORD = "/var/lib/gpufleet/version_lock.json"
FOREIGN = {
    "/etc/apt/preferences.d/cuda-repository-pin-600": "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n",
    "/etc/apt/preferences.d/zz-site.pref": (
        "Package: nvidia-container-toolkit\nPin: version 1.99*\nPin-Priority: 2000\n"
    ),
}
TOOLKIT = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
]
#: What a full upgrade would take without the lock.
MOVING = {*TOOLKIT, "nvlsm", "linux-image-cloud-amd64", "linux-headers-cloud-amd64"}
NEWER_KERNEL = {"linux-image-99.0.0-1-cloud-amd64", "linux-headers-99.0.0-1-cloud-amd64"}
OFFENDERS = [
    "cuda",
    "cuda-12-8",
    "cuda-drivers",
    "cuda-drivers-fabricmanager",
    "cuda-runtime-12-8",
    "libcuda1",
    "libnvidia-compute-580",
    "libnvidia-ml1",
    "linux-modules-nvidia-580-generic",
    "nvidia-cuda-toolkit",
    "nvidia-driver",
    "nvidia-driver-580",
    "nvidia-headless-580-server",
    "nvidia-open",
    "nvidia-opencl-dev",
    "nvidia-smi",
    "nvtop",
]
WITHOUT_HOLDS = " -o Dir::State::status=/tmp/status-without-holds"
WITHOUT_OURS = " -o Dir::Etc::preferencesparts=/dev/null"


def installed(host):
    """name -> version of every installed package."""
    rows = host.check_output("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'").splitlines()
    return dict(row.split()[1:] for row in rows if row.startswith("installed "))


def locked(host):
    """Installed kernel, toolkit and fabric packages: name -> version."""
    pattern = r"linux-(image|headers|kbuild|compiler-gcc)-.+|(lib)?nvidia-(container|nscq|fabricmanager|imex).*|nvlsm"
    return {name: version for name, version in installed(host).items() if re.fullmatch(pattern, name)}


def held(host):
    return set(host.check_output("apt-mark showhold").split())


def simulated(host, command, options=""):
    """Packages that apt would install, upgrade or remove."""
    done = host.run(f"apt-get -s -y{options} {command}")
    return done.rc, set(re.findall(r"^(?:Inst|Remv) (\S+)", done.stdout, re.MULTILINE))


def without_holds(host):
    host.check_output("sed 's/^Status: hold/Status: install/' /var/lib/dpkg/status > /tmp/status-without-holds")
    return WITHOUT_HOLDS


@pytest.fixture
def role(playbook):
    """Run the role as converge did, with these variables more."""

    def run(**variables):
        return playbook(str(CONVERGE), "-e", json.dumps(variables))

    return run


def transactions(host):
    """What apt did, oldest first: the entries of its history."""
    return host.file("/var/log/apt/history.log").content_string.strip().split("\n\n")


# -- the lock, in simulations ----------------------------------------------------------------------------------------


def test_E2_the_packages_are_held_by_their_names(host):
    assert set(locked(host)) >= MOVING
    assert [name for name in locked(host) if re.fullmatch(r"linux-image-[0-9].*", name)]
    assert held(host) == {*locked(host), "less"}


def test_E9_apt_keeps_the_installed_versions(host):
    for name, version in locked(host).items():
        assert f"Installed: {version}\n  Candidate: {version}\n" in host.check_output(f"apt-cache policy {name}")
    policy = host.check_output("apt-cache policy nvidia-container-toolkit")
    assert re.search(r"^     1\.99\.0-1 -1$", policy, re.MULTILINE)


def test_E10_what_others_pinned_and_held_is_as_it_was(host):
    assert {path: host.file(path).content_string for path in FOREIGN} == FOREIGN
    assert "less" in held(host)
    assert "less" not in json.loads(host.file(RECORD).content_string)["held"]


def test_E19_a_full_upgrade_touches_no_locked_package(host):
    rc, touched = simulated(host, "dist-upgrade")
    assert (rc, touched & {*locked(host), *NEWER_KERNEL, "lab-canary"}) == (0, {"lab-canary"})


def test_E6_the_pin_holds_without_the_hold(host):
    rc, touched = simulated(host, "dist-upgrade", without_holds(host))
    assert (rc, touched & {*locked(host), *NEWER_KERNEL, "lab-canary"}) == (0, {"lab-canary"})


def test_E6_the_hold_holds_without_the_pin(host):
    rc, touched = simulated(host, "dist-upgrade", WITHOUT_OURS)
    assert (rc, touched & {*locked(host), *NEWER_KERNEL, "lab-canary"}) == (0, {"lab-canary"})


def test_without_both_apt_would_move_them(host):
    rc, touched = simulated(host, "dist-upgrade", WITHOUT_OURS + without_holds(host))
    assert rc == 0
    assert touched >= {*MOVING, *NEWER_KERNEL, "lab-canary"}


@pytest.mark.parametrize("name", OFFENDERS)
def test_D7_D8_a_second_driver_cannot_come_in(host, name):
    assert simulated(host, "install " + name) == (100, set())


@pytest.mark.parametrize("name", ["cuda", "nvtop", "nvidia-driver-580"])
def test_D7_D8_without_our_file_it_would(host, name):
    assert simulated(host, "install " + name, WITHOUT_OURS)[0] == 0


def test_apt_accepts_our_file_without_a_word(host):
    assert host.file(OURS).mode == 0o644
    done = host.run("apt-cache policy bash")
    assert (done.rc, done.stderr) == (0, "")


def test_the_proof_is_kept_for_the_reader(host):
    proof = {step["command"]: step["result"] for step in json.loads(host.file(RECORD).content_string)["proof"]}
    assert proof["apt-get -s dist-upgrade"] == "touches nothing of the set"
    assert proof["apt-get -s install nvtop"] == "apt refuses"


# -- what really moves packages --------------------------------------------------------------------------------------


def test_a_lock_lifted_by_hand_is_named_by_the_plan_and_repaired(host, playbook, role):
    host.check_output("apt-mark unhold nvlsm")
    host.check_output("rm %s", OURS)
    plan = playbook("plan.yml")
    assert plan.rc == 0, plan.output
    assert "Hold nvlsm" in plan.output and f"Write {OURS}" in plan.output
    assert "nvlsm" not in held(host)
    assert role().rc == 0
    assert "nvlsm" in held(host) and host.file(OURS).exists


def test_E19_the_apt_module_upgrades_the_rest_and_nothing_of_the_set(host):
    before = locked(host)
    done = host.ansible("ansible.builtin.apt", "upgrade=dist lock_timeout=300", check=False, become=True)
    assert done.get("changed"), done
    assert installed(host)["lab-canary"] == "1.1-1"
    assert locked(host) == before
    assert held(host) == {*before, "less"}


@pytest.mark.parametrize("name", ["cuda-toolkit-12-8", "nvidia-fabricmanager", "libnvidia-nscq"])
def test_D8_what_brings_no_driver_is_installed_over_the_pin(host, name):
    done = host.run(f"DEBIAN_FRONTEND=noninteractive apt-get install -y {name}")
    assert done.rc == 0, done.stderr
    assert name in installed(host)
    assert not {"libcuda1", "libnvidia-ml1", "nvidia-driver"} & set(installed(host))


def test_what_was_installed_since_is_locked_by_the_next_run(host, role):
    assert "nvidia-fabricmanager" not in held(host)
    assert role().recap["changed"] == 1
    assert {"nvidia-fabricmanager", "libnvidia-nscq"} <= held(host)
    assert "cuda-toolkit-12-8" not in held(host)


@pytest.mark.parametrize(
    ("version", "way"), [("1.18.0-1", "Upgrade"), ("1.16.2-1", "Downgrade"), ("1.17.8-1", "Upgrade")]
)
def test_G13_the_toolkit_moves_in_one_transaction_and_is_locked_again(host, role, version, way):
    wanted = dict.fromkeys(TOOLKIT, version)
    before, rest = len(transactions(host)), {n: v for n, v in installed(host).items() if n not in TOOLKIT}
    done = role(version_lock_versions=wanted)
    assert done.rc == 0, done.output
    now = installed(host)
    assert {name: now[name] for name in TOOLKIT} == wanted
    assert {name: found for name, found in now.items() if name not in TOOLKIT} == rest
    (entry,) = transactions(host)[before:]
    (line,) = [line for line in entry.splitlines() if line.startswith(way + ": ")]
    assert all(f"{name}:amd64 (" in line for name in TOOLKIT)
    assert held(host) == {*locked(host), "less"}
    assert simulated(host, "dist-upgrade")[1] & MOVING == set()
    again = role(version_lock_versions=wanted)
    assert (again.rc, again.recap["changed"]) == (0, 0)
    assert len(transactions(host)) == before + 1


def test_E7_a_package_that_dpkg_does_not_know_yet_is_installed_and_locked(host, role):
    assert "nvidia-imex" not in installed(host)
    done = role(version_lock_versions={"nvidia-imex": "580.95.05-1"})
    assert done.rc == 0, done.output
    assert installed(host)["nvidia-imex"] == "580.95.05-1"
    assert "nvidia-imex" in held(host)
    assert "580.105.08-1 -1" in host.check_output("apt-cache policy nvidia-imex")


def test_E4_half_a_toolkit_is_refused_and_the_error_names_what_blocks(host, role):
    before, done_before = installed(host), len(transactions(host))
    done = role(version_lock_versions={"nvidia-container-toolkit": "1.18.0-1"})
    assert done.rc != 0
    words = " ".join(done.output.split())
    assert "In the way are locked packages" in words and "nvidia-container-toolkit-base=1.17.8-1" in words
    assert (installed(host), len(transactions(host))) == (before, done_before)
    assert held(host) == {*locked(host), "less"}


@pytest.fixture
def trouble(host):
    """Also read the suite whose packages make trouble."""
    source = "/etc/apt/sources.list.d/gpufleet-lab-trouble.list"
    line = "head -n 1 /etc/apt/sources.list.d/gpufleet-lab.list | sed 's/ stable / trouble /'"
    host.check_output(f"{line} > {source} && apt-get -qq update")
    yield
    with host.sudo():
        host.check_output(f"rm {source} && apt-get -qq update")


def test_E4_N6_a_transaction_that_breaks_leaves_the_lock_and_can_be_taken_back(host, role, trouble):
    done = role(version_lock_versions={"nvlsm": "2025.09.0-1"})
    assert done.rc != 0
    words = " ".join(done.output.split())
    assert "before: nvlsm=2025.03.1-1" in words and "the locks are in force" in words
    assert "nvlsm" in held(host)
    assert host.check_output("dpkg --audit")
    done = role(version_lock_versions={"nvlsm": "2025.03.1-1"})
    assert done.rc == 0, done.output
    assert host.check_output("dpkg --audit") == ""
    assert (installed(host)["nvlsm"], "nvlsm" in held(host)) == ("2025.03.1-1", True)


def test_a_run_killed_during_the_lift_is_named_by_the_plan_and_repaired(host, playbook, role, trouble):
    with ThreadPoolExecutor() as pool:
        run = pool.submit(role, version_lock_versions={"nvlsm": "2025.10.0-1"})
        while host.run("pgrep -f 'nvlsm[.]postinst'").rc != 0:
            assert not run.done(), run.result().output
            time.sleep(0.5)
        host.check_output("kill -KILL $(ps -o ppid= -p $(pgrep -x -o apt-get))")
        assert run.result().rc != 0
    assert "nvlsm" not in held(host)
    plan = playbook("plan.yml")
    assert "the lock was lifted by a run that did not end" in " ".join(plan.output.split()), plan.output
    done = role()
    assert done.rc == 0, done.output
    assert installed(host)["nvlsm"] == "2025.10.0-1"
    assert held(host) == {*locked(host), "less"}
    assert json.loads(host.file(RECORD).content_string)["lifted"] is None


def test_absent_lifts_our_locks_and_no_other(host, role):
    assert role(version_lock_state="absent").rc == 0
    assert held(host) == {"less"}
    assert not host.file(OURS).exists and not host.file(RECORD).exists
    assert {path: host.file(path).content_string for path in FOREIGN} == FOREIGN


def test_P17_an_unmanaged_host_is_left_alone(host, role):
    assert role(version_lock_state="unmanaged").recap["changed"] == 0
    assert held(host) == {"less"}
    assert role().rc == 0
    assert held(host) == {*locked(host), "less"}
