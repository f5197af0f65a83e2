# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every concern of a host, inspected in one go: the body of gpu_assess."""

from functools import partial

from ansible_collections.gpufleet.metal.plugins.module_utils import (
    _driver_facts,
    _graph,
    _kernel,
    _nvml,
    _pci,
    _verify,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._auto_updates import AutoUpdates
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import (
    Difference,
    InvalidDesired,
    together,
    validated,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._nouveau import Nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import NvidiaDriver
from ansible_collections.gpufleet.metal.plugins.module_utils._version_lock import VersionLock

#: concern name -> concern; gpu_assess knows a concern when it stands here and in _graph.
CONCERNS = {concern.name: concern for concern in (AutoUpdates(), Nouveau(), NvidiaDriver(), VersionLock())}

#: The options that gpu_assess and gpu_verify share. The binding comes from the action plugin, never from a user.
READING_OPTIONS = {
    "desired": {"type": "dict", "default": {}},
    "verify": {"type": "dict", "default": {}},  # gpu_verify's document: see completed()
    "_nvml_binding": {"type": "dict", "no_log": True},
}


def validate(documents):
    """Validate every desired document, so that all mistakes are told at once and before any host is touched.

    :param documents: dict of concern name -> desired document.
    :returns: dict of concern name -> complete desired document, in the order of site.yml.
    :raises InvalidDesired: with one line a mistake, each naming its public variable.
    """
    unknown = [name for name in documents if name not in CONCERNS]
    ordered = [name for name in _graph.ORDER if name in documents]
    answers = together(
        *[partial(_refuse, name) for name in unknown],
        *[partial(validated, CONCERNS[name], documents[name]) for name in ordered],
    )
    return dict(zip(ordered, answers))


def _refuse(name):
    raise InvalidDesired("{}: no such concern. Known: {}".format(name, ", ".join(CONCERNS)))


def assess(host, desired, full=False):
    """Inspect every concern that has a desired document.

    :param desired: dict of concern name -> complete desired document, from :func:`validate`.
    :param full: also return each concern's whole state.
    :returns: ``{concerns: {name: Difference.as_dict()}, due: [name], reboot_required: bool, reboot_reasons: [str]}``.
    """
    answer = {}
    for name, document in desired.items():
        if not CONCERNS[name].managed(document):
            answer[name] = dict(Difference().as_dict(), status="unmanaged")
            continue
        state, difference = CONCERNS[name].inspect(host, document)
        answer[name] = difference.as_dict()
        if full:
            answer[name]["state"] = state
    pending = [entry["why"] for name in answer for entry in answer[name]["pending"]]
    return {
        "concerns": answer,
        "due": _graph.due({name: entry["status"] for name, entry in answer.items()}),
        "reboot_required": bool(pending),
        "reboot_reasons": pending,
    }


def summary(host, nvml):
    """The machine in a few words: GPU models and their counts, running kernel, loaded driver.

    :param nvml: what :func:`_nvml.presence` found. A model has NVML's name; a GPU that does not answer has that of an
        equal card, else the PCI table's.
    """
    gpus = _pci.read(host)["gpus"]
    answers = {gpu["address"]: gpu["name"] for gpu in nvml["gpus"] if gpu["name"]}
    names = {_card(gpu): answers[gpu["address"]] for gpu in gpus if gpu["address"] in answers}
    models = [names.get(_card(gpu)) or gpu["model"] or "NVIDIA device {}".format(gpu["device"]) for gpu in gpus]
    loaded = _driver_facts.read(host)["loaded"]
    return {
        "gpus": [{"model": model, "count": models.count(model)} for model in sorted(set(models))],
        "kernel": _kernel.read(host)["running"],
        "driver": loaded["version"] if loaded else None,
    }


def _card(gpu):
    return gpu["device"], gpu["subsystem"]


def _access_control(host):
    """Bridge address -> enabled Access Control Services, of every bridge above a GPU; slow to read."""
    above = [_pci.access_control(host, gpu["address"]) for gpu in _pci.read(host)["gpus"]]
    return {bridge["address"]: bridge["enabled"] for found in above for bridge in found}


def verify(host, desired, assessment, options, binding):
    """Check the host; with the depth ``standard``, every managed concern's slow proofs too.

    :param desired: dict of concern name -> complete desired document, from :func:`validate`.
    :param assessment: the answer of :func:`assess`.
    :param options: complete dict by :data:`_verify.OPTIONS`.
    :returns: ``{summary: {gpus: [{model, count}], kernel, driver}, checks, failed_checks: [id], failure: str}``; see
        :func:`_verify.checks`.
    """
    nvml = _nvml.presence(host, binding, options["nvml_timeout"])
    thorough = options["depth"] == "standard"
    facts = {
        "pci": _pci.read(host),
        "driver": _driver_facts.read(host),
        "nvml": nvml,
        "access_control": _access_control(host) if thorough and options["access_control"] == "check" else None,
    }
    driver_wanted = desired.get("nvidia_driver", {}).get("state") != "absent"
    checks = _verify.checks(facts, assessment, options, driver_wanted)
    if thorough:
        for name, document in desired.items():
            if CONCERNS[name].managed(document):
                checks += CONCERNS[name].prove(host, document)
    failed = [check for check in checks if check["result"] == "fail"]
    return {
        "summary": summary(host, nvml),
        "checks": checks,
        "failed_checks": [check["id"] for check in failed],
        "failure": "\n".join("{id}: {evidence}. {remedy}".format(**check) for check in failed),
    }
