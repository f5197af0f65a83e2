# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host on a literal tree whose commands do what the real ones do to files, and which may be killed before any change.

A recorded table cannot tell what a host answers that was left in the middle; here the answer comes from the tree.
"""

import shutil
from pathlib import Path

from tests.unit.hosts import Dir, File, Link, RecordedHost
from tests.unit.plugins.module_utils.nvidia_driver import trees
from tests.unit.plugins.module_utils.nvidia_driver.trees import KERNEL, LIBRARIES

PERSISTENCED = "nvidia-persistenced.service"
DEVICES = "gpufleet-nvidia-devices.service"
DAEMON = "/proc/99"
UNINSTALLER = "/usr/bin/nvidia-uninstall"
#: What the installer writes down of itself; the second file belongs to an installation that is not complete.
RECORD, DRAFT = "/var/lib/nvidia/log", "/var/lib/nvidia/log.new"


class Killed(BaseException):
    """The process died here: nothing of it runs any more, no clean-up either."""


class Machine(RecordedHost):
    """``kill_at``: before which change (counted from 1) it dies; ``whole``: the host goes down with it, installer and
    all; otherwise what an installer has begun it ends. ``broken``: versions whose installer fails when the old driver
    is gone; ``dkms_fails``: versions that DKMS cannot build."""

    def __init__(self, root, files):
        super().__init__(root, files, {}, clock=lambda: 0)
        self.kill_at, self.whole, self.changes, self.dead = None, False, 0, False
        self.broken, self.dkms_fails = set(), set()
        self._installing = False

    def snapshot(self):
        """Everything on the host, as :meth:`put` takes it: files, links, and directories that hold nothing."""
        found = {}
        for real in sorted(Path(self.root).rglob("*")):
            path = "/" + str(real.relative_to(self.root))
            if real.is_symlink():
                found[path] = Link(self.readlink(path))
            elif not real.is_dir():
                found[path] = File(real.read_bytes(), real.stat().st_mode & 0o7777)
            elif not any(real.iterdir()):
                found[path] = Dir()
        return found

    # -- dying -----------------------------------------------------------------------------------------------------

    def _tick(self):
        if self.dead:
            raise Killed
        if self._installing and not self.whole:
            return
        self.changes += 1
        if self.changes == self.kill_at:
            self.dead = True
            raise Killed

    def revive(self):
        """The next run finds what the one that was killed had left; after a reboot, what the boot makes of that."""
        self.kill_at, self.dead, self._installing = None, False, False
        if self.whole:
            self._reboot()
        self.forget()

    def _reboot(self):
        for path in (
            "/run",
            DAEMON,
            *self.glob("/sys/module/nvidia*"),
            "/proc/driver/nvidia",
            *self.glob("/dev/nvidia*"),
        ):
            self._take(path)
        self.put({"/run/systemd/system": Dir(), "/sys/module/kernel": Dir()})
        if self.exists("/etc/modules-load.d/gpufleet-nvidia.conf"):
            self._load()
        for unit in (DEVICES, PERSISTENCED):
            if self.readlink(f"/etc/systemd/system/multi-user.target.wants/{unit}"):
                self._start(unit)

    def write(self, path, content, mode=0o644):
        """In one step as on a real host, but nobody waits for the disk."""
        self._tick()
        self.put({path: File(content, mode)})

    def remove(self, path):
        self._tick()
        return super().remove(path)

    def run(self, argv, timeout=60, env=None, changes=False, keeps_lock=False):
        if changes:
            self._tick()
        return super().run(argv, timeout, env, changes, keeps_lock)

    # -- commands --------------------------------------------------------------------------------------------------

    def _answer(self, argv, timeout, env):
        self.commands[tuple(argv)] = self._does(list(argv))
        return super()._answer(argv, timeout, env)

    def _does(self, argv):
        program = argv[0].rsplit("/", 1)[-1].replace("-", "_")
        act = getattr(self, "_" + program, None)
        return act(argv[1:]) if act else (0, "")

    def _systemctl(self, argv):
        verb, unit = argv[0], argv[-1] if "." in argv[-1] else argv[-1] + ".service"
        link = f"/etc/systemd/system/multi-user.target.wants/{unit}"
        if verb == "show":
            return 0, "0\n"
        if verb == "is-active":
            return (0 if self.exists(f"/run/active/{unit}") else 3), ""
        if verb == "enable":
            self.put({link: Link(f"/etc/systemd/system/{unit}")})
        elif verb == "disable":
            self._take(link)
        if verb in ("stop", "restart", "disable"):
            self._take(f"/run/active/{unit}", *((DAEMON,) if unit == PERSISTENCED else ()))
        if verb in ("start", "restart"):
            self._start(unit)
        return 0, ""

    def _start(self, unit):
        if not self.exists("/sys/module/nvidia") or not self.exists(f"/etc/systemd/system/{unit}"):
            return
        self.put({f"/run/active/{unit}": "", **trees.devices()})
        if unit == PERSISTENCED:
            self.put(trees.user_of(99, "nvidia-persiste", f"/system.slice/{unit}"))

    def _rmmod(self, argv):
        held = self.glob("/proc/[0-9]*/fd/*") or self.listdir(f"/sys/module/{argv[0]}/holders")
        if held:
            return 1, "", f"rmmod: ERROR: Module {argv[0]} is in use"
        self._take(f"/sys/module/{argv[0]}", "/sys/module/nvidia/holders/" + argv[0])
        if argv[0] == "nvidia":
            self._take("/proc/driver/nvidia", *self.glob("/dev/nvidia*"))
        else:
            self.put({"/sys/module/nvidia/refcnt": "0\n"})
        return 0, ""

    def _modprobe(self, argv):
        if argv[0] == "-r":
            self._take(f"/sys/module/{argv[1]}")
            return 0, ""
        return (0, "") if self.exists("/sys/module/nvidia") or self._load() else (1, "", "modprobe: FATAL: not found")

    def _load(self):
        text = self.read_bytes(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
        if text is None:
            return False
        version = text.partition(b"version=")[2].partition(b"\0")[0].decode()
        self.put(trees.loaded(version, "proprietary" if b"license=NVIDIA" in text else "open"))
        return True

    def _useradd(self, _argv):
        self.put({"/etc/passwd": "nvidia-persistenced:x:999:999::/:/usr/sbin/nologin\n"})
        return 0, ""

    def _rm(self, argv):
        self._take(*argv[argv.index("--") + 1 :])
        return 0, ""

    def _dkms(self, argv):
        version, tree = argv[argv.index("-v") + 1], f"/var/lib/dkms/nvidia/{argv[argv.index('-v') + 1]}"
        source = self.read_text(f"{tree}/source/dkms.conf")
        if source is None:
            return 3, "", "Error! DKMS tree does not have a source for this module."
        if argv[0] == "install":
            if version in self.dkms_fails:
                return 10, "", "Error! Bad return status for module build"
            self.put(trees.module(argv[argv.index("-k") + 1], version, source))
        else:
            self._forget_build(version)
        return 0, ""

    def _forget_build(self, version):
        for path in self.glob("/lib/modules/*/updates/dkms/nvidia.ko"):
            if f"version={version}\0".encode() in self.read_bytes(path):
                self._take(path)
        for link in self.glob("/var/lib/dkms/nvidia/kernel-*"):
            if version in (self.readlink(link) or ""):
                self._take(link)
        self._take(f"/var/lib/dkms/nvidia/{version}")

    # -- the vendor's programs ---------------------------------------------------------------------------------------

    def _systemd_run(self, argv):
        self._installing = True
        try:
            return self._install(argv[argv.index("--") + 1 :])
        finally:
            self._installing = False

    def _install(self, argv):
        version = argv[1].rpartition("-")[2][: -len(".run")]
        flavour = next(word.partition("=")[2] for word in argv if word.startswith("--kernel-module-type="))
        done = trees.on_disk(version, (KERNEL,), flavour)
        self._take("/var/log/nvidia-installer.log")
        self._uninstall(DRAFT)
        if self.read_text(RECORD) == version:
            self._uninstall(RECORD)
        source = f"/var/lib/dkms/nvidia/{version}/source"
        self._put(
            {
                DRAFT: version,
                f"/usr/src/nvidia-{version}/dkms.conf": flavour,
                source: done[source],
            }
        )
        self._uninstall(RECORD)
        if version in self.broken:
            return 1, "", "ERROR: the disk is on fire"
        self._put({path: entry for path, entry in done.items() if path.startswith((LIBRARIES, "/lib/firmware"))})
        self._put({UNINSTALLER: ""})
        self._put(trees.module(KERNEL, version, flavour))
        self._put({RECORD: version})
        self._tick()
        self._take(DRAFT)
        self._put({"/var/log/nvidia-installer.log": done["/var/log/nvidia-installer.log"]})
        return 0, ""

    def _nvidia_uninstall(self, _argv):
        self._uninstall(DRAFT)
        self._uninstall(RECORD)
        return 0, ""

    def _uninstall(self, record):
        version = self.read_text(record)
        if version is None:
            return
        self._tick()
        self._forget_build(version)
        self._tick()
        self._take(f"/usr/src/nvidia-{version}", f"/lib/firmware/nvidia/{version}", UNINSTALLER)
        self._tick()
        self._take(*self.glob(f"{LIBRARIES}/lib*.so.{version}"), f"{LIBRARIES}/libnvidia-ml.so.1", record)

    # -- files -------------------------------------------------------------------------------------------------------

    def _put(self, files):
        for path, entry in files.items():
            self._tick()
            self.put({path: entry})

    def _take(self, *paths):
        for path in paths:
            real = Path(self.path(path))
            if real.is_dir() and not real.is_symlink():
                shutil.rmtree(real)
            else:
                real.unlink(missing_ok=True)
        self.forget()
