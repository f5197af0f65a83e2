# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initial RAM disks of a host: which exist, what they hold, and how one is rebuilt and proven.

What a kernel loads before the root file system is mounted is decided by the image, not by the files in ``/etc``; so the
image is looked into. That is slow (seconds), and the answer depends on nothing but the image. It is therefore kept in
:data:`RECORD`, keyed by the image's identity; only code that changes the host writes the record (:func:`remember`).
"""

import contextlib
import json
import os
import re

from ansible_collections.gpufleet.metal.plugins.module_utils import _kernel
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

#: image path -> {key, modules, configuration}: what images were found to hold.
RECORD = "/var/lib/gpufleet/initramfs.json"
#: The kernel modules whose presence in an image matters to this collection, in kernel spelling.
WATCHED_MODULES = ("nouveau", "nova_core", "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
#: Seconds. Building a full image takes minutes on a busy or emulated machine.
BUILD_TIMEOUT = 1800
LIST_TIMEOUT = 300
#: Bytes that must stay free beside the new images.
SPACE_MARGIN = 32 * 1024 * 1024
#: Bytes assumed for an image that does not exist yet and has no sibling to compare with.
UNKNOWN_SIZE = 100 * 1024 * 1024
#: The tools assemble an image uncompressed here, at about this multiple of its final size.
BUILD_FOLDER = "/var/tmp"
BUILD_FACTOR = 4
#: Where images stand, the crash kernel's too.
FOLDERS = ("/boot", "/var/lib/kdump")
PREVIOUS_SUFFIX = ".gpufleet-previous"
NEW_SUFFIX = ".gpufleet-new"

_LISTERS = {"initramfs-tools": "lsinitramfs", "dracut": "lsinitrd"}
_MODULE = re.compile(r"/lib/modules/.*/([A-Za-z0-9_-]+)\.ko(?:\.(?:xz|zst|gz))?$")
_CONFIGURATION = re.compile(r"(?:^|/)etc/modprobe\.d/([^/]+\.conf)$")


def parse_listing(text):
    """What lsinitramfs or lsinitrd printed, reduced to what matters.

    :returns: ``{modules: [names of WATCHED_MODULES], configuration: [file names in etc/modprobe.d]}``, sorted.
    """
    modules, configuration = set(), set()
    for line in text.splitlines():
        words = line.split(" -> ")[0].split()  # lsinitrd prints like 'ls -l', lsinitramfs only the path
        if not words:
            continue
        module, conf = _MODULE.search("/" + words[-1]), _CONFIGURATION.search(words[-1])
        if module and module.group(1).replace("-", "_") in WATCHED_MODULES:
            modules.add(module.group(1).replace("-", "_"))
        if conf:
            configuration.add(conf.group(1))
    return {"modules": sorted(modules), "configuration": sorted(configuration)}


def _identity(stat):
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _record(host):
    try:
        record = json.loads(host.read_text(RECORD) or "{}")
    except ValueError:
        return {}  # a damaged record costs a slow look, never a wrong answer
    return record if isinstance(record, dict) else {}


def _list(host, tool, path):
    result = host.run([_LISTERS[tool], path], timeout=LIST_TIMEOUT)
    if not result.ok or not result.out.strip():
        return None, result.summary()
    return parse_listing(result.out), None


def _candidates(host, facts):
    """The images that may be started: one per installed kernel, and the crash kernel's own (A5, A7)."""
    for kernel in facts["installed"]:
        release = kernel["release"]
        path = kernel["initramfs"]
        if path is None and facts["initramfs_tool"] == "initramfs-tools" and host.exists("/boot/vmlinuz-" + release):
            path = "/boot/initrd.img-" + release  # this tool gives every kernel in /boot an image: this one got lost
        if path is not None:
            yield {"release": release, "path": path, "kind": "boot"}
        for crash_path in ("/boot/initramfs-%skdump.img" % release, "/var/lib/kdump/initrd.img-%s" % release):
            if host.exists(crash_path):
                yield {"release": release, "path": crash_path, "kind": "kdump"}


def read(host):
    """Every initial RAM disk and what it holds.

    :returns: ``{tool: initramfs-tools|dracut|None, images: [{release, path, kind: boot|kdump, size (bytes) | None,
        mtime_ns | None, holds: {modules, configuration} | None, error: str | None}], left_over: [paths]}``.
        ``size`` None: the image is missing; ``holds`` None with ``error``: it could not be looked into; ``left_over``:
        what an interrupted run left beside the images.
    """
    return host.once("initramfs", lambda: _read(host, _record(host)))


def look_again(host):
    """As :func:`read`, but every image is looked into now, whatever was recorded of it. Takes seconds an image."""
    return _read(host, {})


def _read(host, record):
    facts = _kernel.read(host)
    tool = facts["initramfs_tool"]
    images = [_look(host, tool, image, record) for image in _candidates(host, facts)]
    left_over = [path for folder in FOLDERS for path in host.glob(folder + "/*.gpufleet-*")]
    return {"tool": tool, "images": images, "left_over": left_over}


def _look(host, tool, image, record):
    """``image`` ({release, path, kind}) with what its file is and holds."""
    image = dict(image, size=None, mtime_ns=None, holds=None, error=None)
    stat = host.stat(image["path"])
    if stat is None:
        return image
    image.update(size=stat.st_size, mtime_ns=stat.st_mtime_ns)
    known = record.get(image["path"], {})
    if known.get("key") == _identity(stat):
        image["holds"] = {key: known[key] for key in ("modules", "configuration")}
    elif tool is None:
        image["error"] = "neither initramfs-tools nor dracut is installed"
    else:
        image["holds"], image["error"] = _list(host, tool, image["path"])
    return image


def remember(host, images):
    """Record what images (from :func:`read`) hold. Only for code that changes the host: a plan leaves no trace.

    An image that has changed since it was looked into is left out, one that is gone is dropped.
    """
    record = {path: entry for path, entry in _record(host).items() if host.exists(path)}
    for image in images:
        stat = host.stat(image["path"])
        if (
            stat is not None
            and image["holds"]
            and (stat.st_size, stat.st_mtime_ns) == (image["size"], image["mtime_ns"])
        ):
            record[image["path"]] = dict(image["holds"], key=_identity(stat))
    if record != _record(host):
        host.write(RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")


def space_needed(images, known):
    """Bytes that rebuilding ``images`` needs, per folder: each new image stands beside its predecessor (A9).

    :param known: all images, from which the size of a missing one is estimated.
    :returns: dict of folder -> bytes.
    """
    largest = max([image["size"] or 0 for image in known] or [0]) or UNKNOWN_SIZE
    needed = {}
    for image in images:
        folder = os.path.dirname(image["path"])
        copies = 2 if image["kind"] == "kdump" else 1
        needed[folder] = needed.get(folder, SPACE_MARGIN) + copies * (image["size"] or largest) * 11 // 10
    if images:
        needed[BUILD_FOLDER] = SPACE_MARGIN + BUILD_FACTOR * max(image["size"] or largest for image in images)
    return needed


def check_space(host, images, known):
    """Refuse to start a rebuild that cannot end.

    :raises ConcernError: naming the folder, what is free and what is needed.
    """
    for folder, needed in sorted(space_needed(images, known).items()):
        free = host.free_bytes(folder)
        if free is not None and free < needed:
            raise ConcernError(
                "%s has %d MiB free, rebuilding %d initial RAM disk(s) needs %d MiB. No image was changed. "
                "Free space there (remove kernels that are no longer used), then run again."
                % (folder, free >> 20, len(images), needed >> 20)
            )


def _must(host, argv, timeout=BUILD_TIMEOUT):
    result = host.run(argv, timeout=timeout, changes=True, keeps_lock=True)
    if not result.ok:
        raise ConcernError("%s. Correct what the tool complains about, then run again." % result.summary())


def _build(host, tool, image):
    release, path = image["release"], image["path"]
    if image["kind"] == "kdump" and path.startswith("/boot/"):
        _must(host, ["kdumpctl", "rebuild"])
    elif image["kind"] == "kdump":
        _must(host, ["/etc/kernel/postinst.d/kdump-tools", release])
    elif tool == "dracut":
        # dracut copies onto its output: built beside it and moved, so that no half image ever stands in its place.
        _must(host, ["dracut", "--force", path + NEW_SUFFIX, release])
        _must(host, ["mv", "-f", path + NEW_SUFFIX, path])
    else:
        _must(host, ["update-initramfs", "-c" if image["size"] is None else "-u", "-k", release])


@contextlib.contextmanager
def rebuilt(host, tool, images, proven):
    """Rebuild ``images`` and prove each; the body of the ``with`` then makes what else belongs to the same step.

    Until the body has ended without an error, every previous image is kept beside its successor; on an error all are
    put back, so that the host boots as before.

    :param images: some of ``read()["images"]``.
    :param proven: ``proven(image) -> str``: why a rebuilt image is not good, or an empty string.
    :raises ConcernError: when the tool fails or its result is not proven.
    """
    kept, results = [], []
    try:
        for image in images:
            if image["size"] is not None:
                _keep(host, image)
            kept.append(image)
            _build(host, tool, image)
            results.append(_look(host, tool, {key: image[key] for key in ("release", "path", "kind")}, {}))
            problem = proven(results[-1])
            if problem:
                raise ConcernError(
                    "%s was rebuilt for kernel %s, but %s. Check that %s is allowed to write it "
                    "(update_initramfs=no in /etc/initramfs-tools/update-initramfs.conf, /boot mounted read-only)."
                    % (image["path"], image["release"], problem, tool)
                )
        yield
    except BaseException as error:
        failed = [text for text in (_put_back(host, image["path"]) for image in kept) if text]
        if failed:
            raise ConcernError(
                "%s\nThe previous initial RAM disks could NOT be put back: %s. Do not reboot; rename each file that "
                "ends in %s to its name without it." % (error, "; ".join(failed), PREVIOUS_SUFFIX)
            ) from error
        raise
    for image in kept:
        host.remove(image["path"] + PREVIOUS_SUFFIX)
    remember(host, results)


def clear(host, tool, left_over):
    """Remove what an interrupted run left; an image that is gone or cannot be looked into comes back first."""
    for path in left_over:
        image = path[: -len(PREVIOUS_SUFFIX)]
        if path.endswith(PREVIOUS_SUFFIX) and (not host.exists(image) or (tool and _list(host, tool, image)[1])):
            _must(host, ["mv", "-f", path, image])
        host.remove(path)


def _keep(host, image):
    """A second name for the present image. A hard link costs no space, but does not hold where the tool writes into the
    file (the crash kernel's) nor on a file system without links (VFAT): those get a copy."""
    path, kept = image["path"], image["path"] + PREVIOUS_SUFFIX
    if image["kind"] == "kdump" or not host.run(["ln", "-f", path, kept], changes=True).ok:
        try:
            _must(host, ["cp", "-a", path, path + NEW_SUFFIX])  # half a copy never bears the name of a whole one
            _must(host, ["mv", "-f", path + NEW_SUFFIX, kept])
        except ConcernError:
            host.remove(path + NEW_SUFFIX)
            raise


def _put_back(host, path):
    """The kept image under its own name again; why that did not work, or None."""
    host.remove(path + NEW_SUFFIX)
    kept, present = host.stat(path + PREVIOUS_SUFFIX), host.stat(path)
    if kept is None:
        return None
    if present is not None and present.st_ino == kept.st_ino:
        host.remove(path + PREVIOUS_SUFFIX)  # two names of one file: renaming one onto the other does nothing
        return None
    result = host.run(["mv", "-f", path + PREVIOUS_SUFFIX, path], changes=True)
    return None if result.ok else result.summary()
