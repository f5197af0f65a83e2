# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import fnmatch
import json
import os
import re
import shutil

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, InvalidDesired, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Host, run_command
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import (
    BACKENDS,
    VersionLock,
    _apt_proof,
    _candidates,
    _move,
    _preferences,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._record import PATH as RECORD

CONCERN = VersionLock()
STATUS = "/var/lib/dpkg/status"


def dpkg(*packages):
    """A dpkg status file; each package is ``(name, version)`` plus its status and architecture if unusual."""
    stanzas = []
    for name, version, status, arch in (
        package + ("install ok installed", "amd64")[len(package) - 2 :] for package in packages
    ):
        stanzas.append(
            f"Package: {name}\nStatus: {status}\nMulti-Arch: same\nArchitecture: {arch}\nVersion: {version}\n"
            "Maintainer: nobody <nobody@example.com>\nDescription: a package\n"
        )
    return "\n".join(stanzas)


PLAIN = (("apt", "2.6.1"), ("bash", "5.2"))
#: A Debian host with two kernels and the container toolkit.
DEBIAN = (
    *PLAIN,
    ("linux-image-6.1.0-28-amd64", "6.1.119-1"),
    ("linux-image-6.1.0-30-amd64", "6.1.124-1"),
    ("linux-headers-6.1.0-30-amd64", "6.1.124-1"),
    ("linux-image-amd64", "6.1.124-1"),
    ("linux-headers-amd64", "6.1.124-1"),
    ("nvidia-container-toolkit", "1.17.8-1"),
    ("libnvidia-container1", "1.17.8-1"),
)
DEBIAN_SET = [name for name, _version in DEBIAN[2:]]


def set_selections(action):
    """apt-mark: what dpkg notes in its status file."""

    def answer(host, names):
        text = host.read_text(STATUS)
        for name in names:
            base, _colon, arch = name.partition(":")
            pattern = rf"(Package: {re.escape(base)}\nStatus: )\w+( .*\n.*\nArchitecture: {arch or '(?:amd64|all)'}\n)"
            text, count = re.subn(pattern, rf"\g<1>{'hold' if action == 'hold' else 'install'}\g<2>", text)
            assert count == 1, name
        host.write(STATUS, text)
        return (0, "")

    return answer


class Debian:
    """Answers apt's tools for a host whose repositories offer the installed versions and what ``offers`` adds.

    ``fails`` is what the transaction prints when it cannot be done; ``dies`` kills the run in the middle of it.
    """

    def __init__(self, make_host, packages=DEBIAN, files=None, offers=()):
        self.host = make_host({STATUS: dpkg(*packages), **(files or {})})
        self.host._runner = self.run
        self.offers = [*offers, *(package[:2] for package in packages)]
        self.upgrade = ""
        self.fails = None
        self.dies = False
        self.calls = []

    def run(self, argv, timeout, env):
        self.calls.append(argv)
        self.host.commands = {tuple(argv): self.answer}
        return self.host._answer(argv, timeout, env)

    def changes(self):
        """The commands that change the host."""
        return [argv for argv in self.calls if argv[0] != "apt-cache" and "-s" not in argv]

    def answer(self, host):
        argv = self.calls[-1]
        if argv[:2] == ["apt-cache", "policy"]:
            rows = CONCERN.read(host, desired())["locked"]
            known = {row["name"]: row["version"] for row in rows}
            return (
                0,
                "".join(f"{n}:\n  Installed: {known[n]}\n  Candidate: {known[n]}\n" for n in argv[2:] if n in known),
            )
        if argv[:2] == ["apt-cache", "madison"]:
            return (0, "".join(f" {name} | {version} | http://x ./ Packages\n" for name, version in self.offers))
        if argv[0] == "apt-mark":
            return set_selections(argv[1])(host, argv[2:])
        if argv[-1] == "update":
            return (0, "")
        if "--no-remove" in argv:
            return self.transaction(host, argv)
        assert argv[:2] == ["apt-get", "-s"], argv
        return (0, self.upgrade)

    def transaction(self, host, argv):
        if "-s" in argv:
            return (0, "")
        if self.fails:
            return self.fails
        text = host.read_text(STATUS)
        for name, _equals, version in (word.partition("=") for word in argv[argv.index("install") + 1 :]):
            before = text
            text = re.sub(
                rf"(Package: {name}\nStatus: )\w+ .*(\n(?:.*\n){{2}}Version: ).*",
                rf"\1install ok installed\g<2>{version}",
                text,
            )
            if text == before:
                text += "\n" + dpkg((name, version))
            if self.dies:
                host.write(STATUS, text)
                raise KilledRun
        host.write(STATUS, text)
        return (0, "")


class KilledRun(BaseException):
    """SIGKILL, as far as a test can: nothing of ours runs after it."""


def desired(**document):
    return validated(CONCERN, document)


def assess(host, **document):
    host.forget()
    return CONCERN.inspect(host, desired(**document))[1]


def converge(host, **document):
    """What the module does, without Ansible: returns the difference that was applied."""
    wanted = desired(**document)
    host.forget()
    state, difference = CONCERN.inspect(host, wanted)
    if difference.changed:
        CONCERN.apply(host, wanted, state, difference)
        host.forget()
        assert CONCERN.inspect(host, wanted)[1].as_dict()["status"] == "clean"
    return difference


def locked(host, **document):
    return [row["name"] for row in CONCERN.read(host, desired(**document))["locked"]]


def held(host):
    host.forget()
    return CONCERN.read(host, desired())["lock"]["held"]


@pytest.fixture
def converged(make_host):
    debian = Debian(make_host)
    converge(debian.host)
    debian.calls.clear()
    debian.host.debian = debian
    return debian.host


# -- the set ---------------------------------------------------------------------------------------------------------

DRIVER_PACKAGES = [
    "cuda-drivers-570",
    "libnvidia-cfg1-570",
    "libnvidia-common-570",
    "libnvidia-compute-570",
    "libnvidia-egl-wayland1",
    "libnvidia-gl-570",
    "linux-modules-nvidia-570-server-generic-hwe-22.04",
    "linux-objects-nvidia-570-server-6.8.0-52-generic",
    "linux-signatures-nvidia-6.8.0-52-generic",
    "nvidia-compute-utils-570",
    "nvidia-dkms-570",
    "nvidia-driver-570-server",
    "nvidia-firmware-570-570.124.06",
    "nvidia-kernel-common-570",
    "nvidia-utils-570",
    "xserver-xorg-video-nvidia-570",
]
OTHER_LOCKED = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "libnvidia-nscq-570",
    "linux-generic-hwe-22.04",
    "linux-headers-generic-hwe-22.04",
    "linux-image-6.8.0-52-generic",
    "linux-image-generic-hwe-22.04",
    "linux-modules-6.8.0-52-generic",
    "linux-modules-extra-6.8.0-52-generic",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "nvidia-fabricmanager-570",
    "nvidia-imex-570",
    "nvlsm",
]
NOT_LOCKED = ["apt", "bash", "cuda-toolkit-12-8", "linux-base", "linux-firmware", "linux-libc-dev", "nvtop", "vim"]


def test_E1_the_set_is_what_is_installed_and_nothing_else(make_host):
    packages = [(name, "1.0") for name in DRIVER_PACKAGES + OTHER_LOCKED + NOT_LOCKED]
    removed = [
        ("nvidia-driver-535", "535.1", "deinstall ok config-files"),
        ("libnvidia-gl-535", "", "unknown ok not-installed"),
    ]
    host = make_host({STATUS: dpkg(*packages, *removed)})
    assert sorted(locked(host, driver_source="packages")) == sorted(DRIVER_PACKAGES + OTHER_LOCKED)


def test_E1_E2_only_explicit_names_are_held_and_pinned(converged):
    assert held(converged) == sorted(DEBIAN_SET)
    pins = re.findall(r"^Package: (.*)\nPin: version", converged.read_text(_preferences.PATH), re.MULTILINE)
    assert sorted(pins) == sorted(DEBIAN_SET)


def test_E2_holds_of_ours_are_lifted_with_the_lock_and_others_stay(make_host):
    host = Debian(make_host, (*DEBIAN, ("vim", "9.0", "hold ok installed"), ("nvlsm", "1.0", "hold ok installed"))).host
    before = host.read_text(STATUS)
    converge(host)
    assert "nvlsm" in held(host)
    assert "nvlsm" not in json.loads(host.read_text(RECORD))["held"]
    converge(host, state="absent")
    assert host.read_text(STATUS) == before
    assert not host.exists(_preferences.PATH)
    assert not host.exists(RECORD)
    assert assess(host, state="absent").status == "clean"


def test_E5_a_second_run_on_a_held_host_runs_no_tool(converged):
    assert not converge(converged).changed
    assert converged.debian.calls == []


def test_E6_a_hold_that_aptitude_cleared_is_named_and_set_again(converged):
    set_selections("unhold")(converged, DEBIAN_SET)
    assert [item["what"] for item in assess(converged).items] == ["dpkg holds"]
    converge(converged)
    assert held(converged) == sorted(DEBIAN_SET)


def test_E7_packages_that_dpkg_does_not_know_are_not_touched(make_host):
    debian = Debian(make_host, PLAIN)
    converge(debian.host, extra_packages=["rdma-core"])
    assert not [call for call in debian.calls if call[0] == "apt-mark"]


def test_E7_an_extra_package_is_locked_once_it_is_installed(make_host):
    host = Debian(make_host, (*PLAIN, ("rdma-core", "44.0"))).host
    assert locked(host, extra_packages=["rdma-core"]) == ["rdma-core"]


def test_E10_a_foreign_architecture_has_its_own_name(make_host):
    packages = (
        ("apt", "2.6.1"),
        ("libnvidia-gl-570", "570.1"),
        ("libnvidia-gl-570", "570.1", "install ok installed", "i386"),
    )
    reverse = (packages[0], packages[2], packages[1])
    for order in (packages, reverse):
        host = make_host({STATUS: dpkg(*order)})
        assert locked(host) == ["libnvidia-gl-570", "libnvidia-gl-570:i386"]


def test_E19_the_kernels_and_their_meta_packages_move_only_when_asked(make_host):
    host = Debian(make_host).host
    assert locked(host) == sorted(DEBIAN_SET[:5]) + sorted(DEBIAN_SET[5:])
    assert locked(host, kernel=False) == ["libnvidia-container1", "nvidia-container-toolkit"]


def test_kernels_are_released_when_they_are_not_wanted_any_more(converged):
    converge(converged, kernel=False)
    assert held(converged) == ["libnvidia-container1", "nvidia-container-toolkit"]
    assert "linux-image" not in converged.read_text(_preferences.PATH)


def test_D10_prebuilt_kernel_modules_belong_to_the_driver(make_host):
    host = make_host({STATUS: dpkg(("linux-modules-nvidia-470-5.15.0-130-generic", "5.15.0-130.140"))})
    assert CONCERN.read(host, desired(kernel=False))["locked"][0]["group"] == "driver"


def test_an_interrupted_installation_counts(make_host):
    host = make_host({STATUS: dpkg(("nvlsm", "1.0", "install ok half-configured"), ("imagemagick", "8"))})
    assert locked(host) == ["nvlsm"]


# -- what is refused -------------------------------------------------------------------------------------------------

DRIVERS = [
    *(name for name in DRIVER_PACKAGES if name != "libnvidia-egl-wayland1"),
    # Debian
    "firmware-nvidia-gsp",
    "libcuda1",
    "libegl-nvidia0",
    "libgl1-nvidia-glvnd-glx",
    "libglx-nvidia0",
    "libnvcuvid1",
    "libnvidia-cfg1",
    "libnvidia-eglcore",
    "libnvidia-encode1",
    "libnvidia-glcore",
    "libnvidia-ml1",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
    "nvidia-driver",
    "nvidia-driver-bin",
    "nvidia-driver-libs",
    "nvidia-driver-libs-i386",
    "nvidia-installer-cleanup",
    "nvidia-kernel-dkms",
    "nvidia-kernel-support",
    "nvidia-legacy-390xx-driver",
    "nvidia-legacy-check",
    "nvidia-modprobe",
    "nvidia-open-kernel-dkms",
    "nvidia-opencl-icd",
    "nvidia-persistenced",
    "nvidia-settings",
    "nvidia-smi",
    "nvidia-tesla-470-driver",
    "nvidia-vdpau-driver",
    "nvidia-vulkan-icd",
    "nvidia-xconfig",
    "xserver-xorg-video-nvidia",
    # Ubuntu
    "libnvidia-compute-535-server",
    "libnvidia-decode-535",
    "libnvidia-encode-535-server",
    "libnvidia-extra-535",
    "libnvidia-fbc1-535",
    "nvidia-driver-535-open",
    "nvidia-driver-570-server-open",
    "nvidia-headless-570-server",
    "nvidia-headless-no-dkms-535",
    "nvidia-kernel-source-570",
    "nvidia-utils-535-server",
    # NVIDIA's repositories
    "cuda",
    "cuda-12-4",
    "cuda-drivers",
    "cuda-runtime-12-4",
    "libnvidia-gpucomp",
    "nvidia-open",
    "nvidia-open-570",
]
ALLOWED = [
    *NOT_LOCKED,
    *_candidates.TOOLKIT,
    "cuda-compat-12-4",
    "cuda-cudart-12-4",
    "cuda-keyring",
    "cuda-nvcc-12-4",
    "cuda-toolkit",
    "cuda-toolkit-12",
    "cuda-toolkit-12-4",
    "cuda-toolkit-12-config-common",
    "cuda-toolkit-config-common",
    "datacenter-gpu-manager",
    "firmware-linux-nonfree",
    "firmware-nvidia-graphics",
    "libcudnn9-cuda-12",
    "libnccl2",
    "libnvidia-container-dev",
    "libnvidia-container-tools",
    "libnvidia-nscq",
    "libnvidia-nscq-570",
    "libnvsdm",
    "libnvsdm-570",
    "linux-image-nvidia-hwe-24.04",
    "linux-modules-6.8.0-52-generic",
    "nvidia-detect",
    "nvidia-fabricmanager",
    "nvidia-fabricmanager-570",
    "nvidia-fabricmanager-dev-570",
    "nvidia-fs",
    "nvidia-gds-12-4",
    "nvidia-imex",
    "nvidia-imex-570",
    "nvidia-mig-manager",
    "nvidia-prime",
    "nvlsm",
    "xserver-xorg-video-nouveau",
]


@pytest.mark.parametrize("name", DRIVERS)
def test_D7_D8_packages_that_bring_a_driver_are_known(name):
    assert _candidates.is_driver(name)


@pytest.mark.parametrize("name", ALLOWED)
def test_D7_D8_packages_that_bring_none_stay_installable(name):
    assert not _candidates.is_driver(name)
    assert not [pattern for pattern in _candidates.REFUSED if fnmatch.fnmatchcase(name, pattern)]


def test_every_refused_name_is_a_drivers():
    assert [name for name in _candidates.REFUSED if "*" not in name and not _candidates.is_driver(name)] == []


def test_apt_stays_fast_few_patterns_and_no_regular_expression():
    patterns = [name for name in _candidates.REFUSED if not re.fullmatch(r"[a-z0-9.+-]+", name)]
    assert len(patterns) <= 6
    assert not [name for name in patterns if name.startswith("/")]


def test_a_host_with_nothing_to_lock_still_refuses_a_second_driver(make_host):
    host = Debian(make_host, PLAIN).host
    converge(host)
    text = host.read_text(_preferences.PATH)
    assert "Pin: version" not in text
    assert re.search(r"^Package: .* cuda cuda-drivers .*\nPin: release \*\nPin-Priority: -1$", text, re.MULTILINE)
    assert assess(host).status == "clean"


def test_a_packaged_driver_is_locked_and_nothing_is_refused(make_host):
    host = Debian(make_host, (*PLAIN, ("nvidia-driver-570", "570.124.06-1"))).host
    converge(host, driver_source="packages")
    text = host.read_text(_preferences.PATH)
    assert "Package: nvidia-driver-570\nPin: version 570.124.06-1\nPin-Priority: 1001\n" in text
    assert "runfile" not in text


# -- to another version ----------------------------------------------------------------------------------------------

TOOLKIT_1_18 = {"libnvidia-container1": "1.18.0-1", "nvidia-container-toolkit": "1.18.0-1"}
TOOLKIT_1_17 = dict.fromkeys(TOOLKIT_1_18, "1.17.8-1")


@pytest.fixture
def movable(make_host):
    """A locked host whose repositories offer another toolkit, with one foreign hold."""
    debian = Debian(make_host, (*DEBIAN, ("vim", "9.0", "hold ok installed")), offers=TOOLKIT_1_18.items())
    converge(debian.host)
    debian.calls.clear()
    return debian


def versions(host):
    host.forget()
    return {
        row["name"]: row["version"] for row in CONCERN.read(host, desired())["locked"] if "container" in row["name"]
    }


def test_E2_G13_a_move_lifts_exactly_these_locks_for_one_transaction_and_locks_again(movable):
    host = movable.host
    items = {item["what"]: item for item in assess(host, versions=TOOLKIT_1_18).items}
    assert (
        items["version of nvidia-container-toolkit"]["before"],
        items["version of nvidia-container-toolkit"]["after"],
    ) == (
        "1.17.8-1",
        "1.18.0-1",
    )
    assert movable.calls == []
    converge(host, versions=TOOLKIT_1_18)
    assert versions(host) == TOOLKIT_1_18
    names = sorted(TOOLKIT_1_18)
    lift, install, hold = movable.changes()
    assert lift == ["apt-mark", "unhold", *names] and hold == ["apt-mark", "hold", *names]
    assert install[-3:] == ["install", *(f"{name}=1.18.0-1" for name in names)]
    assert {"--no-remove", "--allow-change-held-packages", "--allow-downgrades", "-y"} <= set(install)
    assert any(word.startswith("DPkg::Lock::Timeout=") for word in install)
    assert held(host) == sorted([*DEBIAN_SET, "vim"])
    assert "Package: nvidia-container-toolkit\nPin: version 1.18.0-1\n" in host.read_text(_preferences.PATH)


def test_E5_versions_that_are_installed_already_are_no_change(movable):
    converge(movable.host, versions=TOOLKIT_1_18)
    movable.calls.clear()
    assert not converge(movable.host, versions=TOOLKIT_1_18).changed
    assert movable.calls == []


def test_a_move_goes_down_as_well_because_the_version_is_named(movable):
    before = movable.host.read_text(_preferences.PATH)
    converge(movable.host, versions=TOOLKIT_1_18)
    converge(movable.host, versions=TOOLKIT_1_17)
    assert versions(movable.host) == TOOLKIT_1_17
    assert movable.host.read_text(_preferences.PATH) == before


def test_E7_a_package_that_dpkg_does_not_know_is_installed_and_locked_and_never_unheld(make_host):
    debian = Debian(make_host, offers=[("nvlsm", "2025.03.1-1")])
    converge(debian.host, versions={"nvlsm": "2025.03.1-1"})
    assert not [argv for argv in debian.calls if argv[:2] == ["apt-mark", "unhold"]]
    assert "nvlsm" in held(debian.host)
    assert "nvlsm" in json.loads(debian.host.read_text(RECORD))["held"]


def test_E4_a_broken_transaction_leaves_the_lock_and_says_what_was_there_before(movable):
    movable.fails = (
        100,
        " nvidia-container-toolkit : Depends: linux-image-amd64 (>= 7)\n",
        "E: Unable to correct problems",
    )
    before = movable.host.tree()
    with pytest.raises(ConcernError) as caught:
        converge(movable.host, versions=TOOLKIT_1_18)
    message = str(caught.value)
    assert "Unable to correct problems" in message and "the locks are in force" in message
    assert "In the way are locked packages: linux-image-amd64=6.1.124-1" in message
    assert caught.value.details["before"] == TOOLKIT_1_17
    assert movable.host.tree() == before


def test_N6_an_installation_that_was_cut_off_is_named_and_done_again(movable):
    host = movable.host
    converge(host, versions=TOOLKIT_1_18)
    text = host.read_text(STATUS)
    host.write(STATUS, text.replace("-toolkit\nStatus: hold ok installed", "-toolkit\nStatus: hold ok half-configured"))
    (item,) = assess(host, versions=TOOLKIT_1_18).items
    assert (item["what"], item["before"]) == ("version of nvidia-container-toolkit", "1.18.0-1, not configured")
    converge(host, versions=TOOLKIT_1_18)
    assert "half-configured" not in host.read_text(STATUS)


@pytest.mark.parametrize("wanted", [TOOLKIT_1_18, {}])
def test_P12_P16_a_lift_whose_run_was_killed_is_named_and_repaired(movable, monkeypatch, wanted):
    host = movable.host
    movable.dies = True
    with monkeypatch.context() as patch:
        patch.setattr(_move, "recover", lambda *_arguments: None)  # the process is gone: its finally does not run
        with pytest.raises(KilledRun):
            converge(host, versions=TOOLKIT_1_18)
    assert not set(TOOLKIT_1_18) & set(held(host))
    assert not [name for name in TOOLKIT_1_18 if name in host.read_text(_preferences.PATH)]
    movable.dies = False
    whys = {item["what"]: item["why"] for item in assess(host, versions=wanted).items}
    name = "lock of libnvidia-container1, nvidia-container-toolkit"
    assert whys[name] == "the lock was lifted by a run that did not end"
    converge(host, versions=wanted)
    assert held(host) == sorted([*DEBIAN_SET, "vim"])
    assert json.loads(host.read_text(RECORD))["lifted"] is None
    assert versions(host) == (wanted or {**TOOLKIT_1_17, "libnvidia-container1": "1.18.0-1"})


def test_a_lift_takes_a_foreign_hold_along_and_gives_it_back(make_host):
    packages = [
        package if package[0] != "nvidia-container-toolkit" else (*package, "hold ok installed") for package in DEBIAN
    ]
    debian = Debian(make_host, packages, offers=TOOLKIT_1_18.items())
    converge(debian.host, versions=TOOLKIT_1_18)
    assert "nvidia-container-toolkit" not in json.loads(debian.host.read_text(RECORD))["held"]
    converge(debian.host, state="absent")
    assert held(debian.host) == ["nvidia-container-toolkit"]


def test_lists_are_refreshed_only_when_they_do_not_know_the_version(movable):
    converge(movable.host, versions=TOOLKIT_1_18)
    assert not [argv for argv in movable.calls if argv[-1] == "update"]
    movable.offers.clear()
    before = movable.host.tree()
    with pytest.raises(ConcernError, match="no repository of this host offers nvidia-container-toolkit=9-1. Add the"):
        converge(movable.host, versions={"nvidia-container-toolkit": "9-1"})
    assert [argv for argv in movable.calls if argv[-1] == "update"]
    assert movable.host.tree() == before


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"versions": {"vim": "9"}}, "vim is not a package that this role locks"),
        ({"versions": {"linux-image-amd64": "9"}, "kernel": False}, "is not a package that this role locks"),
        ({"versions": {"nvidia-driver-570": "570"}}, "nvidia-driver-570 would bring a second driver in"),
    ],
)
def test_a_move_that_the_role_cannot_answer_for_is_refused_before_a_change(movable, document, why):
    before = movable.host.tree()
    assert [item for item in assess(movable.host, **document).items if why in item["why"]]
    with pytest.raises(ConcernError, match=f"nothing was changed: version_lock_versions: .*{why}"):
        converge(movable.host, **document)
    assert movable.host.tree() == before and movable.calls == []


def test_a_later_role_moves_packages_on_a_host_without_a_lock(make_host):
    debian = Debian(make_host, offers=TOOLKIT_1_18.items())
    _move.move(debian.host, BACKENDS["apt"], TOOLKIT_1_18)
    assert versions(debian.host) == TOOLKIT_1_18
    assert held(debian.host) == [] and not debian.host.exists(_preferences.PATH)


def test_what_is_left_of_our_file_during_a_lift_says_nothing_about_the_moving_packages():
    rows = [{"name": name, "version": "1", "group": "toolkit"} for name in ("a", "b")]
    text = _preferences.render(rows, True)
    lifted = _preferences.without(text, ["a"])
    assert lifted == _preferences.render(rows[1:], True)
    assert _preferences.without(text, ["a", "b"]) == _preferences.render([], True)
    assert _preferences.repinned(text, {"a": "2"}) == text.replace(
        "Package: a\nPin: version 1", "Package: a\nPin: version 2"
    )


# -- drift and repair ------------------------------------------------------------------------------------------------

UNDO = {
    "file removed": (lambda host: host.remove(_preferences.PATH), _preferences.PATH),
    "file edited": (lambda host: host.write(_preferences.PATH, ""), _preferences.PATH),
    "one hold lifted": (lambda host: set_selections("unhold")(host, ["linux-image-amd64"]), "dpkg holds"),
}


@pytest.mark.parametrize("undo", UNDO)
def test_what_is_undone_by_hand_is_named_and_repaired(converged, undo):
    undo, name = UNDO[undo]
    undo(converged)
    assert [item["what"] for item in assess(converged).items] == [name]
    assert converge(converged).changed
    assert held(converged) == sorted(DEBIAN_SET)


def test_a_package_that_came_later_is_named_and_locked(converged):
    converged.write(STATUS, converged.read_text(STATUS) + "\n" + dpkg(("nvidia-fabricmanager-570", "570.1-1")))
    items = {item["what"]: item for item in assess(converged).items}
    assert items["dpkg holds"]["before"] == "missing: nvidia-fabricmanager-570"
    assert "nvidia-fabricmanager-570=570.1-1" in items[_preferences.PATH]["after"]
    converge(converged)
    assert "nvidia-fabricmanager-570" in held(converged)


def test_a_version_that_moved_is_named(converged):
    converged.write(STATUS, converged.read_text(STATUS).replace("1.17.8-1", "1.18.0-1"))
    (item,) = assess(converged).items
    assert "nvidia-container-toolkit=1.17.8-1" in item["before"]
    assert "nvidia-container-toolkit=1.18.0-1" in item["after"]


def test_a_record_that_is_no_json_does_not_stop_the_lock(converged):
    converged.write(RECORD, "{")
    assert assess(converged).status == "clean"


# -- others' settings ------------------------------------------------------------------------------------------------

CUDA_PIN = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
FOREIGN = "/etc/apt/preferences.d/"


def test_E10_foreign_pins_stay_byte_identical(make_host):
    files = {FOREIGN + "cuda-repository-pin-600": CUDA_PIN, FOREIGN + "99-site.pref": "Package: vim\nPin: version 9*\n"}
    host = Debian(make_host, files=files).host
    converge(host)
    assert {path: host.read_text(path) for path in files} == files


@pytest.mark.parametrize("source", ["/etc/apt/preferences", FOREIGN + "00-a"])
@pytest.mark.parametrize(
    "stanza",
    [
        "Package: nvidia-container-toolkit\nPin: version 1.18*\nPin-Priority: 1002\n",
        "Package: vim\n nvidia-container-toolkit\nPin: version 1.17.8-1\nPin-Priority: 500\n",
        "# why\nPackage: nvidia-*\nPin: release o=x\nPin-Priority: 990\n",
        "Explanation: x\nPackage: /^nvidia-/\nPin: origin example.com\nPin-Priority: 990\n",
    ],
)
def test_a_pin_that_apt_believes_before_ours_is_named_and_nothing_is_changed(make_host, source, stanza):
    debian = Debian(make_host, files={source: stanza})
    before = debian.host.tree()
    assert "pin of nvidia-container-toolkit" in [item["what"] for item in assess(debian.host).items]
    with pytest.raises(
        ConcernError, match=f"nothing was changed: pin of nvidia-container-toolkit: {source} pins it to"
    ):
        converge(debian.host)
    assert debian.host.tree() == before
    assert debian.calls == []


@pytest.mark.parametrize(
    "text",
    [
        CUDA_PIN,
        "Package: nvidia-container-toolkit\nPin: version 1.17.8-1\nPin-Priority: 1001\n",
        "Package: nvidia-container-toolkit\nPin: version 1.16*\nPin-Priority: -1\n",
    ],
)
def test_a_foreign_pin_that_agrees_is_no_conflict(make_host, text):
    converge(Debian(make_host, files={"/etc/apt/preferences": text}).host)


# -- proof -----------------------------------------------------------------------------------------------------------


def test_the_transcript_is_kept_and_returned(converged):
    state = CONCERN.read(converged, desired())
    returned = CONCERN.returns(state, desired())
    assert [row["name"] for row in returned["locked"]] == sorted(DEBIAN_SET[:5]) + sorted(DEBIAN_SET[5:])
    assert {"command": "apt-get -s dist-upgrade", "result": "touches nothing of the set"} in returned["proof"]


@pytest.mark.parametrize(
    "line",
    [
        "Inst linux-image-amd64 [6.1.124-1] (6.1.128-1 Debian:12 [amd64])\n",
        "Remv nvidia-container-toolkit [1.17.8-1]\n",
        "Inst libcuda1 (525.1-1 Debian:12 [amd64])\n",
    ],
)
def test_E18_D7_a_simulated_upgrade_that_touches_the_set_fails(make_host, line):
    debian = Debian(make_host)
    debian.upgrade = line
    with pytest.raises(
        ConcernError, match=f"the lock does not hold: 'apt-get dist-upgrade' would touch {line.split()[1]}"
    ):
        converge(debian.host)


def test_E18_the_check_at_depth_standard_asks_apt_again(converged):
    before = len(converged.calls)
    [check] = CONCERN.prove(converged, desired())
    assert (check["id"], check["result"]) == ("version_lock_proof", "pass")
    assert "apt-get -s dist-upgrade: touches nothing of the set" in check["evidence"]
    asked = converged.calls[before:]
    assert asked and all(call[:2] in (("apt-cache", "policy"), ("apt-get", "-s")) for call in asked)


def test_E18_a_lock_that_does_not_hold_any_more_fails_its_check(make_host):
    debian = Debian(make_host)
    converge(debian.host)
    debian.upgrade = "Inst linux-image-amd64 [6.1.124-1] (6.1.128-1 Debian:12 [amd64])\n"
    [check] = CONCERN.prove(debian.host, desired())
    assert check["result"] == "fail" and "would touch linux-image-amd64" in check["evidence"]


def test_an_apt_that_does_not_answer_is_not_measured(make_host):
    debian = Debian(make_host)
    converge(debian.host)
    debian.answer = lambda host: (127, "", "No such file or directory: 'apt-cache'")
    [check] = CONCERN.prove(debian.host, desired())
    assert check["result"] == "not_measured" and "apt-cache" in check["evidence"]


def test_there_is_no_proof_of_a_lock_that_is_not_wanted_and_none_without_a_manager(make_host):
    assert CONCERN.prove(make_host(), desired(state="absent")) == []
    assert CONCERN.prove(make_host(), desired())[0]["result"] == "not_measured"


def test_a_simulated_upgrade_of_other_packages_is_fine(make_host):
    debian = Debian(make_host)
    debian.upgrade = "Inst bash [5.2] (5.3 Debian:12 [amd64])\nConf bash (5.3)\nRemv libcuda1 [1]\n"
    converge(debian.host)


def test_apt_is_never_left_broken(make_host):
    debian = Debian(make_host)
    debian.answer = lambda host: (100, "", "E: Invalid record in the preferences file")
    with pytest.raises(ConcernError, match="Invalid record"):
        converge(debian.host)
    assert not debian.host.exists(_preferences.PATH)


# -- other hosts, bad input ------------------------------------------------------------------------------------------


def test_E18_a_host_whose_manager_is_not_known_is_refused_before_a_change(make_host):
    host = make_host()
    (item,) = assess(host).items
    assert "not supported on" in item["why"]
    with pytest.raises(ConcernError, match="nothing was changed: locks are not supported on"):
        converge(host)
    assert assess(host, state="absent").status == "clean"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"extra_packages": ["nvidia*"]}, "version_lock_extra_packages"),
        ({"extra_packages": ["vim=9"]}, "version_lock_extra_packages"),
        ({"wait_timeout": -1}, "version_lock_wait_timeout"),
        ({"versions": {"nvlsm": "1.*"}}, "version_lock_versions: '1.\\*' is not a version of nvlsm"),
        (
            {"versions": {"nvlsm": 1}},
            "version_lock_versions: 1 is not a version of nvlsm. Write one whole version in quotes",
        ),
        ({"versions": {"nv*": "1"}}, "version_lock_versions: 'nv\\*' is not a package name"),
        ({"versions": {"nvlsm": "1"}, "state": "absent"}, "version_lock_versions: there is no lock to move"),
        ({"driver_source": "apt"}, "version_lock_driver_source"),
        ({"mode": "hold"}, "version_lock_mode: no such variable"),
    ],
)
def test_bad_input_names_the_public_variable(document, message):
    with pytest.raises(InvalidDesired, match=message):
        desired(**document)


# -- the real apt, over a tree and a repository of our own -----------------------------------------------------------

OFFERED = {
    "bash": ("5.3", ""),
    "cuda": ("12.8", "cuda-drivers"),
    "cuda-12-8": ("12.8", "cuda-runtime-12-8"),
    "cuda-drivers": ("570", "nvidia-driver-570"),
    "cuda-runtime-12-8": ("12.8", "cuda-drivers"),
    "cuda-toolkit-12-8": ("12.8", ""),
    "libcuda1": ("570", ""),
    "libnvidia-container1": ("1.18.0-1", ""),
    "libnvidia-nscq-570": ("570", ""),
    "linux-image-6.1.0-31-amd64": ("6.1.128-1", ""),
    "linux-image-amd64": ("6.1.128-1", "linux-image-6.1.0-31-amd64"),
    "nvidia-container-toolkit": ("1.18.0-1", "libnvidia-container1 (= 1.18.0-1)"),
    "cuda-drivers-580": ("580", "nvidia-driver-580"),
    "libnvidia-compute-570": ("570", ""),
    "libnvidia-gl-570": ("570", ""),
    "linux-modules-nvidia-570-generic": ("570", "nvidia-kernel-common-570"),
    "nvidia-dkms-570": ("570", "nvidia-kernel-common-570"),
    "nvidia-driver-570": ("570", "libnvidia-compute-570, libnvidia-gl-570, nvidia-dkms-570"),
    "nvidia-driver-580": ("580", "libnvidia-compute-570"),
    "nvidia-firmware-570-570.86.15": ("570", ""),
    "nvidia-headless-570-server": ("570", "nvidia-kernel-common-570, nvidia-compute-utils-570"),
    "nvidia-compute-utils-570": ("570", "libnvidia-compute-570"),
    "nvidia-kernel-common-570": ("570", ""),
    "nvidia-utils-570": ("570", "libnvidia-compute-570"),
    "nvidia-fabricmanager-570": ("570", ""),
    "nvidia-imex-570": ("570", ""),
    "nvlsm": ("2", ""),
    "nvtop": ("3", "libcuda1"),
}
APT_CONF = """
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; "i386"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
"""


@pytest.fixture
def apt_host(make_host):
    """A Debian host whose apt is the real one, reading the tree; only apt-mark is played."""
    if not shutil.which("apt-get"):
        pytest.skip("apt is not installed")
    packages = "".join(
        f"Package: {name}\nArchitecture: amd64\nMulti-Arch: same\nVersion: {version}\nMaintainer: n <n@example.com>\n"
        f"Filename: ./{name}.deb\nSize: 1\nSHA256: {'1' * 64}\n"
        + (f"Depends: {depends}\n" if depends else "")
        + "Description: a package\n\n"
        for name, (version, depends) in OFFERED.items()
    )
    tree = make_host(
        {STATUS: dpkg(*DEBIAN), "/repository/Packages": packages, "/etc/apt/preferences.d/cuda-pin": CUDA_PIN}
    )
    for folder in ("etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        os.makedirs(tree.path("/" + folder))
    tree.write("/etc/apt/sources.list", f"deb [trusted=yes] file:{tree.root}/repository ./\n")
    tree.write("/apt.conf", APT_CONF.format(root=tree.root))

    def run(argv, timeout, env):
        if argv[0] == "apt-mark":
            return tree.__class__._answer(tree, argv, timeout, env)
        return run_command(argv, timeout, dict(env, APT_CONFIG=tree.path("/apt.conf")))

    tree._runner = run
    for action in ("hold", "unhold"):
        names = sorted(DEBIAN_SET[:5]) + sorted(DEBIAN_SET[5:])
        tree.commands[("apt-mark", action, *names)] = lambda host, action=action, names=names: set_selections(action)(
            host, names
        )
    assert tree.run(["apt-get", "update"]).ok
    return tree


def simulated(host, *command):
    result = host.run(["apt-get", "-s", "-y", *command])
    return result.rc, {name for step, name in _apt_proof._STEP.findall(result.out)}


def test_without_the_lock_apt_would_move_the_set(apt_host):
    assert {"linux-image-amd64", "nvidia-container-toolkit", "bash"} <= simulated(apt_host, "dist-upgrade")[1]
    assert simulated(apt_host, "install", "nvtop") == (0, {"nvtop", "libcuda1"})


def test_E9_E10_E19_the_real_apt_keeps_the_set(apt_host):
    converge(apt_host)
    assert simulated(apt_host, "dist-upgrade") == (0, {"bash"})
    known = _apt_proof.policy(apt_host, DEBIAN_SET)
    versions = dict(DEBIAN)
    assert known == {name: (versions[name], versions[name]) for name in DEBIAN_SET}


def test_E6_E9_the_preferences_hold_even_without_the_holds(apt_host):
    converge(apt_host)
    set_selections("unhold")(apt_host, DEBIAN_SET)
    assert simulated(apt_host, "dist-upgrade") == (0, {"bash"})


def test_E10_ours_wins_over_a_foreign_pin_of_any_priority(apt_host):
    apt_host.write(FOREIGN + "zz.pref", "Package: nvidia-container-toolkit\nPin: version 1.18*\nPin-Priority: 2000\n")
    converge(apt_host)
    set_selections("unhold")(apt_host, DEBIAN_SET)
    assert simulated(apt_host, "dist-upgrade") == (0, {"bash"})


def test_D7_D8_the_real_apt_refuses_what_brings_a_driver_and_only_that(apt_host):
    converge(apt_host)
    for name in (name for name in OFFERED if _candidates.is_driver(name) or name == "nvtop"):
        assert simulated(apt_host, "install", name) == (100, set()), name
    for name in ("cuda-toolkit-12-8", "nvidia-fabricmanager-570", "libnvidia-nscq-570", "nvidia-imex-570", "nvlsm"):
        assert simulated(apt_host, "install", name) == (0, {name}), name


def test_G13_the_real_apt_would_move_the_whole_toolkit_over_the_lock_and_nothing_else(apt_host):
    converge(apt_host)
    result = BACKENDS["apt"].install(apt_host, TOOLKIT_1_18, simulate=True)
    assert result.ok, result.err
    assert {name for _step, name in _apt_proof._STEP.findall(result.out)} == set(TOOLKIT_1_18)


def test_E4_the_error_names_the_pin_that_blocks_and_nothing_was_lifted(apt_host):
    converge(apt_host)
    before = apt_host.tree("/etc") | apt_host.tree("/var/lib")
    with pytest.raises(ConcernError) as caught:
        converge(apt_host, versions={"nvidia-container-toolkit": "1.18.0-1"})
    assert "Nothing was changed and the locks are in force" in str(caught.value)
    assert "In the way are locked packages: libnvidia-container1=1.17.8-1" in str(caught.value)
    assert caught.value.details["before"] == {"nvidia-container-toolkit": "1.17.8-1"}
    assert apt_host.tree("/etc") | apt_host.tree("/var/lib") == before


def test_the_real_apt_refuses_a_broken_file_and_it_is_taken_back(apt_host, monkeypatch):
    monkeypatch.setattr(_preferences, "PRIORITY", 0)
    monkeypatch.setattr(_preferences, "HEADER", "no header\n")
    with pytest.raises(ConcernError, match="version_lock: 'apt-cache policy"):
        converge(apt_host)
    assert not apt_host.exists(_preferences.PATH)


def test_F9_warnings_of_apt_are_no_failure(apt_host):
    source = apt_host.read_text("/etc/apt/sources.list")
    apt_host.write("/etc/apt/sources.list", source * 2)
    apt_host.write("/etc/apt/sources.list.d/skypeforlinux.lis", "nonsense")
    assert "configured multiple times" in apt_host.run(["apt-get", "update"]).err
    converge(apt_host)
    assert simulated(apt_host, "dist-upgrade") == (0, {"bash"})


def test_F1_an_apt_that_somebody_else_broke_is_told_and_our_file_is_not_left_behind(apt_host):
    folder = f"{apt_host.root}/repository"
    lines = [f"deb [signed-by=/etc/apt/keyrings/{name}.asc] file:{folder} ./\n" for name in ("a", "b")]
    apt_host.write("/etc/apt/sources.list", "".join(lines))
    with pytest.raises(ConcernError, match="Conflicting values set for option Signed-By"):
        converge(apt_host)
    assert not apt_host.exists(_preferences.PATH)


def test_F3_the_name_of_our_file_is_one_that_every_apt_reads():
    assert re.fullmatch(r"[A-Za-z0-9_-]+", os.path.basename(_preferences.PATH))


def test_a_foreign_architecture_is_locked_by_the_real_apt(apt_host):
    apt_host.write(
        STATUS, dpkg(("apt", "2.6.1"), ("libcuda1", "560"), ("libcuda1", "560", "install ok installed", "i386"))
    )
    names = ["libcuda1", "libcuda1:i386"]
    apt_host.commands[("apt-mark", "hold", *names)] = lambda host: set_selections("hold")(host, names)
    converge(apt_host)
    assert _apt_proof.policy(apt_host, names) == dict.fromkeys(names, ("560", "560"))


def test_hosts_are_read_without_a_tool(make_host):
    host = Host(root=str(make_host({STATUS: dpkg(*DEBIAN)}).root), runner=None)
    assert CONCERN.inspect(host, desired())[1].status == "differs"
