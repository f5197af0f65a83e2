# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""version_lock on hosts with dnf. What dnf says is recorded from dnf 4.14 with plugin 4.3.1 and from dnf5 5.4.6."""

import fnmatch

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import (
    VersionLock,
    _candidates,
    _dnf_candidates,
    _dnf_files,
    _dnf_proof,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._dnf import DROPIN5, LIST4, TOML5, Dnf
from tests.unit.hosts import Link
from tests.unit.plugins.module_utils.test_rpm import rpm_database

INSTALLED = [
    ("kernel-core", None, "5.14.0", "503.11.1.el9", "x86_64"),
    ("kernel-core", None, "5.14.0", "503.14.1.el9", "x86_64"),
    ("kernel-headers", None, "5.14.0", "503.14.1.el9", "x86_64"),
    ("nvidia-container-toolkit", None, "1.17.4", "1", "x86_64"),
    ("nvidia-fabric-manager", None, "570.124.06", "1", "x86_64"),
    ("tzdata", None, "2024b", "2.el9", "noarch"),
]
PLUGIN = "/usr/lib/python3.9/site-packages/dnf-plugins/versionlock.py"
CONF = "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
FILES4 = {
    "/usr/bin/dnf": Link("dnf-3"),
    "/usr/bin/dnf-3": "",
    PLUGIN: "",
    "/etc/dnf/plugins/versionlock.conf": CONF,
    LIST4: "",
}
FILES5 = {"/usr/bin/dnf": Link("dnf5"), "/usr/bin/dnf5": ""}
FOREIGN4 = "# Added lock on Mon Dec  1 2025\ntzdata-0:2024b-2.el9.*\n\n!gnome-shell*"
LOCKS4 = """\
nvidia-fabric-manager-0:570.124.06-1.*
kernel-core-0:5.14.0-503.11.1.el9.*
kernel-core-0:5.14.0-503.14.1.el9.*
nvidia-container-toolkit-0:1.17.4-1.*
"""
NOTHING = "\nTransaction Summary\n====\nUpgrade  1 Package\n\nOperation aborted.\n"
TZDATA = """\
---> Package tzdata.x86_64 2024b-2.el9 will be upgraded
---> Package tzdata.x86_64 2025b-1.el9 will be an upgrade
"""
APPLIED = 'Versionlock plugin: number of lock rules from file "/etc/dnf/plugins/versionlock.list" applied: {}\n'
REPOQUERY4 = (
    "dnf",
    "-q",
    "repoquery",
    "--available",
    "--disableplugin=versionlock",
    "--disableexcludes=all",
    "--qf",
    "%{name} %{epoch}:%{version}-%{release}\n",
    *sorted(_dnf_proof.LIKELY_OFFENDERS),
)
UPGRADE4 = ("dnf", "-v", "--assumeno", "upgrade")
CUDA4 = ("dnf", "-v", "--assumeno", "install", "cuda")
REFUSES4 = (
    1,
    "All matches were filtered out by exclude filtering for argument: cuda\n",
    "Error: Unable to find a match: cuda\n",
)
PROOF4 = {
    REPOQUERY4: (0, "cuda 0:12.8.1-1\n"),
    UPGRADE4: (1, APPLIED.format(4) + TZDATA + NOTHING),
    CUDA4: REFUSES4,
}
ENTRY5 = """\
[[packages]]
name = "{}"
comment = "{}"
[[packages.conditions]]
key = "evr"
comparator = "="
value = "{}"

"""
#: What `dnf versionlock add tzdata` leaves.
FOREIGN5 = 'version = "1.0"\n\n' + ENTRY5.format(
    "tzdata", "Added by 'versionlock add' command on 2026-12-01 04:24:32", "2024b-2.el9"
).replace("\n[[packages.c", "\n\n[[packages.c")


def lock_host(make_host, files, commands=None, installed=INSTALLED):
    return rpm_database(make_host(files, commands), installed)


def run(host, **options):
    """Inspect, apply what differs, inspect again; the differences before and after."""
    concern = VersionLock()
    desired = validated(concern, options)
    state, difference = concern.inspect(host, desired)
    if difference.changed:
        concern.apply(host, desired, state, difference)
        host.forget()
    return difference, concern.inspect(host, desired)[1]


# -- what is locked ------------------------------------------------------------------------------------------------


def test_E1_the_set_is_computed_from_what_is_installed(make_host):
    state, _difference = VersionLock().inspect(lock_host(make_host, FILES4), validated(VersionLock(), {}))
    assert [(row["name"], row["version"], row["group"]) for row in state["locked"]] == [
        ("nvidia-fabric-manager", "570.124.06-1", "fabric"),
        ("kernel-core", "5.14.0-503.11.1.el9", "kernel"),
        ("kernel-core", "5.14.0-503.14.1.el9", "kernel"),
        ("nvidia-container-toolkit", "1.17.4-1", "toolkit"),
    ]


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("kernel", "kernel"),
        ("kernel-core", "kernel"),
        ("kernel-modules-core", "kernel"),
        ("kernel-devel", "kernel"),
        ("kernel-devel-matched", "kernel"),
        ("kernel-rt-core", "kernel"),
        ("kernel-64k", "kernel"),
        ("kernel-headers", None),
        ("kernel-tools", None),
        ("kernelshark", None),
        ("nvidia-driver-cuda-libs", "driver"),
        ("kmod-nvidia-open-dkms", "driver"),
        ("kmod-nvidia-580.95.05-5.14.0-570", "driver"),
        ("xorg-x11-drv-nvidia-cuda", "driver"),
        ("nvidia-kmod-common", "driver"),
        ("libnvidia-ml", "driver"),
        ("nvidia-fabric-manager", "fabric"),
        ("nvidia-fabricmanager", "fabric"),
        ("libnvsdm-570", "fabric"),
        ("nvidia-imex", "fabric"),
        ("nvidia-gpu-firmware", None),
        ("nvidia-driver-assistant", None),
        ("cuda-toolkit-12-8", None),
        ("cuda-compat-12-8", None),
        ("tzdata", None),
    ],
)
def test_E19_groups_of_the_names_of_rpms(name, group):
    assert Dnf().group(name, True, []) == group


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        *((name, True) for name in ("cuda", "cuda-drivers", "cuda-runtime-12-8", "nvidia-driver", "nvidia-open")),
        *((name, True) for name in ("nvidia-driver-libs", "nvidia-driver-NVML", "libnvidia-ml", "libnvidia-cfg")),
        *((name, True) for name in ("kmod-nvidia-open-dkms", "akmod-nvidia", "xorg-x11-drv-nvidia-libs")),
        *((name, True) for name in ("nvidia-persistenced", "nvidia-kmod-common", "nvidia-x11-drv-libs")),
        *((name, False) for name in ("libnvidia-container1", "libnvidia-container-tools", "libnvidia-nscq-570")),
        *((name, False) for name in ("nvidia-fabricmanager", "nvidia-fabric-manager", "nvidia-imex-570", "nvlsm")),
        *((name, False) for name in ("nvidia-container-toolkit", "cuda-toolkit-12-8", "cuda-compat-12-8")),
        *((name, False) for name in ("nvidia-gpu-firmware", "nvidia-driver-assistant", "libnvsdm", "nvtop")),
    ],
)
def test_D7_what_is_refused_beside_a_runfile(name, refused):
    assert any(fnmatch.fnmatchcase(name, pattern) for pattern in _dnf_candidates.REFUSED) is refused


def test_every_refused_name_is_a_drivers():
    for pattern in _dnf_candidates.REFUSED:
        if "[" not in pattern:
            assert _candidates.is_driver(pattern.rstrip("*")) or _candidates.is_driver(pattern.replace("*", "-x")), (
                pattern
            )


# -- dnf4 ----------------------------------------------------------------------------------------------------------


def test_dnf4_locks_and_refuses_and_leaves_foreign_entries_as_they_are(make_host):
    host = lock_host(make_host, {**FILES4, LIST4: FOREIGN4}, PROOF4)
    before, after = run(host)
    assert before.actions == [
        "Lock kernel-core, nvidia-container-toolkit, nvidia-fabric-manager",
        "Refuse packages of the driver",
    ]
    assert after.status == "clean"
    text = host.read_text(LIST4)
    refusals = "".join(f"!{pattern}\n" for pattern in _dnf_candidates.REFUSED)
    form = _dnf_files.List4
    assert text == FOREIGN4 + "\n" + form.BEGIN + LOCKS4 + refusals + form.END
    run(host, state="absent")
    assert host.read_text(LIST4) == FOREIGN4 + "\n"


def test_dnf4_a_lock_that_was_removed_by_hand_is_named(make_host):
    host = lock_host(make_host, FILES4, PROOF4)
    run(host)
    host.put({LIST4: host.read_text(LIST4).replace("kernel-core-0:5.14.0-503.14.1.el9.*\n", "")})
    difference = VersionLock().inspect(host, validated(VersionLock(), {}))[1]
    assert difference.actions == ["Lock kernel-core"]
    host.put({LIST4: "# emptied\n"})
    difference = VersionLock().inspect(host, validated(VersionLock(), {}))[1]
    assert difference.actions[0] == "Lock kernel-core, nvidia-container-toolkit, nvidia-fabric-manager"


def test_dnf4_an_edit_between_our_marks_is_seen(make_host):
    host = lock_host(make_host, FILES4, PROOF4)
    run(host)
    host.put({LIST4: host.read_text(LIST4).replace(_dnf_files.List4.END, "kernel-core\n" + _dnf_files.List4.END)})
    before, after = run(host)
    assert (before.actions, after.status) == ([f"Mend {LIST4}"], "clean")


def test_dnf4_what_is_no_longer_installed_is_released(make_host):
    host = lock_host(make_host, FILES4, PROOF4)
    run(host)
    host.put({"/var/lib/rpm/rpmdb.sqlite": b""})
    rpm_database(host, INSTALLED[1:])
    host.commands[UPGRADE4] = (0, APPLIED.format(3) + "Dependencies resolved.\nNothing to do.\nComplete!\n")
    before, after = run(host)
    assert (before.actions, after.status) == (["Release kernel-core-5.14.0-503.11.1.el9"], "clean")


def test_dnf4_entries_are_ours_even_where_the_marks_were_dropped(make_host):
    """`dnf versionlock delete` writes the list without its comments."""
    host = lock_host(make_host, FILES4, PROOF4)
    run(host)
    lines = host.read_text(LIST4).splitlines(True)
    host.put({LIST4: "".join(line for line in lines if not line.startswith("#"))})
    run(host, state="absent")
    assert host.read_text(LIST4) == ""


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("kernel-core-0:5.14.0-570.12.1.el9.*", True),
        ("kernel-core-5.14.0-570*", True),
        ("kernel-core", True),
        ("kernel*", True),
        ("kernel-core-0:5.14.0-503.14.1.el9.*", False),
        ("kernel-core-0:5.14.0-503.14.1.el9.x86_64", False),
        ("kernel-core-debuginfo-0:5.14.0-570.12.1.el9.*", False),
        ("!kernel-core-0:5.14.0-570.12.1.el9.*", False),
        ("tzdata", False),
    ],
)
def test_dnf4_a_foreign_entry_that_lets_other_versions_in_stops_the_run(make_host, entry, named):
    host = lock_host(make_host, {**FILES4, LIST4: entry + "\n"}, PROOF4)
    if not named:
        assert run(host)[1].status == "clean"
        return
    with pytest.raises(ConcernError, match="nothing was changed") as error:
        run(host)
    assert f"{LIST4} has '{entry}', which lets other versions in" in str(error.value)
    assert host.read_text(LIST4) == entry + "\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({PLUGIN: None}, "install python3-dnf-plugin-versionlock"),
        ({"/etc/dnf/plugins/versionlock.conf": CONF.replace("1", "0")}, "set enabled = 1"),
        ({"/etc/dnf/dnf.conf": "[main]\nplugins=False\n"}, "disables all plugins"),
    ],
)
def test_dnf4_without_its_plugin_nothing_is_changed(make_host, files, words):
    files = {path: content for path, content in {**FILES4, **files}.items() if content is not None}
    host = lock_host(make_host, files)
    with pytest.raises(ConcernError, match=words):
        run(host)
    assert (host.read_text(LIST4), host.calls) == ("", [])


def test_dnf4_the_list_may_lie_elsewhere(make_host):
    conf = CONF.replace("/etc/dnf/plugins/versionlock.list", "/etc/dnf/locks")
    host = lock_host(make_host, {**FILES4, "/etc/dnf/plugins/versionlock.conf": conf}, PROOF4)
    assert run(host)[1].status == "clean"
    assert host.read_text("/etc/dnf/locks").startswith(_dnf_files.List4.BEGIN + LOCKS4)


def test_packages_of_the_driver_are_not_refused_where_they_are_the_driver(make_host):
    host = lock_host(make_host, FILES4, PROOF4)
    assert run(host, driver_source="packages")[1].status == "clean"
    assert "!" not in host.read_text(LIST4)


# -- the proof -----------------------------------------------------------------------------------------------------


def prove4(make_host, **answers):
    commands = dict(PROOF4)
    commands.update(
        {{"upgrade": UPGRADE4, "cuda": CUDA4, "offers": REPOQUERY4}[key]: value for key, value in answers.items()}
    )
    host = lock_host(make_host, FILES4, commands)
    return run(host)[1]


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("---> Package kernel-core.x86_64 5.14.0-570.12.1.el9 will be installed\n", "kernel-core"),
        ("---> Package kernel-core.x86_64 5.14.0-503.11.1.el9 will be erased\n", "kernel-core"),
        ("---> Package nvidia-fabric-manager.x86_64 570.133.20-1 will be an upgrade\n", "nvidia-fabric-manager"),
        ("---> Package libnvidia-ml.x86_64 3:570.133.20-1.el9 will be installed\n", "libnvidia-ml"),
    ],
)
def test_E18_the_proof_fails_when_an_upgrade_would_touch_the_set(make_host, step, name):
    with pytest.raises(ConcernError, match=f"'dnf upgrade' would touch {name}") as error:
        prove4(make_host, upgrade=(1, APPLIED.format(4) + step + NOTHING))
    assert error.value.details["proof"][1] == {"command": "dnf --assumeno upgrade", "result": f"touches {name}"}


def test_E18_the_proof_fails_when_an_offender_could_come_in(make_host):
    step = "---> Package cuda-drivers.x86_64 570.133.20-1 will be installed\n"
    with pytest.raises(ConcernError, match="'dnf install cuda' would touch cuda-drivers"):
        prove4(make_host, cuda=(1, step + NOTHING))


def test_E18_the_proof_fails_when_dnf_skips_an_entry(make_host):
    with pytest.raises(ConcernError, match="3 of 4 locks are applied"):
        prove4(make_host, upgrade=(1, APPLIED.format(3) + TZDATA + NOTHING))
    with pytest.raises(ConcernError, match="0 of 4 locks are applied"):
        prove4(make_host, upgrade=(1, TZDATA + NOTHING))


def test_E18_an_upgrade_that_dnf_cannot_resolve_proves_nothing(make_host):
    with pytest.raises(ConcernError, match="cannot be proven.*Cannot download repomd"):
        prove4(
            make_host, upgrade=(1, APPLIED.format(4), "Error: Failed to download metadata: Cannot download repomd.xml")
        )


def test_the_proof_reads_what_dnf5_prints(make_host):
    out = """\
Package                                    Arch   Version               Repository      Size

   External User -> User
 kernel-core                               x86_64 0:5.14.0-503.14.1.el9 @System      0.0   B
Upgrading:
 tzdata                                    x86_64 0:2025b-1.el9         lab          0.0   B
   replacing tzdata                        x86_64 0:2024b-2.el9         <unknown>    0.0   B
Installing dependencies:
 libnvidia-ml                              x86_64 3:570.133.20-1.el9    lab          0.0   B
Removing:
 nvlsm                                     x86_64 0:2025.03.1-1         lab          0.0   B

Transaction Summary:
 Installing:         1 package
 Upgrading:          1 package
"""
    assert _dnf_proof.touched(make_host(FILES5), out) == (
        {"tzdata", "libnvidia-ml", "nvlsm"},
        {"tzdata", "libnvidia-ml"},
    )


# -- dnf5 ----------------------------------------------------------------------------------------------------------

LIST5 = "".join(
    f"# {_dnf_files.Toml5.COMMENT}\nPackage name: {name}\nevr = {version}\n\n"
    for name, version in [
        ("kernel-core", "5.14.0-503.11.1.el9"),
        ("kernel-core", "5.14.0-503.14.1.el9"),
        ("nvidia-container-toolkit", "1.17.4-1"),
        ("nvidia-fabric-manager", "570.124.06-1"),
    ]
)
PROOF5 = {
    ("dnf", "versionlock", "list"): (0, LIST5),
    tuple(["--setopt=disable_excludes=*" if word == "--disableplugin=versionlock" else word for word in REPOQUERY4]): (
        0,
        "",
    ),
    ("dnf", "--assumeno", "upgrade"): (0, "Nothing to do.\n"),
}
PROOF5 = {tuple(word for word in argv if word != "--disableexcludes=all"): answer for argv, answer in PROOF5.items()}


def test_dnf5_locks_and_refuses_and_leaves_foreign_entries_as_they_are(make_host):
    host = lock_host(make_host, {**FILES5, TOML5: FOREIGN5}, PROOF5)
    before, after = run(host)
    assert before.actions == [
        "Lock kernel-core, nvidia-container-toolkit, nvidia-fabric-manager",
        f"Write {DROPIN5}",
    ]
    assert after.status == "clean"
    text = host.read_text(TOML5)
    assert text.startswith(FOREIGN5)
    assert text.count("[[packages]]") == 5
    assert ENTRY5.format("kernel-core", _dnf_files.Toml5.COMMENT, "5.14.0-503.11.1.el9") in text
    assert "excludepkgs=libnvidia-[!cn]*,libnvidia-c[!o]*," in host.read_text(DROPIN5)
    run(host, state="absent")
    assert (host.read_text(TOML5), host.read_text(DROPIN5)) == (FOREIGN5, None)


def test_dnf5_a_list_of_ours_alone_goes_again(make_host):
    host = lock_host(make_host, FILES5, PROOF5)
    run(host)
    assert host.read_text(TOML5).startswith('version = "1.0"\n[[packages]]\n')
    run(host, state="absent")
    assert host.read_text(TOML5) is None


def test_dnf5_what_dnf_itself_writes_anew_is_no_difference(make_host):
    """`dnf versionlock add` drops comments and puts an empty line before each condition."""
    host = lock_host(make_host, FILES5, PROOF5)
    run(host)
    anew = host.read_text(TOML5).replace("\n[[packages.c", "\n\n[[packages.c")
    host.put({TOML5: anew + FOREIGN5.partition("\n\n")[2]})
    assert VersionLock().inspect(host, validated(VersionLock(), {}))[1].status == "clean"
    host.put({TOML5: host.read_text(TOML5).replace("5.14.0-503.14.1", "5.14.0-503.15.1")})
    difference = VersionLock().inspect(host, validated(VersionLock(), {}))[1]
    assert difference.actions == ["Lock kernel-core", "Release kernel-core-5.14.0-503.15.1.el9"]


@pytest.mark.parametrize("comparator", ["<=", "="])
def test_dnf5_a_foreign_entry_that_lets_other_versions_in_stops_the_run(make_host, comparator):
    entry = ENTRY5.format("kernel-core", "mine", "5.14.0-570.1.el9").replace('"="', f'"{comparator}"')
    host = lock_host(make_host, {**FILES5, TOML5: 'version = "1.0"\n' + entry})
    with pytest.raises(ConcernError, match="which lets other versions in"):
        run(host)


def test_dnf5_is_never_left_with_a_list_that_it_cannot_read(make_host):
    broken = 'version = "1.0"\npackages = [{name = "tzdata"}]\n'
    commands = {("dnf", "versionlock", "list"): (134, "", "toml::syntax_error")}
    host = lock_host(make_host, {**FILES5, TOML5: broken}, commands)
    with pytest.raises(ConcernError, match="does not accept its list of locks"):
        run(host)
    assert host.read_text(TOML5) == broken


def test_dnf5_says_itself_which_locks_it_applies(make_host):
    commands = {**PROOF5, ("dnf", "versionlock", "list"): (0, LIST5.replace("nvidia-fabric-manager", "nvlsm"))}
    with pytest.raises(ConcernError, match="3 of 4 locks are applied"):
        run(lock_host(make_host, FILES5, commands))


# -- a move --------------------------------------------------------------------------------------------------------

OPTIONS = ("--setopt=installonly_limit=0", "--setopt=install_weak_deps=0", "--best")
UNLOCKED4 = ("--disableplugin=versionlock", "--disableexcludes=all")
SPECS = ("kernel-core-0:5.14.0-570.12.1.el9", "nvidia-container-toolkit-0:1.17.8-1")
TRY4 = ("dnf", "-v", "--assumeno", *OPTIONS, *UNLOCKED4, "install", *SPECS)
MAKE4 = ("dnf", "-y", *OPTIONS, "install", *SPECS)
VERSIONS = {"nvidia-container-toolkit": "1.17.8-1", "kernel-core": "5.14.0-570.12.1.el9"}
OFFERS4 = (*REPOQUERY4[: -len(_dnf_proof.LIKELY_OFFENDERS)], "kernel-core", "nvidia-container-toolkit")
STEPS = """\
---> Package kernel-core.x86_64 5.14.0-570.12.1.el9 will be installed
---> Package nvidia-container-toolkit.x86_64 1.17.4-1 will be upgraded
---> Package nvidia-container-toolkit.x86_64 1.17.8-1 will be an upgrade
"""
MOVES = {
    **PROOF4,
    OFFERS4: (0, "kernel-core 0:5.14.0-570.12.1.el9\nnvidia-container-toolkit 0:1.17.8-1\n"),
    TRY4: (1, STEPS + NOTHING),
}


def moved(host):
    """What rpm's database holds after the transaction; and the locks at its time."""
    host.seen = host.read_text(LIST4)
    host.put({"/var/lib/rpm/rpmdb.sqlite": b""})
    kept = [row for row in INSTALLED if row[0] != "nvidia-container-toolkit"]
    kept += [("nvidia-container-toolkit", None, "1.17.8", "1", "x86_64")]
    rpm_database(host, [*kept, ("kernel-core", None, "5.14.0", "570.12.1.el9", "x86_64")])
    host.commands[UPGRADE4] = (1, APPLIED.format(5) + TZDATA + NOTHING)
    return 0, ""


def test_E2_a_move_lifts_exactly_its_locks_and_locks_again(make_host):
    host = lock_host(make_host, {**FILES4, LIST4: FOREIGN4}, {**MOVES, MAKE4: moved})
    run(host)
    assert run(host, versions=VERSIONS)[1].status == "clean"
    assert "kernel-core" not in host.seen
    assert "nvidia-fabric-manager-0:570.124.06-1.*\n" in host.seen
    text = host.read_text(LIST4)
    assert text.startswith(FOREIGN4)
    assert (text.count("kernel-core-0:"), text.count("nvidia-container-toolkit-0:1.17.8-1.*")) == (3, 1)


def test_E4_a_move_that_needs_another_locked_package_names_it(make_host):
    step = "---> Package nvidia-fabric-manager.x86_64 570.133.20-1 will be an upgrade\n"
    host = lock_host(make_host, FILES4, {**MOVES, TRY4: (1, STEPS + step + NOTHING)})
    run(host)
    before = host.read_text(LIST4)
    with pytest.raises(ConcernError, match="In the way are locked packages: nvidia-fabric-manager=570.124.06-1"):
        run(host, versions=VERSIONS)
    assert host.read_text(LIST4) == before


def test_a_move_that_would_bring_a_driver_in_is_refused(make_host):
    step = "---> Package libnvidia-ml.x86_64 3:570.133.20-1.el9 will be installed\n"
    host = lock_host(make_host, FILES4, {**MOVES, TRY4: (1, STEPS + step + NOTHING)})
    run(host)
    with pytest.raises(ConcernError, match="it would also touch what is locked or refused: libnvidia-ml"):
        run(host, versions=VERSIONS)


def test_a_run_that_was_killed_in_a_move_is_repaired_by_the_next(make_host):
    class Killed(Exception):
        pass

    def killed(host):
        raise Killed

    host = lock_host(make_host, FILES4, {**MOVES, MAKE4: killed})
    run(host)
    whole = host.read_text(LIST4)
    backend = Dnf()
    lock = backend.read(host)
    backend.lift(host, lock, ["kernel-core"])
    assert "kernel-core" not in host.read_text(LIST4)
    backend.relock(host, lock, ["kernel-core"])
    backend.relock(host, lock, ["kernel-core"])
    assert host.read_text(LIST4) == whole


def test_E18_what_the_repositories_offer_is_asked_without_the_locks(make_host):
    host = lock_host(make_host, FILES4, MOVES)
    assert Dnf().unoffered(host, VERSIONS) == []
    host.commands[OFFERS4] = (0, "kernel-core 0:5.14.0-570.12.1.el9\n")
    assert Dnf().unoffered(host, VERSIONS) == ["nvidia-container-toolkit"]
