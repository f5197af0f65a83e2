# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the in-kernel drivers (nouveau, nova_core) off the GPUs, in every place from which one of them may be loaded.

Three places decide: modprobe.d on the root file system, the initial RAM disk of each kernel that may boot, and (by
choice) the kernel command line. Everything here is staged: nothing reboots the host, a loaded nouveau is pending.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _boot_loader, _initramfs, _modules, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import (
    Concern,
    ConcernError,
    Difference,
    validated,
)

MODULES = ("nouveau", "nova_core")
MODPROBE_NAME = "gpufleet-nouveau.conf"
MODPROBE_FILE = "/etc/modprobe.d/" + MODPROBE_NAME
DRACUT_FILE = "/etc/dracut.conf.d/99-gpufleet-nouveau.conf"
#: One token, spelled as nobody else does, so that withdrawing it never takes a user's own token away.
TOKENS = {
    "initramfs-tools": ("modprobe.blacklist=" + ",".join(MODULES),),
    "dracut": ("modprobe.blacklist=" + ",".join(MODULES), "rd.driver.blacklist=" + ",".join(MODULES)),
    None: ("modprobe.blacklist=" + ",".join(MODULES),),
}
#: Also the record, on the host, of how to go on or back when it is met with neither driver.
HEADER = (
    "# Managed by gpufleet.metal (role nouveau): the NVIDIA driver needs the GPUs.\n"
    "# No driver on the GPUs? On: run site.yml again. Back: run the role nouveau with nouveau_state: absent.\n"
)


def modprobe_text():
    """The blacklist. ``modeset=0`` holds even where nouveau is loaded by name, which a blacklist does not stop."""
    return HEADER + "".join("blacklist %s\n" % module for module in MODULES) + "options nouveau modeset=0\n"


def dracut_text():
    """dracut joins the values of all files as they are, so ours starts and ends with a space."""
    return HEADER + 'omit_drivers+=" %s "\n' % " ".join(MODULES)


def wanted_files(tool, blocked):
    """path -> wanted content, None for a file that must not be there."""
    return {
        MODPROBE_FILE: modprobe_text() if blocked else None,
        DRACUT_FILE: dracut_text() if blocked and tool == "dracut" else None,
    }


def loads(image, written_ns):
    """The in-kernel drivers that this image can load before the root file system is there.

    :param image: one of ``_initramfs.read()["images"]``, with ``holds`` known.
    :param written_ns: when the blacklist on disk was written (ns), None when it is not there. An older image that holds
        a blacklist of that name holds an older one.
    """
    holds = image["holds"]
    carries = MODPROBE_NAME in holds["configuration"] and written_ns is not None and image["mtime_ns"] >= written_ns
    return [] if carries else [module for module in MODULES if module in holds["modules"]]


class Nouveau(Concern):
    name = "nouveau"
    options = {
        "state": {"type": "str", "choices": ["present", "absent", "unmanaged"], "default": "present"},
        "kernel_command_line": {"type": "bool", "default": False},
    }

    def read(self, host, desired):
        """``{files: {path: text|None}, blacklist_written_ns: int|None, initramfs: _initramfs.read(),
        boot: _boot_loader.read(), loaded: {module: bool|None}, references: {module: int}}``; None: not shown."""
        stat = host.stat(MODPROBE_FILE)
        return {
            "files": {path: host.read_text(path) for path in (MODPROBE_FILE, DRACUT_FILE)},
            "blacklist_written_ns": None if stat is None else stat.st_mtime_ns,
            "initramfs": _initramfs.read(host),
            "boot": _boot_loader.read(host, self.name),
            "loaded": {module: _modules.loaded(host, module) for module in MODULES},
            "references": {
                module: int(host.read_value("/sys/module/%s/refcnt" % module) or 0)
                for module in MODULES
                if host.exists("/sys/module/%s/refcnt" % module)
            },
        }

    def assess(self, state, desired):
        difference = Difference()
        blocked = desired["state"] == "present"
        files_differ = self._assess_files(state, blocked, difference)
        for image in state["initramfs"]["images"]:
            self._assess_image(state, image, blocked, files_differ, difference)
        for path in state["initramfs"]["left_over"]:
            difference.add(path, "present", "absent", "an interrupted run left it", "Remove %s" % path)
        self._assess_command_line(state, desired, difference)
        if blocked:
            for module, loaded in state["loaded"].items():
                if loaded:
                    difference.add_pending(module, "%s is loaded; it is blocked from the next boot on" % module)
                elif loaded is None:
                    difference.add_unknown(module, "whether it is loaded is not known: /sys/module shows no module")
        return difference

    def _assess_files(self, state, blocked, difference):
        differ = False
        for path, text in sorted(wanted_files(state["initramfs"]["tool"], blocked).items()):
            found = state["files"][path]
            if found != text:
                differ = True
                difference.add(
                    path,
                    "absent" if found is None else "present" if text is None else "other content",
                    "absent" if text is None else "present",
                    "nouveau is to be blocked" if blocked else "the block on nouveau is withdrawn",
                    "%s %s" % ("Remove" if text is None else "Write", path),
                )
        return differ

    def _assess_image(self, state, image, blocked, files_differ, difference):
        path = image["path"]
        if image["size"] is None:
            if blocked:
                difference.add(
                    path, "absent", "present", "kernel %s has no image" % image["release"], "Build %s" % path
                )
            return
        if image["holds"] is None:
            difference.add_unknown(path, "what it holds is not known: %s" % image["error"])
            return
        if blocked:
            found = loads(image, None if files_differ else state["blacklist_written_ns"])
            before, after = "loads " + ", ".join(found), "does not load it"
            why = "it holds %s without the present blacklist" % ", ".join(found)
        else:
            # dracut leaves the drivers out of the image, so there is nothing in it to see: its own file tells.
            found = MODPROBE_NAME in image["holds"]["configuration"] or state["files"][DRACUT_FILE] is not None
            before, after, why = "blocks nouveau", "as without this role", "it carries the block that is withdrawn"
        if found:
            difference.add(path, before, after, why, "Rebuild %s for kernel %s" % (path, image["release"]))

    def _tokens(self, state, desired):
        wanted = desired["state"] == "present" and desired["kernel_command_line"]
        return TOKENS[state["initramfs"]["tool"]] if wanted else ()

    def _assess_command_line(self, state, desired, difference):
        boot, tokens = state["boot"], self._tokens(state, desired)
        drop_in = boot["drop_in"] != (_boot_loader.drop_in_text(tokens) if tokens else None) and boot["kind"] == "grub"
        lacking = _boot_loader.missing(boot, tokens)
        unwanted = [] if tokens else _boot_loader.present(boot, TOKENS["dracut"])
        if not (drop_in or lacking or unwanted):
            return
        difference.add(
            "kernel command line",
            "lacks " + " ".join(lacking)
            if lacking
            else "holds " + " ".join(unwanted)
            if unwanted
            else "made by other settings",
            "holds " + " ".join(tokens) if tokens else "without our tokens",
            "nouveau_kernel_command_line is %s" % ("true" if tokens else "false, or the block is withdrawn"),
            "%s the boot entries' block on nouveau" % ("Write" if tokens else "Remove"),
        )

    def prove(self, host, desired):
        """Look into every initial RAM disk anew."""
        if desired["state"] != "present":
            return []
        stat = host.stat(MODPROBE_FILE)
        written_ns = None if stat is None else stat.st_mtime_ns
        images = _initramfs.look_again(host)["images"]
        bad, unread = [], []
        for image in images:
            problem = _problem(image, True, written_ns)
            if problem:
                hidden = image["size"] is not None and image["holds"] is None
                (unread if hidden else bad).append("%s: %s" % (image["path"], problem))
        if bad:
            return [_verify.check("initramfs", "fail", "; ".join(bad + unread), "Run the nouveau role.")]
        if unread or not images:
            evidence = "; ".join(unread) or "no initial RAM disk was found in " + ", ".join(_initramfs.FOLDERS)
            remedy = "Make the images readable (become: true) with the distribution's tool installed."
            return [_verify.check("initramfs", "not_measured", evidence, remedy)]
        evidence = "none loads %s: %s" % (" or ".join(MODULES), ", ".join(image["path"] for image in images))
        return [_verify.check("initramfs", "pass", evidence)]

    def apply(self, host, desired, state, difference):
        """Files, then images, then boot entries: one step, on an error all of it is put back."""
        blocked = desired["state"] == "present"
        if state["initramfs"]["left_over"]:
            _initramfs.clear(host, state["initramfs"]["tool"], state["initramfs"]["left_over"])
            state = self.read(host, desired)
            difference = self.assess(state, desired)
        initramfs = state["initramfs"]
        due = {item["what"] for item in difference.items}
        images = [image for image in initramfs["images"] if image["path"] in due]
        _initramfs.check_space(host, images, initramfs["images"])
        try:
            for path, text in wanted_files(initramfs["tool"], blocked).items():
                if path in due:
                    _put(host, path, text)
            stat = host.stat(MODPROBE_FILE)
            written_ns = None if stat is None else stat.st_mtime_ns
            with _initramfs.rebuilt(
                host, initramfs["tool"], images, lambda image: _problem(image, blocked, written_ns)
            ):
                if "kernel command line" in due:
                    tokens = self._tokens(state, desired)
                    unwanted = [] if tokens else _boot_loader.present(state["boot"], TOKENS["dracut"])
                    _boot_loader.apply(host, self.name, state["boot"], tokens, unwanted)
        except BaseException:
            for path, text in state["files"].items():
                if path in due:
                    _put(host, path, text)
            raise
        _initramfs.remember(host, initramfs["images"])
        if blocked:
            self._unload(host, state)
        self._reload_crash_kernel(host, images)

    def _reload_crash_kernel(self, host, images):
        """The crash kernel's image is in memory already: load the new one, where the service runs (A5)."""
        if any(image["kind"] == "kdump" for image in images):
            for unit in ("kdump.service", "kdump-tools.service"):
                if host.exists("/usr/lib/systemd/system/" + unit) or host.exists("/lib/systemd/system/" + unit):
                    result = host.run(["systemctl", "try-restart", unit], timeout=300, changes=True)
                    if not result.ok:
                        raise ConcernError(
                            "nouveau: all images are rebuilt, but the crash kernel was not loaded anew: %s. Until "
                            "'systemctl restart %s' succeeds or the host reboots, a crash may not be dumped."
                            % (result.summary(), unit)
                        )

    def _unload(self, host, state):
        """Unload what nothing uses. A refusal is no error: the reboot that is pending anyway completes it (A14)."""
        for module, loaded in state["loaded"].items():
            if loaded and state["references"].get(module) == 0:
                host.run(["modprobe", "-r", module], timeout=60, changes=True)


def _put(host, path, text):
    if text is None:
        host.remove(path)
    else:
        host.write(path, text)


def _problem(image, blocked, written_ns):
    """Why a rebuilt image is not what was wanted; an empty string when it is."""
    if image["size"] is None:
        return "it is missing"
    if image["holds"] is None:
        return "it cannot be read (%s)" % image["error"]
    if blocked and loads(image, written_ns):
        return "it still loads %s" % ", ".join(loads(image, written_ns))
    if not blocked and MODPROBE_NAME in image["holds"]["configuration"]:
        return "it still carries %s" % MODPROBE_NAME
    return ""


def withdraw(host):
    """Take every block of ours back, so that nouveau drives the GPUs again: for a driver that could not be built.

    :returns: list of actions that were done, [] when there was nothing to withdraw.
    :raises ConcernError: when an image cannot be rebuilt without the block.
    """
    concern = Nouveau()
    desired = validated(concern, {"state": "absent"})
    state, difference = concern.inspect(host, desired)
    if difference.changed:
        concern.apply(host, desired, state, difference)
    if difference.actions and difference.unknown:
        raise ConcernError(
            "these may still carry it: %s. Rebuild them by hand"
            % "; ".join("%(what)s (%(why)s)" % entry for entry in difference.unknown)
        )
    return difference.actions
