# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import itertools
import json
import os
import shutil
import subprocess

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt
from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import (
    AutoUpdates,
    _needrestart,
    _periodic,
    _record,
    _unattended,
    _units,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, InvalidDesired, validated
from ansible_collections.gpufleet.metal.plugins.module_utils._host import run_command
from tests.unit.hosts import Dir, Link

CONCERN = AutoUpdates()
PARTS = "/etc/apt/apt.conf.d/"
UNITS = "/etc/systemd/system/"
APT_UNITS = _units.names("apt")
APT_SERVICES = (
    "apt-daily.service",
    "apt-daily-upgrade.service",
    "fwupd-refresh.service",
    "packagekit-offline-update.service",
)
RELOAD = ("systemctl", "daemon-reload")
DEBIAN = {
    "/var/lib/dpkg/status": "Package: apt\nStatus: install ok installed\nVersion: 2.6.1\nArchitecture: amd64\n",
    "/run/systemd/system": Dir(),
    "/lib/systemd/system/apt-daily.timer": "",
    PARTS + "10periodic": 'APT::Periodic::Enable "1";\nAPT::Periodic::Update-Package-Lists "1";\n',
    PARTS + "20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";\n',
    PARTS + "50unattended-upgrades": 'Unattended-Upgrade::Automatic-Reboot "true";\n',
    PARTS + "51unattended-upgrades-site": 'APT::Periodic { Unattended-Upgrade "1"; };\n',
}


class Systemd:
    """Answers systemctl for the units of a test, and remembers which are active."""

    def __init__(self, active=()):
        self.active = set(active)

    def show(self, units):
        def answer(host):
            states = (f"Id={unit}\nActiveState={'active' if unit in self.active else 'inactive'}\n" for unit in units)
            return (0, "\n".join(states))

        return ("systemctl", "show", "--property=Id,ActiveState", *units), answer

    def change(self, verb, units):
        def answer(host):
            self.active = self.active - set(units) if verb == "stop" else self.active | set(units)
            return (0, "")

        return ("systemctl", verb, *units), answer

    def commands(self, *more, units=APT_UNITS, services=APT_SERVICES):
        return dict([self.show(units), self.show(services), (RELOAD, (0, "")), *more])


def apt_config(host):
    """What the real apt-config prints, computed from the tree: only the keys that this concern reads."""
    settings = _apt.effective_config(host)
    return (0, "".join(f'{key} "{setting[0]}";\n' for key, setting in settings.items()))


def desired(**document):
    return validated(CONCERN, document)


def assess(host, **document):
    host.forget()
    return CONCERN.inspect(host, desired(**document))[1]


def converge(host, **document):
    """What the module does, without Ansible: returns the difference that was applied."""
    wanted = desired(**document)
    state, difference = CONCERN.inspect(host, wanted)
    if difference.changed:
        CONCERN.apply(host, wanted, state, difference)
        host.forget()
        assert CONCERN.inspect(host, wanted)[1].as_dict()["status"] == "clean"
    return difference


def debian(make_host, files=None, active=("apt-daily.timer", "apt-daily-upgrade.timer"), commands=None):
    systemd = Systemd(active)
    table = systemd.commands(
        systemd.change("stop", ("apt-daily.timer", "apt-daily-upgrade.timer")),
        systemd.change("stop", ("unattended-upgrades.service",)),
        systemd.change("start", ("apt-daily.timer",)),
        (("apt-config", "dump"), apt_config),
    )
    table.update(commands or {})
    return make_host(dict(DEBIAN, **(files or {})), table)


@pytest.fixture
def converged(make_host):
    host = debian(make_host)
    converge(host)
    host.calls.clear()
    return host


def test_E12_ours_is_read_last_and_wins_over_every_other_file(make_host):
    host = debian(make_host)
    named = {item["what"]: item for item in assess(host).items}
    assert named["APT::Periodic::Unattended-Upgrade"]["why"] == "set by " + PARTS + "51unattended-upgrades-site"
    assert named["Unattended-Upgrade::Automatic-Reboot"]["before"] == "true"
    before = dict(host.tree(PARTS).items())
    converge(host)
    assert {path: host.tree(PARTS)[path] for path in before} == before
    effective = _apt.effective_config(host)
    assert {key: effective[key.lower()][0] for key in _periodic.SETTINGS["disabled"]} == _periodic.SETTINGS["disabled"]


@pytest.mark.parametrize("name", ["/etc/apt/apt.conf", PARTS + "zz-local", PARTS + "99zzz"])
def test_E12_a_file_read_after_ours_is_named_and_nothing_is_changed(make_host, name):
    host = debian(make_host, {name: 'APT::Periodic::Enable "1";\n'})
    before = host.tree()
    with pytest.raises(ConcernError, match=f"nothing was changed: {name} sets APT::Periodic::Enable to '1'"):
        converge(host)
    assert host.tree() == before


def test_E12_what_apt_itself_says_decides(make_host):
    host = debian(make_host, commands={("apt-config", "dump"): (0, 'APT::Periodic::Enable "1";\n')})
    with pytest.raises(ConcernError, match="apt-config still reports another value of: APT::Periodic::Enable"):
        converge(host)


def test_E13_a_rewritten_20auto_upgrades_changes_nothing(converged):
    converged.put({PARTS + "20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";\n// by debconf\n'})
    assert assess(converged).status == "clean"


def test_E13_every_unit_is_masked_and_stopped(converged):
    for unit in APT_UNITS:
        assert converged.readlink(UNITS + unit) == "/dev/null"
    assert assess(converged).status == "clean"


def test_E14_a_running_upgrade_is_waited_for_and_never_stopped(make_host, monkeypatch):
    systemd = Systemd({"apt-daily-upgrade.timer", "apt-daily-upgrade.service", "unattended-upgrades.service"})
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            systemd.active.discard("apt-daily-upgrade.service")

    monkeypatch.setattr(_apt.time, "sleep", sleep)
    table = systemd.commands(
        systemd.change("stop", ("apt-daily-upgrade.timer",)),
        systemd.change("stop", ("unattended-upgrades.service",)),
        (("apt-config", "dump"), apt_config),
    )
    host = make_host(DEBIAN, table)
    converge(host)
    assert len(slept) == 3
    order = [call for call in host.calls if call[1] in ("stop", "daemon-reload")]
    assert order == [
        ("systemctl", "stop", "apt-daily-upgrade.timer"),
        ("systemctl", "stop", "unattended-upgrades.service"),
        RELOAD,
    ]


def test_E14_an_upgrade_that_does_not_end_is_reported_and_the_next_run_goes_on(make_host, monkeypatch):
    monkeypatch.setattr(_apt.time, "sleep", lambda seconds: None)
    systemd = Systemd({"apt-daily-upgrade.service"})
    host = make_host(DEBIAN, systemd.commands((("apt-config", "dump"), apt_config)))
    host.clock = itertools.count(0, 100).__next__
    with pytest.raises(ConcernError, match=r"after 900 s: apt-daily-upgrade.service is running"):
        converge(host)
    assert not [call for call in host.calls if call[1] == "stop"]
    systemd.active.clear()
    host.clock = itertools.count().__next__
    assert assess(host).status == "clean"


@pytest.mark.skipif(not shutil.which("perl"), reason="perl is not installed")
def test_E15_E16_perl_accepts_the_needrestart_drop_in(tmp_path):
    protected = desired()["needrestart_protected"] + ["user@1000"]
    (tmp_path / "ours.conf").write_text(_needrestart.content(protected))
    program = """
        our %nrconf = (restart => 'i', override_rc => {qr(^x) => 0});
        open(my $fh, '<', $ARGV[0]); local $/; eval <$fh>; die $@ if $@;
        sub kept { my ($unit) = @_; for my $re (keys %{$nrconf{override_rc}}) {
            return 1 if $unit =~ /$re/ and not $nrconf{override_rc}->{$re} } 0 }
        print join(' ', $nrconf{restart}, map { kept($_) } qw(docker.service containerd.service kubelet.service
            nvidia-fabricmanager.service user@1000.service ssh.service)), "\\n";
    """
    script = tmp_path / "check.pl"
    script.write_text(program)
    out = subprocess.run(["perl", script, tmp_path / "ours.conf"], capture_output=True, text=True, check=True).stdout
    assert out == "l 1 1 1 1 1 0\n"


def test_E16_automatic_mode_is_overridden(make_host):
    host = debian(make_host, {_needrestart.MAIN: "#$nrconf{restart} = 'i';\n$nrconf{restart} = 'a';\n"})
    converge(host)
    assert _needrestart.read(host)["mode"] == {"value": "l", "source": _needrestart.PATH}
    host.put({_needrestart.PARTS + "/zzz.conf": "$nrconf{restart} = 'a';\n"})
    with pytest.raises(ConcernError, match=r"zzz.conf sets needrestart's mode"):
        converge(host)


def test_I1_nothing_differs_nothing_is_reloaded(converged):
    converge(converged)
    assert [call[1] for call in converged.calls] == ["show"]


def test_I1_only_a_written_link_reloads(converged):
    converged.remove(_periodic.PATH)
    converge(converged)
    assert RELOAD not in converged.calls
    converged.remove(UNITS + "apt-daily.timer")
    converge(converged)
    assert converged.calls.count(RELOAD) == 1


@pytest.mark.parametrize(("links", "reloads"), [({}, 0), ({"/dev/char/195:255": Link("/dev/nvidiactl")}, 1)])
def test_I1_no_reload_where_it_would_take_gpus_from_containers(make_host, links, reloads):
    nvidia = {"/sys/module/nvidia": Dir(), "/dev/nvidiactl": ""}
    host = debian(make_host, dict(nvidia, **links))
    converge(host)
    assert host.calls.count(RELOAD) == reloads


UNDO = {
    **{unit: (lambda host, unit=unit: host.remove(UNITS + unit), unit) for unit in APT_UNITS},
    "apt file removed": (lambda host: host.remove(_periodic.PATH), "APT::Periodic::Enable"),
    "apt file edited": (
        lambda host: host.write(_periodic.PATH, _periodic.content("disabled") + 'X "1";\n'),
        _periodic.PATH,
    ),
    "needrestart removed": (lambda host: host.remove(_needrestart.PATH), _needrestart.PATH),
    "needrestart edited": (lambda host: host.write(_needrestart.PATH, "$nrconf{restart} = 'a';\n"), _needrestart.PATH),
}


@pytest.mark.parametrize("undo", UNDO)
def test_what_is_undone_by_hand_is_named_and_repaired(converged, undo):
    undo, name = UNDO[undo]
    undo(converged)
    assert name in [item["what"] for item in assess(converged).items]
    assert converge(converged).changed
    assert assess(converged).status == "clean"


def test_a_timer_started_by_hand_is_named_and_stopped(make_host):
    host = debian(make_host, active=())
    converge(host)
    systemd = Systemd({"apt-daily.timer"})
    host.commands.update(systemd.commands(systemd.change("stop", ("apt-daily.timer",))))
    assert [item["what"] for item in assess(host).items] == ["apt-daily.timer"]
    converge(host)


def test_restored_takes_back_what_was_ours_and_only_that(make_host):
    host = debian(make_host, {UNITS + "apt-daily-upgrade.timer": Link("/dev/null")}, active=("apt-daily.timer",))
    host.commands.update([(("systemctl", "stop", "apt-daily.timer"), (0, ""))])
    before = {path: entry for path, entry in host.tree().items() if not path.startswith("/run")}
    systemd = Systemd({"apt-daily.timer"})
    host.commands.update(systemd.commands(systemd.change("stop", ("apt-daily.timer",))))
    host.commands.update([systemd.change("start", ("apt-daily.timer",))])
    converge(host)
    assert json.loads(host.read_text(_record.PATH))["units"]["apt-daily.timer"]["active"]
    converge(host, state="restored")
    assert host.tree() == before
    assert systemd.active == {"apt-daily.timer"}
    assert assess(host, state="restored").status == "clean"


def test_a_real_unit_file_of_somebody_else_is_not_overwritten(make_host):
    host = debian(make_host, {UNITS + "apt-daily.timer": "[Timer]\nOnCalendar=daily\n"})
    with pytest.raises(ConcernError, match=r"/etc/systemd/system/apt-daily.timer is a file of somebody else's"):
        converge(host)
    assert not host.exists(_periodic.PATH)


def test_dnf_automatic_is_masked(make_host):
    units = _units.names("dnf")
    services = tuple(unit for unit in units if unit.endswith(".service"))
    systemd = Systemd({"dnf-automatic.timer"})
    commands = systemd.commands(systemd.change("stop", ("dnf-automatic.timer",)), units=units, services=services)
    host = make_host({"/usr/bin/dnf": "", "/run/systemd/system": Dir()}, commands)
    converge(host)
    assert all(host.readlink(UNITS + unit) == "/dev/null" for unit in units)
    assert not host.exists(_periodic.PATH)


def test_E14_a_running_dnf_is_waited_for_and_named(make_host):
    units = _units.names("dnf")
    services = tuple(unit for unit in units if unit.endswith(".service"))
    files = {"/usr/bin/dnf": "", "/run/systemd/system": Dir(), "/var/cache/dnf/metadata_lock.pid": "41"}
    host = make_host({**files, "/proc/41/comm": "dnf\n"}, Systemd(set()).commands(units=units, services=services))
    with pytest.raises(ConcernError, match=r"dnf \(pid 41\) holds /var/cache/dnf/metadata_lock.pid"):
        converge(host, wait_timeout=0)
    assert host.exists("/proc/41/comm")


# -- security updates stay on ----------------------------------------------------------------------------------------

TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer")
DRY_RUN = ("unattended-upgrade", "--dry-run", "--debug")
ENABLED = {f"{_units.WANTS}/{timer}": Link(f"/lib/systemd/system/{timer}") for timer in TIMERS}
#: Of each kind one name that the lock may hold, and the next one of its kind.
SET = [
    "cuda-drivers-580",
    "libcuda1",
    "libnvidia-compute-580-server",
    "libnvidia-container1",
    "libnvidia-egl-wayland1",
    "libnvidia-nscq",
    "linux-generic-hwe-24.04",
    "linux-headers-amd64",
    "linux-image-6.1.0-31-amd64",
    "linux-image-amd64",
    "linux-modules-nvidia-580-server-6.8.0-60-generic",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "nvidia-driver-580-open",
    "nvidia-fabricmanager-580",
    "nvidia-firmware-580-580.95.05",
    "nvidia-imex",
    "nvlsm",
    "xserver-xorg-video-nvidia-580",
]
REST = ["bash", "cuda-toolkit-12-8", "libc6", "linux-base", "linux-libc-dev", "my-nvlsm", "nvlsm-doc", "openssh-server"]


def dump(host):
    """What the real apt-config prints: settings, and the list that is ours."""
    rc, text = apt_config(host)
    entries = [line for line in (host.read_text(_periodic.PATH) or "").splitlines() if "Blacklist:: " in line]
    return (rc, text + "".join(entry + "\n" for entry in entries))


def secured(make_host, files=None, upgraded="bash openssh-server"):
    """A Debian host with unattended-upgrades, whose dry run would upgrade ``upgraded``."""
    systemd = Systemd(TIMERS)
    lines = f"Checking: bash\nPackages that will be upgraded: {upgraded}\n"
    table = systemd.commands(
        *(systemd.change(verb, TIMERS) for verb in ("stop", "start")),
        *(systemd.change(verb, (timer,)) for verb in ("stop", "start") for timer in TIMERS),
        (("apt-config", "dump"), dump),
        (DRY_RUN, (0, "", lines)),
    )
    files = {_unattended.PROGRAM: "", "/lib/systemd/system/apt-daily-upgrade.timer": "", **ENABLED, **(files or {})}
    host = make_host(dict(DEBIAN, **files), table)
    host.systemd = systemd
    return host


@pytest.mark.parametrize("name", SET)
def test_E1_E19_security_updates_leave_the_set_alone_the_next_kernel_too(name):
    assert _unattended.excludes(name)


@pytest.mark.parametrize("name", REST)
def test_security_updates_go_on_for_everything_else(name):
    assert not _unattended.excludes(name)


def test_every_expression_is_anchored_and_the_operators_names_are_no_expressions():
    assert all(pattern.startswith("^") and pattern.endswith("$") for pattern in _unattended.blacklist(["libstdc++6"]))
    assert _unattended.excludes("libstdc++6", ["libstdc++6"])
    assert not _unattended.excludes("libstdccc6", ["libstdc++6"])


def test_E12_security_mode_switches_on_what_others_switched_off_and_never_reboots(make_host):
    host = secured(make_host, {PARTS + "20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "0";\n'})
    converge(host, state="security")
    effective = _apt.effective_config(host)
    assert {key: effective[key.lower()][0] for key in _periodic.SETTINGS["security"]} == {
        "APT::Periodic::Enable": "1",
        "APT::Periodic::Update-Package-Lists": "1",
        "APT::Periodic::Unattended-Upgrade": "1",
        "Unattended-Upgrade::Remove-Unused-Kernel-Packages": "false",
        "Unattended-Upgrade::Remove-New-Unused-Dependencies": "false",
        "Unattended-Upgrade::Remove-Unused-Dependencies": "false",
        "Unattended-Upgrade::InstallOnShutdown": "false",
        "Unattended-Upgrade::Automatic-Reboot": "false",
    }
    assert DRY_RUN in host.calls
    host.calls.clear()
    assert not converge(host, state="security").changed
    assert [call[1] for call in host.calls] == ["show"]


def test_E13_security_mode_masks_only_what_installs_by_other_ways(make_host):
    host = secured(make_host)
    converge(host, state="security")
    assert [unit for unit in APT_UNITS if host.readlink(UNITS + unit)] == list(_units.OTHERS)
    assert host.systemd.active == set(TIMERS)


def test_E15_E16_needrestart_and_snap_are_restrained_in_both_modes(make_host):
    files = {"/var/lib/snapd/state.json": snapd("forever")}
    host = secured(make_host, files)
    converge(host, state="security")
    assert host.exists(_needrestart.PATH)
    host.put({"/var/lib/snapd/state.json": snapd(None)})
    assert [item["what"] for item in assess(host, state="security").items] == ["snap refresh.hold"]


def test_from_off_to_security_to_off_and_back_to_what_was_there_before_us(make_host):
    files = {_units.WANTS + "/apt-daily.timer": Link("/usr/lib/systemd/system/apt-daily.timer")}
    host = secured(make_host, files)
    os.unlink(host.path(_units.WANTS + "/apt-daily-upgrade.timer"))
    host.systemd.active = {"apt-daily.timer"}
    before = {path: entry for path, entry in host.tree().items() if not path.startswith("/run")}
    converge(host)
    assert host.systemd.active == set()
    assert {"apt-daily.timer", "APT::Periodic::Enable"} <= {i["what"] for i in assess(host, state="security").items}
    converge(host, state="security")
    assert host.systemd.active == set(TIMERS)
    converge(host)
    assert host.systemd.active == set()
    converge(host, state="security")
    converge(host, state="restored")
    assert host.tree() == before
    assert host.systemd.active == {"apt-daily.timer"}
    assert assess(host, state="restored").status == "clean"


def test_restored_gives_a_timer_the_very_link_that_it_had(make_host):
    link = _units.WANTS + "/apt-daily.timer"
    host = secured(make_host, {link: Link("/usr/lib/systemd/system/apt-daily.timer")})
    converge(host, state="security")
    host.remove(link)
    converge(host, state="security")
    assert host.readlink(link) == "/lib/systemd/system/apt-daily.timer"
    converge(host, state="restored")
    assert host.readlink(link) == "/usr/lib/systemd/system/apt-daily.timer"


@pytest.mark.parametrize("timer", TIMERS)
@pytest.mark.parametrize("undo", ["masked", "disabled", "stopped"])
def test_a_timer_that_security_updates_need_is_named_and_repaired(make_host, timer, undo):
    host = secured(make_host)
    converge(host, state="security")
    if undo == "masked":
        host.symlink("/dev/null", UNITS + timer)
    elif undo == "disabled":
        host.remove(f"{_units.WANTS}/{timer}")
    else:
        host.systemd.active.discard(timer)
    assert [item["what"] for item in assess(host, state="security").items] == [timer]
    converge(host, state="security")


def test_I1_a_timer_that_needs_a_reload_to_start_waits_for_the_boot(make_host):
    host = secured(make_host, {"/sys/module/nvidia": Dir(), "/dev/nvidiactl": ""})
    converge(host)
    wanted = desired(state="security")
    state, difference = CONCERN.inspect(host, wanted)
    CONCERN.apply(host, wanted, state, difference)
    assert RELOAD not in host.calls
    assert assess(host, state="security").status == "pending"


def test_a_dry_run_that_would_touch_the_set_fails(make_host):
    host = secured(make_host, upgraded="bash linux-image-amd64 nvlsm")
    with pytest.raises(ConcernError, match="unattended-upgrade would still upgrade linux-image-amd64, nvlsm"):
        converge(host, state="security")
    [check] = CONCERN.prove(host, desired(state="security"))
    assert (check["id"], check["result"]) == ("auto_updates_proof", "fail")


def test_the_operators_own_packages_are_excluded_too(make_host):
    host = secured(make_host, upgraded="openssh-server")
    converge(host, state="security")
    with pytest.raises(ConcernError, match="would still upgrade openssh-server"):
        converge(host, state="security", excluded_packages=["openssh-server"])
    host.commands[DRY_RUN] = (0, "No packages found that can be upgraded unattended\n")
    assert CONCERN.prove(host, desired(state="security", excluded_packages=["openssh-server"]))[0]["result"] == "pass"


def test_an_exclusion_that_a_later_file_clears_is_caught(make_host):
    host = secured(make_host)
    host.commands["apt-config", "dump"] = apt_config  # a later file cleared the list
    with pytest.raises(ConcernError, match="another value of: Unattended-Upgrade::Package-Blacklist"):
        converge(host, state="security")


def test_unattended_upgrades_is_installed_where_it_is_missing(make_host):
    host = secured(make_host)
    os.unlink(host.path(_unattended.PROGRAM))
    options = ("-y", "--no-remove", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300")
    host.commands["apt-get", "-o", "DPkg::Lock::Timeout=300", "update"] = (100, "", "E: one repository is away")
    install = ("apt-get", *options, "install", "unattended-upgrades")
    host.commands[install] = lambda host: host.put({_unattended.PROGRAM: ""}) or (0, "")
    assert "unattended-upgrades" in [item["what"] for item in assess(host, state="security").items]
    converge(host, state="security")
    os.unlink(host.path(_unattended.PROGRAM))
    host.commands[install] = (100, "", "E: Unable to locate package unattended-upgrades")
    with pytest.raises(ConcernError, match=r"Unable to locate .* set auto_updates_state to disabled"):
        converge(host, state="security")


@pytest.mark.skipif(not shutil.which("apt-config"), reason="apt is not installed")
@pytest.mark.parametrize("mode", ["disabled", "security"])
def test_E12_the_real_apt_reads_our_file_as_we_meant_it(tmp_path, mode):
    parts = tmp_path / "apt.conf.d"
    parts.mkdir()
    for name in ("02periodic", "10periodic", "20auto-upgrades", "50unattended-upgrades", "52unattended-upgrades-local"):
        (parts / name).write_text(
            'APT::Periodic { Enable "7"; Update-Package-Lists "7"; Unattended-Upgrade "7"; };\n'
            'Unattended-Upgrade { Automatic-Reboot "true"; Package-Blacklist { "mine"; }; };\n'
        )
    (parts / os.path.basename(_periodic.PATH)).write_text(_periodic.content(mode, ["libstdc++6"]))
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::parts "{parts}";\n')

    class Apt:
        @staticmethod
        def run(argv, timeout):
            return run_command(argv, timeout, {"APT_CONFIG": str(tmp_path / "apt.conf")})

    assert _periodic.prove(Apt, mode, ["libstdc++6"]).startswith("apt-config: ")
    assert '"mine"' in Apt.run(["apt-config", "dump"], 30).out
    (parts / "zz").write_text('APT::Periodic::Enable "7";\n')
    with pytest.raises(ConcernError, match="another value of: APT::Periodic::Enable"):
        _periodic.prove(Apt, mode, ["libstdc++6"])


def test_security_mode_is_refused_where_nothing_can_be_told_what_to_leave_alone(make_host):
    systemd = Systemd()
    units = _units.names("dnf")
    host = make_host({"/usr/bin/dnf5": "", "/run/systemd/system": Dir()}, systemd.commands(units=units))
    before = host.tree()
    with pytest.raises(ConcernError, match="nothing was changed: auto_updates_state: security is for hosts with"):
        converge(host, state="security")
    assert host.tree() == before


def test_the_check_at_depth_standard_asks_apt_again(make_host):
    host = debian(make_host)
    converge(host)
    assert CONCERN.prove(host, desired())[0]["result"] == "pass"
    host.commands["apt-config", "dump"] = (0, 'APT::Periodic::Enable "1";\n')
    assert CONCERN.prove(host, desired())[0]["result"] == "fail"
    host.commands["apt-config", "dump"] = (127, "", "No such file or directory: 'apt-config'")
    assert CONCERN.prove(host, desired())[0]["result"] == "not_measured"
    assert CONCERN.prove(host, desired(state="restored")) == []


# -- snap ------------------------------------------------------------------------------------------------------------


def snapd(hold):
    return json.dumps({"data": {"config": {"core": {"refresh": {"hold": hold}} if hold else {}}}})


@pytest.mark.parametrize(
    ("before", "back"),
    [
        (None, ("snap", "unset", "system", "refresh.hold")),
        ("2030-01-01T00:00:00Z", ("snap", "set", "system", "refresh.hold=2030-01-01T00:00:00Z")),
    ],
)
def test_snap_refreshes_are_held_and_given_back(make_host, before, back):
    def says(hold):
        return lambda host: host.put({"/var/lib/snapd/state.json": snapd(hold)}) or (0, "")

    commands = {("snap", "set", "system", "refresh.hold=forever"): says("forever"), back: says(before)}
    host = debian(make_host, {"/var/lib/snapd/state.json": snapd(before)}, active=(), commands=commands)
    converge(host)
    assert assess(host).status == "clean"
    converge(host, state="restored")
    assert back in host.calls


def test_an_old_snapd_gives_the_remedy(make_host):
    commands = {("snap", "set", "system", "refresh.hold=forever"): (1, "", "error: cannot parse")}
    host = debian(make_host, {"/var/lib/snapd/state.json": snapd(None)}, active=(), commands=commands)
    with pytest.raises(ConcernError, match=r"Update snapd to 2.58 or later, or set auto_updates_snap"):
        converge(host)


def test_without_systemd_no_tool_is_run(make_host):
    host = make_host({"/var/lib/dpkg/status": ""}, {("apt-config", "dump"): apt_config})
    converge(host)
    assert host.calls == [("apt-config", "dump")]


def test_what_systemd_does_not_say_is_unknown(converged):
    converged.commands[("systemctl", "show", "--property=Id,ActiveState", *APT_UNITS)] = (1, "", "Failed to connect")
    difference = assess(converged)
    assert difference.status == "unknown"
    assert "Failed to connect" in difference.unknown[0]["why"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_unknown(converged):
    os.chmod(converged.path(PARTS + "10periodic"), 0)
    assert assess(converged).unknown


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"wait_timeout": -1}, "auto_updates_wait_timeout"),
        ({"needrestart_protected": ["docker*"]}, "auto_updates_needrestart_protected"),
        ({"excluded_packages": ["nvidia*"]}, "auto_updates_excluded_packages"),
        ({"state": "off"}, "auto_updates_state"),
        ({"states": "disabled"}, "auto_updates_states: no such variable"),
    ],
)
def test_bad_input_names_the_public_variable(document, message):
    with pytest.raises(InvalidDesired, match=message):
        desired(**document)


def test_a_host_whose_package_manager_is_not_known_is_not_said_to_be_off(make_host):
    concern = CONCERN
    _state, difference = concern.inspect(make_host(), validated(concern, {}))
    assert (difference.status, difference.unknown[0]["what"]) == ("unknown", "package manager")
    assert concern.inspect(make_host(), validated(concern, {"state": "restored"}))[1].status == "clean"
