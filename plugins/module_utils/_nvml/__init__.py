# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver's management library (NVML) says. The only user of the binding ``pynvml`` in the collection.

The calls run in a child process under one deadline, field by field. What a hung, crashed or lost GPU has not answered
is null, and :func:`read` says which GPU, which field and why; everything else is there.
"""

import time

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import collect, links
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml.binding import DEFAULT_LIBRARY, store
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml.child import Child

__all__ = ["DEFAULT_LIBRARY", "presence", "read", "store"]

#: Subsets that :func:`read` knows.
SUBSETS = ("nvml", "topology", "mig", "processes")
#: What to do about the errors with which NVML refuses to start (its own numbers).
_REMEDIES = {
    4: "the device files are not accessible: run as root, or see the permissions of /dev/nvidia*",
    9: "the driver is not loaded",
    12: "install the driver: its library is not there",
    18: "kernel module and library are of different versions: reboot, or reload the module when nothing uses it",
}
_LOST = 15
_HANG = "a driver that hangs needs a reboot, one that is only slow more time (nvml_timeout)"


def presence(host, binding, timeout, library=DEFAULT_LIBRARY):
    """Which GPUs answer: the quickest possible look.

    :returns: ``{reason: str|None, binding_missing: bool, gpus: [{index, address, name, lost}]}``. ``reason`` says why
        NVML could not be asked, ``binding_missing`` that this was for want of our own means; ``lost`` is True for a GPU
        that gave no answer.
    """
    found = read(host, binding, timeout, (), library)
    return {
        "reason": found["reason"],
        # NVML's refusals have a number, a hang or crash of its start stands among the errors
        "binding_missing": bool(found["reason"]) and found["code"] is None and not found["errors"],
        "gpus": [
            {
                "index": gpu["index"],
                "address": gpu["pci"]["address"],
                "name": gpu["name"],
                "lost": gpu["state"] != "ok",
            }
            for gpu in found["gpus"]
        ],
    }


def read(host, binding, timeout, subsets=SUBSETS, library=DEFAULT_LIBRARY):
    """Everything that the chosen subsets ask.

    :param binding: the module option made by :func:`binding.pack`, or None.
    :param timeout: seconds for all calls together.
    :returns: ``{reason, code, binding, system, gpus, topology, errors}``:

        * ``reason`` (str) and ``code`` (NVML's number, or None) say why NVML could not be asked; None when it could;
        * ``binding``: ``store``, ``controller`` or ``host``; ``system``: driver, NVML and CUDA versions;
        * ``gpus``: one dict a GPU in NVML's order, with ``index``, ``state`` (``ok``, ``lost``, ``hung``, ``crashed``
          or ``not_read``), ``unsupported`` (fields that this GPU or driver does not have) and the fields;
        * ``topology``: ``{gpus, ancestor, p2p}``, square matrices in the order of ``gpus`` (addresses), or None;
        * ``errors``: list of ``{gpu, address, field, code, reason}``.
    """
    reading = _Reading(subsets)
    deadline = time.monotonic() + timeout
    while True:
        work = collect.work(host, binding, library, subsets, reading.done)
        # one call may take a third of the time, so that one sick GPU leaves time for the others
        child = Child(work, deadline, timeout / 3.0)
        for event in child:
            reading.take(event)
        if child.fate is None or not reading.give_up(child) or time.monotonic() >= deadline:
            return reading.facts()


class _Reading:
    """Puts the child's events together, over as many children as it takes."""

    def __init__(self, subsets):
        #: What is not to be asked again; see :func:`collect.work`.
        self.done = set()
        self._subsets = subsets
        self._names = collect.names(subsets)
        self._gpus = {}
        self._rows = {}
        self._errors = []
        self._answer = {
            "reason": None,
            "code": None,
            "binding": None,
            "system": {name: None for name, _read in collect.SYSTEM_FIELDS},
        }

    def take(self, event):
        kind, values = event[0], event[1:]
        getattr(self, "_take_" + kind)(*values)

    def _take_unavailable(self, code, reason):
        self._answer["code"] = code
        remedy = _REMEDIES.get(code)
        self._answer["reason"] = f"{reason} ({remedy})" if remedy else reason

    def _take_binding(self, origin):
        self._answer["binding"] = origin

    def _take_count(self, count):
        for index in range(count):
            gpu = {"index": index, "state": "not_read", "unsupported": []}
            for name in self._names:
                _put(gpu, name, None)
            self._gpus[index] = gpu

    def _take_done(self, what):
        self.done.add(what)
        if what in self._gpus and self._gpus[what]["state"] == "not_read":
            self._gpus[what]["state"] = "ok"

    def _take_value(self, index, name, value):
        if index is None:
            self._answer["system"][name] = value
        elif name == "topology":
            self._rows[index] = dict(value)
            self.done.add(("row", index))
        elif name == "nvlink.link_count":
            self._gpus[index]["nvlink"]["links"] = [links.empty(link) for link in range(value)]
        elif name != "handle":
            _put(self._gpus[index], name, value)

    def _take_unsupported(self, index, name):
        if index is not None and name not in ("handle", "topology"):
            self._gpus[index]["unsupported"].append("nvlink.links" if name == "nvlink.link_count" else name)

    def _take_error(self, index, name, code, reason):
        self._fail(index, name, code, reason)
        if index is not None and (code == _LOST or name == "handle"):
            self._gpus[index]["state"] = "lost"

    def _fail(self, index, name, code, reason):
        address = self._gpus[index]["pci"]["address"] if index in self._gpus else None
        self._errors.append({"gpu": index, "address": address, "field": name, "code": code, "reason": reason})

    def give_up(self, child):
        """Note what ended a child early, and skip it from now on. False when there is nothing left to ask."""
        index, name = child.call.gpu, child.call.field
        if index is None:
            self._fail(None, name, None, child.fate)
            if name == "init":
                self._answer["reason"] = self._answer["reason"] or f"NVML did not start: {child.fate}; {_HANG}"
                return False
            self.done.add("system")
            return True
        self._fail(index, name, None, child.fate)
        self._gpus[index]["state"] = "hung" if child.hung else "crashed"
        self.done.update((index, ("gave up", index), ("row", index)))
        return True

    def facts(self):
        for index, gpu in self._gpus.items():
            if gpu["state"] == "not_read":
                self._fail(index, None, None, "not asked: the time was up before its turn")
        return dict(
            self._answer,
            gpus=[self._gpus[index] for index in sorted(self._gpus)],
            topology=self._topology() if "topology" in self._subsets and self._gpus else None,
            errors=self._errors,
        )

    def _topology(self):
        order = sorted(self._gpus)
        matrices = {
            name: [[self._relation(one, other, name) for other in order] for one in order] for name in links.RELATIONS
        }
        return {
            "gpus": [self._gpus[index]["pci"]["address"] for index in order],
            "ancestor": matrices.pop("ancestor"),
            "p2p": matrices,
        }

    def _relation(self, one, other, name):
        first, second = min(one, other), max(one, other)
        return self._rows.get(first, {}).get(second, {}).get(name)


def _put(tree, name, value):
    """Set ``a.b.c`` in a tree of dicts; a number in the name is the index of a list that is there.

    A dict's own keys may be dotted names, and are set beside what is there.
    """
    if isinstance(value, dict) and not name.startswith("nvlink.links."):
        for key, part in value.items():
            _put(tree, f"{name}.{key}", part)
        return
    *parents, last = name.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
    if isinstance(tree, list):
        tree[int(last)] = value
    else:
        tree[last] = value
