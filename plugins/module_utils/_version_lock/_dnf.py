# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock on a host with dnf: an entry for each installed version in dnf's own list of version locks, and, beside a
runfile's driver, an exclusion of the packages that would bring a second one.

dnf4 needs the plugin versionlock for both; its list takes exclusions, too. dnf5 has version locks built in and takes
exclusions from a drop-in of its configuration, where they add to those of others.

A lock here is ``{dnf: 4|5, path: str, text: str, dropin: str|None, problems: [{name, before, why}]}``.
"""

import configparser
import fnmatch

from ansible_collections.gpufleet.metal.plugins.module_utils import _apt, _dnf, _rpm
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._host import Result
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import (
    _candidates,
    _dnf_candidates,
    _dnf_files,
    _dnf_proof,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock._backend import Backend

LIST4 = "/etc/dnf/plugins/versionlock.list"
CONF4 = "/etc/dnf/plugins/versionlock.conf"
PLUGIN4 = "/usr/lib/python3*/*-packages/dnf-plugins/versionlock.py"
PACKAGE4 = "python3-dnf-plugin-versionlock"
TOML5 = "/etc/dnf/versionlock.toml"
#: Read last of the drop-ins; excludepkgs of all files add up.
DROPIN5 = "/etc/dnf/libdnf5.conf.d/99-gpufleet-version-lock.conf"
MAIN = "/etc/dnf/dnf.conf"
HEADER = "# Managed by gpufleet.metal (role version_lock): changes made here are overwritten.\n"
#: Seconds for one transaction. A kernel with a driver build for it takes minutes; ending rpm early breaks the host.
INSTALL_TIMEOUT = 7200


class Dnf(Backend):
    def group(self, name, kernel, extra):
        if kernel and _dnf_candidates.KERNEL.fullmatch(name):
            return "kernel"
        return _candidates.group(name, False, extra)

    def packages(self, host):
        rows: dict = {}
        for row in _rpm.installed(host):  # of several architectures one row, because a lock names none
            rows[row["name"], row["version"]] = {"name": row["name"], "version": row["version"], "broken": False}
        return list(rows.values())[::-1]  # the last installed last: that one stands for its name

    def read(self, host):
        if _dnf.version(host) == 5:
            path, problems, dropin = TOML5, [], host.read_text(DROPIN5)
        else:
            path, problems = _plugin4(host)
            dropin = None
        return {
            "dnf": _dnf.version(host),
            "path": path,
            "text": host.read_text(path) or "",
            "dropin": dropin,
            "problems": problems,
        }

    def assess(self, lock, rows, refuse_drivers, ours, difference):
        if lock["problems"] and rows is not None:
            return  # the concern tells them: without the plugin nothing else can be done
        unlocked, stale = self.missing(lock, rows or []), self._stale(lock, rows or [], ours)
        path, refused = lock["path"], _refused(rows, refuse_drivers)
        before = len(difference.items)
        if unlocked:
            names = ", ".join(unlocked)
            difference.add(path, "missing: " + names, "locked", "an upgrade would move them", "Lock " + names)
        if stale:
            names = ", ".join(stale)
            difference.add(path, "ours: " + names, "released", "they are locked no more", "Release " + names)
        lacking = [pattern for pattern in refused if pattern not in _form(lock).refusals(lock["text"])]
        if lock["dnf"] == 4 and lacking:
            why = "they would bring a second driver in"
            words = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
            difference.add(path, "not refused: " + words, "refused", why, "Refuse packages of the driver")
        # dnf5 writes its file anew whenever somebody locks a package; then only the entries count, not their text.
        edited = lock["dnf"] == 4 and lock["text"] != self._wanted(lock, rows, refuse_drivers, ours)
        if edited and len(difference.items) == before:
            difference.add(path, "entries of this role differ", "as written", "somebody edited them", "Mend " + path)
        dropin = _dropin(lock, refused)
        if lock["dropin"] != dropin:
            words = [
                "absent" if text is None else "excludes packages of the driver" for text in (lock["dropin"], dropin)
            ]
            words[0] = "edited" if None not in (lock["dropin"], dropin) else words[0]
            why = "they would bring a second driver in" if refused else "no exclusion is wanted"
            difference.add(DROPIN5, words[0], words[1], why, ("Write " if refused else "Remove ") + DROPIN5)

    def conflicts(self, lock, rows):
        versions: dict = {}
        for row in rows:
            versions.setdefault(row["name"], set()).add(row["version"])
        found = list(lock["problems"])
        form = _form(lock)
        for piece in form.pieces(lock["text"]):
            if piece["ours"]:
                continue
            if piece["name"] in versions:
                names = [] if piece["version"] in versions[piece["name"]] else [piece["name"]]
            else:
                names = [
                    name for name in versions if piece["name"] is None and form.concerns(piece, name, versions[name])
                ]
            entry = " ".join(piece["text"].split())
            found += [
                {"name": name, "before": entry, "why": f"{lock['path']} has '{entry}', which lets other versions in"}
                for name in sorted(names)
            ]
        return found

    def conflict_remedy(self):
        return "Correct or remove that, then run again."

    def wait(self, host, seconds):
        _apt.wait_until_free(host, seconds, "version_lock_wait_timeout", lambda: _dnf.running(host))

    def missing(self, lock, rows):
        present = _dnf_files.locked(_form(lock), lock["text"])
        return sorted({row["name"] for row in rows if (row["name"], row["version"]) not in present})

    def _stale(self, lock, rows, ours):
        wanted = {(row["name"], row["version"]) for row in rows}
        form = _form(lock)
        mine = _dnf_files.mine(form, form.pieces(lock["text"]), ours)
        pairs = {(piece["name"], piece["version"]) for piece in mine if piece["name"]}
        return sorted("{}-{}".format(*pair) for pair in pairs.difference(wanted))

    def _wanted(self, lock, rows, refuse_drivers, ours):
        refused = _refused(rows, refuse_drivers) if lock["dnf"] == 4 else ()
        return _dnf_files.rendered(_form(lock), lock["text"], rows, refused, ours)

    def lock(self, host, lock, rows, refuse_drivers, ours):
        self._write(host, lock, self._wanted(lock, rows, refuse_drivers, ours))
        if lock["dnf"] == 5:
            _write_dropin(host, _dropin(lock, _refused(rows, refuse_drivers)))

    def unlock(self, host, lock, ours):
        self._write(host, lock, self._wanted(lock, None, False, ours))
        _write_dropin(host, None)

    def _write(self, host, lock, text):
        """Write the list; when dnf cannot read it, put back what was there. dnf is never left broken."""
        before = host.read_text(lock["path"])
        if text == (before or ""):
            return
        if lock["dnf"] == 5 and text.strip() in ("", _dnf_files.Toml5.EMPTY.strip()):
            host.remove(lock["path"])
            return
        host.write(lock["path"], text)
        if lock["dnf"] == 4:
            return  # a line that it cannot read is skipped: the proof counts them
        result = host.run([_dnf.command(host), "versionlock", "list"], timeout=120)
        if not result.ok:
            if before is None:
                host.remove(lock["path"])
            else:
                host.write(lock["path"], before)
            raise ConcernError(f"version_lock: dnf does not accept its list of locks: {result.summary()}")

    def prove(self, host, rows, refuse_drivers):
        return _dnf_proof.prove(host, rows, refuse_drivers)

    def unoffered(self, host, versions):
        known = _dnf_proof.offered(host, versions)
        return sorted(name for name, version in versions.items() if (name, version) not in known)

    def refresh(self, host):
        # A repository that has nothing to do with the move may be away: what counts is what is offered afterwards.
        host.run([_dnf.command(host), "-y", "--refresh", "makecache"], timeout=600, changes=True)

    def lift(self, host, lock, names):
        self._write(host, lock, _dnf_files.lifted(_form(lock), lock["text"], names))

    def relock(self, host, lock, names):
        versions: dict = {name: [] for name in names}
        for row in self.packages(host):
            if row["name"] in versions:
                versions[row["name"]].append(row["version"])
        self._write(host, lock, _dnf_files.repinned(_form(lock), lock["text"], versions))

    def install(self, host, versions, simulate=False):
        specs = [f"{name}-{_dnf_files.with_epoch(versions[name])}" for name in sorted(versions)]
        # Kernels are installed beside each other; one that is too many is not removed by a move.
        options = ["--setopt=installonly_limit=0", "--setopt=install_weak_deps=0", "--best"]
        if not simulate:
            argv = [_dnf.command(host), "-y"] + options + ["install"] + specs
            return host.run(argv, timeout=INSTALL_TIMEOUT, changes=True)
        resolved, result = _dnf_proof.simulate(host, options + _dnf_proof.unlocked(host) + ["install"] + specs)
        if not resolved:
            return result
        return self._judge(host, versions, result)

    def _judge(self, host, versions, result):
        """What the locks of the others would say to a transaction that was tried without any."""
        lock = self.read(host)
        moving, incoming = _dnf_proof.touched(host, result.out)
        names = {name for name, _version in _dnf_files.locked(_form(lock), lock["text"])}
        refused = _form(lock).refusals(lock["text"]) + (_excluded(lock["dropin"]) if lock["dropin"] else [])
        names.update(name for name in incoming if any(fnmatch.fnmatchcase(name, pattern) for pattern in refused))
        blocked = sorted(moving.intersection(names).difference(versions))
        if blocked:
            return Result(result.argv, 1, "", "it would also touch what is locked or refused: " + " ".join(blocked))
        return Result(result.argv, 0, result.out, result.err)

    def blockers(self, result, names):
        words = set((result.out + " " + result.err).split())
        return [name for name in names if name in words or any(word.startswith(name + "-") for word in words)]


def _form(lock):
    return _dnf_files.Toml5() if lock["dnf"] == 5 else _dnf_files.List4()


def _refused(rows, refuse_drivers):
    return _dnf_candidates.REFUSED if rows is not None and refuse_drivers else ()


def _dropin(lock, refused):
    """The drop-in's text as it should be, or None."""
    if lock["dnf"] == 4 or not refused:
        return None
    return HEADER + "[main]\nexcludepkgs=" + ",".join(refused) + "\n"


def _excluded(text):
    return text.partition("excludepkgs=")[2].strip().split(",")


def _write_dropin(host, text):
    if text is None:
        host.remove(DROPIN5)
    elif host.read_text(DROPIN5) != text:
        host.write(DROPIN5, text)


def _plugin4(host):
    """``(path of the list, problems)``: what keeps dnf4 from applying it."""
    path, problems = LIST4, []
    what = "dnf's plugin versionlock"
    if not host.glob(PLUGIN4):
        why = f"the plugin is not installed: install {PACKAGE4}"
        return path, [{"name": what, "before": "not installed", "why": why}]
    settings = _settings(host, CONF4)
    path = settings.get("locklist", LIST4)
    if settings.get("enabled", "1").lower() not in ("1", "yes", "true", "on"):
        problems.append({"name": what, "before": "disabled", "why": f"{CONF4} disables it: set enabled = 1 there"})
    if _settings(host, MAIN).get("plugins", "1").lower() in ("0", "no", "false", "off"):
        problems.append(
            {"name": what, "before": "disabled", "why": f"{MAIN} disables all plugins: remove plugins=0 there"}
        )
    return path, problems


def _settings(host, path):
    """The section [main] of one of dnf's files: dict of str; empty when it cannot be parsed."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(host.read_text(path) or "")
    except configparser.Error:
        return {}
    return dict(parser["main"]) if parser.has_section("main") else {}
