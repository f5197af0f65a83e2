# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVLink fabric's software as a member of the version set: packages in the driver's exact version, unit, modules.

A fabric manager that runs is never started anew on GPUs in use: without a reset of the GPUs the fabric does not come
back whole (J13). It is started where the driver was just loaded, or where it has not run since the boot.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import (
    _driver_facts,
    _kernel,
    _modules,
    _packages,
    _pci,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    fabric_packages,
    installer_log,
    member,
    runfile,
    unload,
    version_set,
)

UNIT = version_set.FABRIC_MANAGER + ".service"
IMEX_UNIT = version_set.IMEX + ".service"
MODULES_LOAD = "/etc/modules-load.d/gpufleet-nvlink.conf"
MODULES_LOAD_TEXT = boot.MARK + "".join("%s\n" % name for name in version_set.NVLINK5_MODULES)
VARIABLE = "nvidia_driver_fabric_manager"
MODULE_REMEDY = (
    "Install the package that has it (Ubuntu: linux-modules-extra-<kernel>; others: the full kernel package in the "
    "place of a reduced one)"
)


RETURN_REMEDY = "Copy its .deb there, from the mirror or machine that still has it, or add a repository that has it"


class Fabric(member.Member):
    name = "fabric"
    folders = (fabric_packages.DIRECTORY,)
    options = {
        "fabric_manager": {"type": "str", "choices": ["auto", "present", "absent"], "default": "auto"},
    }

    def read(self, host, desired):
        """The fabric's software as it is.

        :returns: ``{detected, platform, manager, parts, unit, modules, missing_modules, running, ran, enabled,
            modules_load}``. ``detected`` is the machine's platform, ``platform`` the one to be served. ``parts``: see
            :func:`fabric_packages.read`. ``modules``: name -> loaded; ``missing_modules``: ``[kernel, name]`` of those
            that a kernel does not have. ``running``, ``ran`` (since the boot) and ``enabled`` are the unit's.
        """
        gpus = [gpu for gpu in _pci.read(host)["gpus"] if gpu["driver"] != _pci.PASSTHROUGH_DRIVER]
        manager = _packages.manager(host)
        detected = version_set.machine_platform(host, gpus)
        kind = wanted_platform(detected, desired["fabric_manager"]) if desired["version"] else "none"
        needed = version_set.resolve(kind, desired["version"], runfile.architecture(host), manager)
        present = fabric_packages.has(host, version_set.FABRIC_MANAGER)
        running = boot.active(host, UNIT) if present else False
        return {
            "detected": detected,
            "platform": kind,
            "manager": manager,
            "parts": fabric_packages.read(host, manager, needed["parts"]),
            "unit": needed["unit"],
            "modules": {name: _modules.loaded(host, name) for name in needed["modules"]},
            "missing_modules": missing_modules(host, needed["modules"]),
            "running": running,
            "ran": bool(present and needed["unit"]) and running is False and ran(host),
            "enabled": boot.enabled(host, UNIT),
            "modules_load": host.read_text(MODULES_LOAD),
        }

    # -- judging (pure) --------------------------------------------------------------------------------------------

    def assess(self, difference, state, desired):
        found = state["members"].get(self.name)
        if not found:
            return
        if found["unit"] is None and (found["enabled"] or found["running"]):
            difference.add(UNIT, "enabled", "disabled", leftover(found, desired), "Disable " + UNIT)
        _assess_packages(difference, found, waits(state, desired))
        if found["modules"] and found["modules_load"] != MODULES_LOAD_TEXT:
            difference.add(
                MODULES_LOAD,
                "absent" if found["modules_load"] is None else "other content",
                "present",
                "nvlsm reaches the NVSwitches through %s" % " and ".join(sorted(found["modules"])),
                "Write " + MODULES_LOAD,
            )
        if found["unit"] and not found["enabled"]:
            difference.add(UNIT, "disabled", "enabled", "it sets up the NVLink fabric at boot", "Enable " + UNIT)
        loaded = state["driver"]["loaded"]
        if found["unit"] and found["running"] is False and loaded and loaded["version"] == desired["version"]:
            _assess_stopped(difference, found)

    def refusals(self, state, desired):
        found = state["members"].get(self.name)
        if not found:
            return []
        stranded = [] if waits(state, desired) else no_return(found, state["driver"]["library"])
        return problems(found, desired) + ["%s: %s. %s" % (VARIABLE, reason, RETURN_REMEDY) for reason in stranded]

    def unit_of(self, process, desired):
        return process["unit"][: -len(".service")] if process["unit"] in (UNIT, IMEX_UNIT) else None

    # -- acting ----------------------------------------------------------------------------------------------------

    def install(self, host, desired, state):
        found = self.read(host, desired)
        due = [part for part in found["parts"] if not part["fits"]]
        if due and not waits(dict(state, members={self.name: found}), desired):
            hindered = problems(found, desired)
            if hindered:
                raise ConcernError("\n".join(hindered))
            here = fabric_packages.kept(host)
            chosen = {
                name: version if part["version"] or version in here.get(name, ()) else None
                for part in due
                for name, version in [part["offer"]]
            }
            going = {name: version for part in due for name, version in fabric_packages.leaving(part).items()}
            if found["manager"] == "apt":
                lost = {name for part in due for name in part["lost"]}
                fabric_packages.keep(host, {name: going[name] for name in going if name not in lost})
            fabric_packages.remember(host, sorted(chosen))
            others = {name for part in due for name in part["others"]}
            fabric_packages.change(host, found["manager"], chosen, sorted(others))
        if found["modules"] and found["modules_load"] != MODULES_LOAD_TEXT:
            host.write(MODULES_LOAD, MODULES_LOAD_TEXT)
        if not host.exists("/run/systemd/system"):
            return
        if found["unit"] and not boot.enabled(host, UNIT):
            _must(host, ["systemctl", "enable", UNIT])
        if not found["unit"] and (found["enabled"] or found["running"]):
            _must(host, ["systemctl", "disable", "--now", UNIT])

    def start(self, host, desired, state):
        found = self.read(host, desired)
        if not found["unit"] or found["running"] is not False or _must_not_start(state, desired):
            return
        for name in sorted(found["modules"]):
            answer = None if found["modules"][name] else host.run(["modprobe", name], timeout=120, changes=True)
            if answer and not answer.ok:
                raise ConcernError(
                    "nvidia_driver: kernel module %s cannot be loaded, and nvlsm reaches the NVSwitches through it: "
                    "%s. %s" % (name, answer.summary(), MODULE_REMEDY)
                )
        _must(host, ["systemctl", "start", UNIT])

    def verify(self, host, desired):
        loaded = _driver_facts.read(host)["loaded"]
        if not loaded or loaded["version"] != desired["version"]:
            return []
        found = self.read(host, desired)
        wrong = [
            "the %s is %s, the driver %s" % (part["what"], _word(part["installed"]), desired["version"])
            for part in found["parts"]
            if not part["fits"]
        ]
        if found["unit"] and found["running"] is False and not found["ran"]:
            wrong.append("%s does not run%s" % (UNIT, why(host)))
        return wrong

    # -- going back ------------------------------------------------------------------------------------------------

    def kept(self, state):
        found = state["members"].get(self.name) or {"parts": [], "enabled": False}
        packages = dict(part["installed"] for part in found["parts"] if part["installed"])
        for part in found["parts"]:
            packages.update(part["others"])
        return {
            "packages": packages,
            "enabled": found["enabled"],
            # a driver that stood there without its fabric manager goes back to that
            "options": {} if found["enabled"] or not found["parts"] else {"fabric_manager": "absent"},
        }

    def put_back(self, host, kept):
        installed = _packages.installed(host)
        moved = {
            name: version
            for name, version in kept["packages"].items()
            if installed.get(name, {}).get("version") != version
        }
        added = [
            name for name in fabric_packages.remembered(host) if name in installed and name not in kept["packages"]
        ]
        left = []
        try:
            if moved or added:
                fabric_packages.change(host, _packages.manager(host), moved, added)
            if not kept["enabled"] and boot.enabled(host, UNIT):
                _must(host, ["systemctl", "disable", UNIT])
        except ConcernError as error:
            left.append(str(error))
        return left

    def prune(self, host, kept):
        installed = {name: package["version"] for name, package in _packages.installed(host).items()}
        fabric_packages.prune(host, [installed, kept["packages"] if kept else {}])

    def withdraw(self, host):
        done = []
        ours = [name for name in fabric_packages.remembered(host) if name in _packages.installed(host)]
        try:
            if ours and boot.enabled(host, UNIT):
                _must(host, ["systemctl", "disable", "--now", UNIT])
            if ours:
                fabric_packages.change(host, _packages.manager(host), {}, ours)
                done.append("%s were removed" % ", ".join(ours))
        except ConcernError as error:
            return done, [str(error)]
        host.remove(fabric_packages.RECORD)
        if (host.read_text(MODULES_LOAD) or "").startswith(boot.MARK):
            host.remove(MODULES_LOAD)
            done.append("%s was removed" % MODULES_LOAD)
        return done, []


def lists_are_due(state):
    """True when nobody can tell what the repositories have, because the host has no package lists."""
    return any(not part["known"] for part in state["members"].get("fabric", {}).get("parts", []))


def wanted_platform(detected, asked):
    """The platform to serve: ``absent`` serves none, ``present`` takes an unknown machine for one with NVSwitches."""
    if asked == "absent":
        return "none"
    return "nvswitch" if asked == "present" and detected == "none" else detected


def leftover(found, desired):
    """Why this machine runs no fabric manager. One that is left over fails at each boot: no reason to fail a play."""
    if desired["fabric_manager"] == "absent":
        return VARIABLE + " is absent"
    if found["detected"] == "rack":
        return "the fabric manager of a rack runs in its switch trays"
    return "this machine has no NVSwitch for it"


def waits(state, desired):
    """Why the packages can only be changed after a reboot, or None: the fabric manager in place serves GPUs in use, and
    when it stops, it ends what runs on them."""
    found, loaded = state["members"]["fabric"], state["driver"]["loaded"]
    if not found["running"] or not loaded or loaded["version"] == desired["version"]:
        return None
    users = unload.obstacles(state["users"])
    return "driver %s is in use by %s" % (loaded["version"], "; ".join(users)) if users else None


def _must_not_start(state, desired):
    """True for a fabric manager that stopped by itself under the wanted driver, which has been loaded all the time."""
    loaded = state["driver"]["loaded"]
    stayed = loaded and loaded["version"] == desired["version"]
    return bool(stayed and state["members"]["fabric"]["ran"]) and version_set.FABRIC_MANAGER not in state["stopped"]


def _assess_packages(difference, found, later):
    for part in found["parts"]:
        if part["fits"]:
            continue
        name, version = part["offer"] or (part["names"][0], part["version"] or "in any version")
        if later:
            difference.add_pending(name, "%s %s is installed after the reboot: %s" % (name, version, later))
            continue
        reason = "the %s must have exactly the driver's version" % part["what"]
        difference.add(
            "package " + name,
            _word(part["installed"]),
            version,
            reason if part["version"] else "the fabric of these GPUs needs the %s" % part["what"],
            "Install %s %s" % (name, version),
        )


def _assess_stopped(difference, found):
    """The wanted driver is loaded, and the fabric manager does not run."""
    if found["ran"]:
        difference.add_pending(
            UNIT,
            "%s has stopped since it set up the fabric, and starting it alone does not bring the fabric back whole: "
            "the GPUs need a reset, with nothing running on them, or the host a reboot" % UNIT,
        )
        return
    for name in sorted(found["modules"]):
        if found["modules"][name] is False:
            reason = "the fabric manager reaches the NVSwitches through it"
            difference.add("kernel module " + name, "not loaded", "loaded", reason, "Load " + name)
    difference.add(UNIT, "not running", "running", "without it CUDA answers error 802", "Start " + UNIT)


def problems(found, desired):
    """What keeps the set from being installed: list of sentences that name the variable and the remedy."""
    lines = []
    for part in found["parts"]:
        if part["fits"] or part["offer"]:
            continue
        wanted = " or ".join(part["names"])
        if not part["known"]:
            lines.append(
                "%s: whether a repository has %s %s is not known, because this host has no package lists. Fetch them "
                "(apt-get update)" % (VARIABLE, wanted, part["version"] or "")
            )
            continue
        there = "; there is %s" % ", ".join(part["offered"][:5]) if part["offered"] else ""
        lines.append(
            "%s: no repository of this host has %s %s%s. The %s must have exactly the driver's version: add NVIDIA's "
            "repository for this distribution, or set nvidia_driver_version to a version that there is"
            % (VARIABLE, wanted, part["version"], there, part["what"])
            if part["version"]
            else "%s: no repository of this host has %s. Add the one that has it" % (VARIABLE, wanted)
        )
    lines += [
        "%s: kernel %s has no module %s, and nvlsm reaches the NVSwitches through it. %s"
        % (VARIABLE, release, name, MODULE_REMEDY)
        for release, name in found["missing_modules"]
    ]
    if desired["fabric_manager"] == "present" and found["detected"] == "rack":
        lines.append("%s: %s. Set it to auto" % (VARIABLE, leftover(found, dict(desired, fabric_manager="auto"))))
    return lines


def no_return(found, library):
    """What of a set that works (it has the present driver's version) a change that fails could not put back."""
    lost = {name: lost for part in found["parts"] for name, lost in part["lost"].items()}
    return [
        "%s %s serves the present driver, is in no repository of this host and not kept in %s: a change that fails "
        "could not put it back" % (name, lost[name], fabric_packages.DIRECTORY)
        for name in sorted(lost)
        if library and version_set.upstream(lost[name]) == library["version"]
    ]


def missing_modules(host, names):
    """``[kernel, module]`` of the modules that a kernel which may boot does not have (J5)."""
    missing = []
    for release in build.targets(_kernel.read(host)) if names else []:
        known = [host.read_text("/lib/modules/%s/%s" % (release, file)) for file in ("modules.dep", "modules.builtin")]
        text = "\n" + "\n".join(filter(None, known))
        missing += [[release, name] for name in names if "/%s.ko" % name not in text]
    return missing


def ran(host):
    """True when the unit has been up since the boot."""
    argv = ["systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "--value", UNIT]
    return host.exists("/run/systemd/system") and host.run(argv, timeout=20).out.strip() not in ("", "0")


def why(host):
    """What the fabric manager said last, as a clause with the known cause; empty when its journal cannot be read."""
    text = host.run(["journalctl", "--unit", UNIT, "--boot", "--lines=30", "--output=cat"], timeout=30).out
    known = installer_log.classify(text)
    if known:
        return ": %s (%s). %s" % (known["cause"], known["line"], known["remedy"])
    return ": " + " / ".join(installer_log.tail(text, 3)) if text.strip() else ""


def _word(installed):
    return "%s %s" % tuple(installed) if installed else "absent"


def _must(host, argv):
    answer = host.run(argv, timeout=900, changes=True)
    if not answer.ok:
        reason = why(host) if argv[1] == "start" else ""
        raise ConcernError("nvidia_driver: %s%s" % (answer.summary(), reason), command=answer.argv, rc=answer.rc)
