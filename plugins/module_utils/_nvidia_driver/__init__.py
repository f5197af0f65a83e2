# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA driver from the vendor's runfile: on disk for every kernel that may boot, loaded, ready after each boot.

How the parts divide the work. What is wanted: ``options`` (what may be), ``flavour`` (which modules, which installer
options), ``judge`` (what is lacking, what speaks against beginning). The parts of the host: ``runfile``, ``installer``
(running it once), ``build`` (kernels and DKMS), ``unload`` (what holds the driver), ``boot`` (units, options, device
files), ``traces`` (what old versions leave), ``installer_log``.

The transaction: ``install`` begins and ends it; ``steps`` is the way to one driver, taken forward and back alike;
``journal`` is its record; ``last_good`` the set to go back to; ``undo`` decides which way back there is; ``remove`` is
``state: absent``.

What has to change together with the driver (fabric manager, display manager) is a *member* of the version set:
``member`` is the interface that the transaction calls, ``members`` the list of those that there are.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import (
    _driver_facts,
    _kernel,
    _modules,
    _packages,
    _pci,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, Difference
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    fabric,
    install,
    installer,
    installer_log,
    journal,
    judge,
    last_good,
    members,
    options,
    remove,
    runfile,
    steps,
    traces,
    unload,
)


class NvidiaDriver(Concern):
    name = "nvidia_driver"
    #: The one difference that only the end of a run settles.
    TRANSACTION = "transaction"
    options = dict(options.OPTIONS, **members.options())

    def validate(self, desired):
        if self.managed(desired):
            options.validate(desired, self.invalid)
            for member in members.MEMBERS:
                member.validate(desired, self.invalid)

    def read(self, host, desired):
        """Everything that :meth:`assess` judges; see the code for the keys, the parts for their shapes."""
        every_gpu = _pci.read(host)["gpus"]
        gpus = [gpu for gpu in every_gpu if gpu["driver"] != _pci.PASSTHROUGH_DRIVER]
        kernel = _kernel.read(host)
        targets = build.targets(kernel)
        driver = _driver_facts.read(host)
        arch = runfile.architecture(host)
        record = journal.read(host)
        wanted = last_good.resolve(host, desired) if desired["state"] != "absent" else None
        asked = wanted or desired
        filename = runfile.name(asked["version"], arch or "unknown")
        path = "%s/%s" % (runfile.DIRECTORY, filename)
        return {
            "wanted": wanted,
            "way_back": (last_good.read(host) or {}).get("version"),
            "gpus": gpus,
            "passthrough": len(every_gpu) - len(gpus),
            "architecture": arch,
            "kernel": kernel,
            "targets": targets,
            "driver": driver,
            "flavours": {release: build.flavour_on_disk(host, release) for release in targets},
            "rival": next((name for name in steps.RIVALS if _modules.loaded(host, name)), None),
            "users": unload.read(host, members.unit_of(desired)),
            "firmware": traces.firmware(host),
            "traces": traces.read(host),
            "source": host.exists(build.source(asked["version"])),
            "missing_packages": build.missing_packages(host, kernel, targets, desired["ignore_compiler_mismatch"])
            if gpus and wanted
            else [],
            "runfile": {
                "name": filename,
                "path": path,
                "sha256": runfile.sha256(host, path),
                "expected_sha256": runfile.expected_sha256(host, asked, filename),
            },
            "package_manager": _packages.manager(host),
            "stale_images": steps.stale_images(host) if driver["library"] else [],
            "carriers": steps.carriers(host),
            "boot": boot.read(host, asked, len(gpus)),
            "journal": record,
            "files": remove.read(host) if desired["state"] == "absent" else [],
            "stopped": [
                name
                for name in (record.get("stopped", []) if journal.interrupted(record) else [])
                if boot.active(host, name + ".service") is False
            ],
            "members": {member.name: member.read(host, asked) for member in members.MEMBERS} if gpus else {},
            "installer_pid": installer.main_pid(host),
            "installed_by_log": installer_log.finished(host.read_text(installer.LOG)),
        }

    def assess(self, state, desired):
        difference = Difference()
        if desired["state"] == "absent":
            remove.assess(difference, state)
        elif state["gpus"] and state["wanted"] is None:
            difference.add("driver", "present", "the last-good set", last_good.NONE, "Refuse to go back")
        elif state["gpus"]:
            self._assess_present(state, state["wanted"], difference)
        return difference

    def _assess_present(self, state, desired, difference):
        """``desired`` is the document to make true, whichever state asked for it."""
        for package in state["missing_packages"]:
            difference.add(
                "package %s" % package,
                "absent",
                "installed",
                "the module build needs it",
                "Install the package %s" % package,
            )
        self._assess_runfile(state, difference)
        problems = judge.problems(state, desired)
        for what, before, why in problems:
            difference.add(what, before or "absent", desired["version"], why, _action(what, desired["version"]))
        for version, what in judge.left_over(state, desired).items():
            difference.add(
                "driver %s" % version,
                ", ".join(what),
                "absent",
                "it is left over",
                "Remove the rest of driver %s" % version,
            )
        for image in state["stale_images"]:
            difference.add(
                image["path"],
                "older than the modules",
                "rebuilt",
                "it carries NVIDIA modules of an earlier build",
                "Rebuild %s for kernel %s" % (image["path"], image["release"]),
            )
        boot.assess(difference, state, desired, len(state["gpus"]))
        for name in state["stopped"]:
            difference.add(
                name, "stopped", "running", "an interrupted run had stopped it for the driver", "Start %s again" % name
            )
        for member in members.MEMBERS:
            member.assess(difference, state, desired)
        self._assess_loaded(state, desired, difference)
        phase = journal.interrupted(state["journal"])
        if phase:
            difference.add(
                self.TRANSACTION,
                "interrupted in %s" % phase,
                "done",
                "an earlier run died in the middle of a change",
                "Complete the change to driver %s, or go back" % desired["version"],
            )

    def returns(self, state, desired):
        """What the role's tasks need to know: packages, the runfile, and in one word how this host stands."""
        outcome = "managed" if state["gpus"] else "passthrough" if state["passthrough"] else "no_gpu"
        return {
            "outcome": outcome,
            "gpu_count": len(state["gpus"]),
            "missing_packages": state["missing_packages"],
            "package_manager": state["package_manager"],
            "package_lists_due": fabric.lists_are_due(state),
            "runfile": state["runfile"],
            "runfile_due": desired["state"] == "present" and bool(state["gpus"]) and _runfile_due(state["runfile"]),
            "refusals": self._refusals(state, desired),
            "way_back": state["way_back"],
            "installed_version": (state["driver"]["library"] or {}).get("version"),
            "loaded_version": (state["driver"]["loaded"] or {}).get("version"),
        }

    def _refusals(self, state, desired):
        if desired["state"] == "absent":
            return judge.in_use(state, desired)
        if not state["gpus"]:
            return []
        return judge.refusals(state, state["wanted"]) if state["wanted"] else [last_good.NONE]

    def _assess_runfile(self, state, difference):
        """The last runfile is kept on the host: it is the way back when a later version does not work."""
        found = state["runfile"]
        if _runfile_due(found):
            difference.add(
                found["path"],
                "absent" if found["sha256"] is None else "sha256 %s" % found["sha256"],
                "sha256 %s" % (found["expected_sha256"] or "from nvidia_driver_runfile_checksum"),
                "the installer of the wanted version is kept on the host",
                "Fetch %s" % found["name"],
            )

    def _assess_loaded(self, state, desired, difference):
        version = desired["version"]
        loaded = state["driver"]["loaded"]
        if judge.is_loaded(state, desired):
            self._assess_running(state, desired, difference)
            return
        reason = judge.reason_for_reboot(state)
        before = loaded["version"] if loaded else None
        if reason:
            difference.add_pending("loaded driver", "driver %s is loaded at the next boot: %s" % (version, reason))
        else:
            difference.add(
                "loaded driver", before, version, "the GPUs work only with the module loaded", "Load the driver"
            )

    def _assess_running(self, state, desired, difference):
        """What must hold while the wanted version is loaded."""
        found = state["boot"]
        if desired["persistence"] and found["persistenced"] is False:
            difference.add(
                boot.PERSISTENCED_UNIT,
                "not running",
                "running",
                "nvidia_driver_persistence is true",
                "Start the daemon",
            )
        for path in found["devices"]:
            difference.add(path, "absent", "present", "programs reach the GPU through it", "Create %s" % path)
        in_force = state["driver"]["parameters"]["in_force"]
        for name, value in sorted(desired["module_parameters"].items()):
            text = options.parameter_value(value)
            current = in_force.get(name[len("NVreg_") :], in_force.get(name))
            if current is not None and str(current).strip('"') != text:
                difference.add_pending(
                    name,
                    "%s is %s in the loaded module, wanted is %s: it is read when the module loads"
                    % (name, current, text),
                )

    def apply(self, host, desired, state, difference):
        install.run(self, host, desired, state)


def _runfile_due(found):
    return found["sha256"] is None or found["sha256"] != found["expected_sha256"]


def _action(what, version):
    if what.startswith("module for "):
        return "Build the modules of %s for kernel %s" % (version, what[len("module for ") :])
    return "Install driver %s" % version
