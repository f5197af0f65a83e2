# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runfile does not bring: module options, loading at boot, device files, and the persistence daemon's unit."""

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver.options import parameter_value

MARK = "# Managed by gpufleet.metal, role nvidia_driver: changes made here are overwritten.\n"

MODPROBE = "/etc/modprobe.d/gpufleet-nvidia.conf"
MODULES_LOAD = "/etc/modules-load.d/gpufleet-nvidia.conf"
DEVICES_UNIT = "gpufleet-nvidia-devices.service"
PERSISTENCED_UNIT = "nvidia-persistenced.service"
UNIT_FOLDER = "/etc/systemd/system"
PERSISTENCED_FILE = UNIT_FOLDER + "/" + PERSISTENCED_UNIT
FOREIGN_UNIT = "a unit, link or mask that this role has not written is in the place of the persistence daemon's unit"
FOREIGN_UNIT_REMEDY = (
    "Move it away, and this role's own takes its place; or set nvidia_driver_persistence to false, which switches the "
    "daemon off and leaves the file"
)
#: Every file that this concern may write.
FILES = (MODPROBE, MODULES_LOAD, UNIT_FOLDER + "/" + DEVICES_UNIT, PERSISTENCED_FILE)
USER = "nvidia-persistenced"

#: Minor number of /dev/nvidiactl.
CONTROL_MINOR = 255
#: Device files that user space cannot do without; the per-GPU ones are counted.
DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm")

DEVICES_TEXT = """\
[Unit]
Description=NVIDIA device files
Documentation=man:nvidia-modprobe(1)
After=systemd-modules-load.service
Before=nvidia-persistenced.service docker.service containerd.service crio.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/nvidia-modprobe %s
ExecStart=/usr/bin/nvidia-modprobe -u -c 0

[Install]
WantedBy=multi-user.target
"""

PERSISTENCED_TEXT = """\
[Unit]
Description=NVIDIA persistence daemon
Documentation=man:nvidia-persistenced(1)
Wants=gpufleet-nvidia-devices.service
After=gpufleet-nvidia-devices.service
ConditionPathExists=/sys/module/nvidia

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
RuntimeDirectory=nvidia-persistenced
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


def wanted_files(desired, gpu_count):
    """path -> wanted text, or None where no file of ours may be."""
    parameters = desired["module_parameters"]
    options = " ".join("%s=%s" % (name, parameter_value(parameters[name])) for name in sorted(parameters))
    minors = " ".join("-c %d" % minor for minor in list(range(gpu_count)) + [CONTROL_MINOR])
    unit = UNIT_FOLDER + "/"
    return {
        MODPROBE: MARK + "options nvidia %s\n" % options if options else None,
        MODULES_LOAD: MARK + "nvidia\nnvidia-uvm\n",
        unit + DEVICES_UNIT: MARK + DEVICES_TEXT % minors,
        PERSISTENCED_FILE: MARK + PERSISTENCED_TEXT if desired["persistence"] else None,
    }


def parameters(host):
    """The module parameters that our file sets, name -> text; {} where it is not there."""
    words = [line.split() for line in (host.read_text(MODPROBE) or "").splitlines() if line.startswith("options ")]
    return dict(word.split("=", 1) for line in words for word in line[2:] if "=" in word)


def differs(found, wanted):
    """True when the file must be written or removed; a file that is not ours is never removed."""
    return found is not None and found.startswith(MARK) if wanted is None else found != wanted


def ours(host, path):
    """True for a file that this concern has written."""
    return (host.read_text(path) or "").startswith(MARK)


def foreign_unit(host):
    """True when somebody else's unit, link or mask is where the persistence daemon's unit has to be.

    Units of packages lie in other folders; a unit that is here was put here by hand.
    """
    text = host.read_text(PERSISTENCED_FILE)
    return host.readlink(PERSISTENCED_FILE) is not None or (text is not None and not text.startswith(MARK))


def wanted_units(desired):
    """The units that are enabled, in the order in which they start."""
    return [DEVICES_UNIT] + ([PERSISTENCED_UNIT] if desired["persistence"] else [])


def enabled(host, unit):
    return host.readlink("%s/multi-user.target.wants/%s" % (UNIT_FOLDER, unit)) is not None


def active(host, unit):
    """True or False; None when this host's systemd is not there to be asked."""
    if not host.exists("/run/systemd/system"):
        return None
    return host.run(["systemctl", "is-active", "--quiet", unit], timeout=20).ok


def user_exists(host):
    return any(line.split(":")[0] == USER for line in (host.read_text("/etc/passwd") or "").splitlines())


def read(host, desired, gpu_count):
    """The boot-time set-up as it is.

    :returns: ``{files: {path: text|None}, foreign_unit: bool, user: bool, systemd: bool, enabled: {unit: bool},
        persistenced: bool|None, devices: [device files that are missing]}``.
    """
    devices = list(DEVICES) + ["/dev/nvidia%d" % minor for minor in range(gpu_count)]
    return {
        "files": {path: host.read_text(path) for path in wanted_files(desired, gpu_count)},
        "foreign_unit": desired["persistence"] and foreign_unit(host),
        "user": user_exists(host),
        "systemd": host.exists("/run/systemd/system"),
        "enabled": {unit: enabled(host, unit) for unit in (DEVICES_UNIT, PERSISTENCED_UNIT)},
        "persistenced": active(host, PERSISTENCED_UNIT),
        "devices": [path for path in devices if not host.exists(path)],
    }


def assess(difference, state, desired, gpu_count):
    """Add what differs in the boot-time set-up (files, user, enabled units), whatever the driver's own state."""
    boot = state["boot"]
    for path, wanted in wanted_files(desired, gpu_count).items():
        if differs(boot["files"][path], wanted):
            refused = path == PERSISTENCED_FILE and boot["foreign_unit"]
            difference.add(
                path,
                "absent" if boot["files"][path] is None else "other content",
                "absent" if wanted is None else "present",
                FOREIGN_UNIT if refused else _why(path),
                "%s %s" % ("Refuse to replace" if refused else "Remove" if wanted is None else "Write", path),
            )
    if desired["persistence"] and not boot["user"]:
        difference.add(
            "user " + USER, "absent", "present", "the persistence daemon runs as it", "Create the user " + USER
        )
    if boot["systemd"]:
        wanted_on = wanted_units(desired)
        for unit in (DEVICES_UNIT, PERSISTENCED_UNIT):
            if boot["enabled"][unit] != (unit in wanted_on):
                word = "enabled" if unit in wanted_on else "disabled"
                before = "disabled" if unit in wanted_on else "enabled"
                difference.add(
                    unit, before, word, "what is needed after every boot", "%s %s" % (word.capitalize()[:-1], unit)
                )


def _why(path):
    return {
        MODPROBE: "nvidia_driver_module_parameters take effect through it",
        MODULES_LOAD: "nvidia and nvidia-uvm are to be loaded at boot",
        "%s/%s" % (UNIT_FOLDER, DEVICES_UNIT): "the device files must be there after boot",
        PERSISTENCED_FILE: "nvidia_driver_persistence decides whether the daemon runs",
    }[path]


def apply(host, state, desired, gpu_count):
    """Write the files, create the user, enable the units; True when a unit's text changed (then, and only then, there
    is a daemon-reload)."""
    boot = state["boot"]
    wanted = wanted_files(desired, gpu_count)
    if desired["persistence"] and not boot["user"]:
        _must(
            host, ["useradd", "--system", "--no-create-home", "--home-dir", "/", "--shell", "/usr/sbin/nologin", USER]
        )
    if not desired["persistence"] and boot["systemd"] and boot["enabled"][PERSISTENCED_UNIT]:
        _must(host, ["systemctl", "disable", "--now", "--no-reload", PERSISTENCED_UNIT])
    units_changed = False
    for path, text in wanted.items():
        foreign = path == PERSISTENCED_FILE and boot["foreign_unit"]  # met on the way back only: never overwritten
        if foreign or not differs(boot["files"][path], text):
            continue
        units_changed = units_changed or path.startswith(UNIT_FOLDER)
        if text is None:
            host.remove(path)
        else:
            host.write(path, text)
    if boot["systemd"] and units_changed:
        _must(host, ["systemctl", "daemon-reload"])
    for unit in wanted_units(desired):
        if boot["systemd"] and not boot["enabled"][unit]:
            _must(host, ["systemctl", "enable", "--no-reload", unit])
    return units_changed


def withdraw(host):
    """Remove our files and disable our units: ``(what was done, what failed)``, lists of phrases."""
    done, failed = [], []
    systemd = host.exists("/run/systemd/system")
    for unit in (PERSISTENCED_UNIT, DEVICES_UNIT):
        path = "%s/%s" % (UNIT_FOLDER, unit)
        if systemd and enabled(host, unit) and ours(host, path):
            answer = host.run(["systemctl", "disable", "--now", "--no-reload", unit], timeout=120, changes=True)
            if not answer.ok:
                failed.append(answer.summary())
    for path in FILES:
        if ours(host, path):
            host.remove(path)
            done.append("%s was removed" % path)
    if done and systemd:
        answer = host.run(["systemctl", "daemon-reload"], timeout=120, changes=True)
        if not answer.ok:
            failed.append(answer.summary())
    return done, failed


def start(host, desired, restart=False):
    """Start the units in their order; the driver is loaded. ``restart``: their text or the driver changed."""
    if not host.exists("/run/systemd/system"):
        return
    for unit in wanted_units(desired):
        _must(host, ["systemctl", "restart" if restart else "start", unit])


def _must(host, argv):
    answer = host.run(argv, timeout=120, changes=True)
    if not answer.ok:
        raise ConcernError(
            "nvidia_driver: %s. 'systemctl status' and 'journalctl -xe' on the host say more" % answer.summary(),
            command=answer.argv,
            rc=answer.rc,
        )
