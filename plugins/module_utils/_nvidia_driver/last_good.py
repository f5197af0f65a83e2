# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last-good set: which driver stood on the host before the last change, and all that putting it back needs.

A set is ``{version, flavour: open|proprietary|None, runfile: path|None, sha256: hex|None, arguments: [installer
arguments], module_parameters: {name: text}, persistence: bool, members: {name: what that member keeps}}``. It is read
from the host, and its runfile is kept beside that of the present driver, so that the way back needs no network.

:data:`PATH` holds the set that the last change replaced. Going back does not write it: ``state: previous`` names the
same set before and after, and a second run changes nothing.
"""

import json

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import boot, journal, members, runfile

PATH = "/var/lib/gpufleet/driver/last_good.json"
NO_SET = "there is no way back on this host: %s records no set" % PATH
NO_SET_REMEDY = "Name the driver in nvidia_driver_version instead, with nvidia_driver_state present"
NONE = "nvidia_driver_state: %s. It is written by the first change from one working driver to another. %s" % (
    NO_SET,
    NO_SET_REMEDY,
)


def read(host):
    """The set that the last change replaced, or None."""
    try:
        found = json.loads(host.read_text(PATH) or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("version") else None


def describe(host, state):
    """The set that is on the host now, or None when it has no driver.

    :param state: the concern's state.
    """
    library, loaded = state["driver"]["library"], state["driver"]["loaded"]
    if not library:
        return None
    version = library["version"]
    running = loaded["flavour"] if loaded and loaded["version"] == version else None
    on_disk = [state["flavours"][release] for release in sorted(state["flavours"]) if state["flavours"][release]]
    path = "%s/%s" % (runfile.DIRECTORY, runfile.name(version, state["architecture"]))
    sha256 = runfile.sha256(host, path)
    record = state["journal"]
    known = record.get("version") == version and not journal.interrupted(record)
    return {
        "version": version,
        "flavour": on_disk[0] if on_disk else running,
        "runfile": path if sha256 else None,
        "sha256": sha256,
        "arguments": record.get("arguments", []) if known else [],
        "module_parameters": boot.parameters(host),
        "persistence": state["boot"]["enabled"][boot.PERSISTENCED_UNIT],
        "members": {member.name: member.kept(state) for member in members.MEMBERS},
    }


def identity(found):
    """What makes two sets the same driver: its version and the flavour of its modules."""
    return (found["version"], found["flavour"])


def document(found, desired):
    """The desired document that makes this set true; the rest is as in ``desired``."""
    return dict(
        desired,
        state="present",
        version=found["version"],
        runfile_sha256=found["sha256"],
        runfile_checksum=None,
        kernel_module_type=found["flavour"] or "auto",
        installer_arguments=found["arguments"],
        module_parameters=found["module_parameters"],
        persistence=found["persistence"],
        **{name: value for kept in found["members"].values() for name, value in kept.get("options", {}).items()},
    )


def resolve(host, desired):
    """The document to make true: ``desired`` itself, or for ``state: previous`` that of the last-good set.

    :returns: a document; None when there is no set to go back to.
    """
    if desired["state"] != "previous":
        return desired
    found = read(host)
    return document(found, desired) if found else None


def keep(host, found):
    """Record the set that a change has replaced."""
    host.write(PATH, json.dumps(found, indent=2, sort_keys=True) + "\n")


def prune(host, version):
    """Remove runfiles, checksum files and what members keep that neither the present driver nor the way back needs."""
    found = read(host)
    needed = {version} | ({found["version"]} if found else set())
    for path in host.glob(runfile.DIRECTORY + "/*.run") + host.glob(runfile.DIRECTORY + "/*.sha256sum"):
        if runfile.version_of(path) not in needed:
            host.remove(path)
    for member in members.MEMBERS:
        member.prune(host, found["members"].get(member.name) if found else None)
