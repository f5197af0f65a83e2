# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All facts of a GPU host, by subset: the body of gpu_facts."""

from ansible_collections.gpufleet.metal.plugins.module_utils import (
    _driver_facts,
    _kernel,
    _nvml,
    _pci,
    _services,
)

#: Read from files, whatever is asked for (unless ``!min``).
MINIMAL = ("kernel", "pci", "nouveau", "driver")
SUBSETS = MINIMAL + ("nvml", "topology", "mig", "services", "processes")
CHOICES = ("all", "min") + SUBSETS


def chosen(gather_subset):
    """The subsets that a ``gather_subset`` list means, by the rules of the setup module.

    ``all`` is meant when nothing is named; the minimal ones are always in, unless ``!min``; ``!x`` takes one out.
    """
    wanted = {name for name in gather_subset if not name.startswith("!")}
    unwanted = {name[1:] for name in gather_subset if name.startswith("!")}
    if "all" in wanted or (not wanted and "all" not in unwanted):
        wanted = set(SUBSETS)
    if "min" not in unwanted:
        wanted.update(MINIMAL)
    return [name for name in SUBSETS if name in wanted and name not in unwanted]


def gather(host, subsets, binding, timeout, library):
    """The facts: a dict with one key a subset, ``subsets``, ``errors`` and ``unreadable``.

    What could not be had is null; ``errors`` says what went wrong on the way.
    """
    facts = {"subsets": subsets, "errors": []}
    if "kernel" in subsets:
        facts["kernel"] = _kernel.read(host)
    if "pci" in subsets:
        facts["pci"] = dict(
            _pci.read(host),
            gpus=[dict(gpu, acs=_pci.access_control(host, gpu["address"])) for gpu in _pci.read(host)["gpus"]],
        )
    driver = _driver_facts.read(host) if "driver" in subsets or "nouveau" in subsets else {}
    if "nouveau" in subsets:
        bound = [gpu["address"] for gpu in _pci.read(host)["gpus"] if gpu["driver"] == "nouveau"]
        facts["nouveau"] = dict(driver["nouveau"], gpus=bound)
    if "driver" in subsets:
        facts["driver"] = {key: value for key, value in driver.items() if key != "nouveau"}
    asked = [name for name in subsets if name in _nvml.SUBSETS]
    if asked:
        _add_nvml(facts, host, _nvml.read(host, binding, timeout, asked, library))
    if "services" in subsets:
        facts["services"] = _services.read(host)
    if "processes" in subsets:
        facts["holders"] = _services.holders(host)
    facts["unreadable"] = dict(host.unreadable)
    return facts


def _add_nvml(facts, host, found):
    """Put NVML's answer in place, joined with what the host's files know of the same GPUs and processes."""
    facts["errors"] += found.pop("errors")
    if "topology" in facts["subsets"]:
        facts["topology"] = found["topology"]
    del found["topology"]
    for gpu in found["gpus"]:
        for entry in gpu.get("processes") or []:
            known = _services.process(host, entry["pid"])
            entry.update({key: known[key] for key in ("name", "unit", "container")})
    answering = {gpu["pci"]["address"] for gpu in found["gpus"] if gpu["state"] == "ok"}
    found["missing"] = [
        gpu["address"]
        for gpu in _pci.read(host)["gpus"]
        if gpu["address"] not in answering and gpu["driver"] != _pci.PASSTHROUGH_DRIVER
    ]
    facts["nvml"] = found
