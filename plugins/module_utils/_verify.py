# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is this host what it claims to be? Pure checks over facts; nothing here touches the host.

Each check is ``{id, result, evidence, remedy}``. ``result`` is ``pass``, ``warn``, ``fail`` or ``not_measured``: what
could not be read has not passed. ``evidence`` says what was read and from where.
"""

from ansible_collections.gpufleet.metal.plugins.module_utils import _pci

OPTIONS = {
    "driver_version": {"type": "str", "default": ""},
    "expected_count": {"type": "int"},
    "expected_link_width": {"type": "int"},
    "nvml_timeout": {"type": "int", "default": 60},
    "access_control": {"type": "str", "choices": ["check", "ignore"], "default": "check"},
    "depth": {"type": "str", "choices": ["quick", "standard"], "default": "quick"},
}


def check(name, result, evidence, remedy=""):
    return {"id": name, "result": result, "evidence": evidence, "remedy": "" if result == "pass" else remedy}


def gpu_count(pci, nvml, expected):
    """GPUs on the PCI bus, GPUs that NVML answers for and the inventory's expectation are the same set (K9, K10, P18).

    A GPU bound to vfio-pci is handed to a virtual machine: NVML cannot see it and is not expected to (B15).

    :param nvml: None on a host that is to have no driver.
    """
    on_bus = [gpu["address"] for gpu in pci["gpus"]]
    passed_through = [gpu["address"] for gpu in pci["gpus"] if gpu["driver"] == _pci.PASSTHROUGH_DRIVER]
    evidence = f"{len(on_bus)} on the PCI bus (sysfs)"
    if expected is not None and len(on_bus) != expected:
        return check(
            "gpu_count",
            "fail",
            f"{evidence}, gpu_verify_expected_count is {expected}",
            "A GPU that is absent from PCI is a matter of power, seating or BIOS: check the hardware, "
            "or correct gpu_verify_expected_count.",
        )
    if not on_bus:
        return check(
            "gpu_count",
            "pass" if expected == 0 else "not_measured",
            evidence,
            "Set gpu_verify_expected_count so that a missing GPU is noticed.",
        )
    if len(passed_through) == len(on_bus):
        return check("gpu_count", "pass", f"{evidence}, all handed to virtual machines (vfio-pci)")
    if nvml is None:
        return check("gpu_count", "pass", f"{evidence}, and no driver is wanted for them")
    if nvml["binding_missing"]:
        return check(
            "gpu_count",
            "not_measured",
            f"{evidence}; NVML was not asked: {nvml['reason']}",
            "Install the Python package nvidia-ml-py beside Ansible on the controller.",
        )
    if nvml["reason"]:
        return check(
            "gpu_count",
            "fail",
            f"{evidence}; NVML: {nvml['reason']}",
            "Run the nvidia_driver role, or reboot when one is pending; then verify again.",
        )
    answering = [gpu["address"] for gpu in nvml["gpus"] if not gpu["lost"]]
    missing = [address for address in on_bus if address not in answering and address not in passed_through]
    evidence += f", {len(answering)} answer NVML"
    if missing:
        return check(
            "gpu_count",
            "fail",
            "{}; missing: {}".format(evidence, ", ".join(missing)),
            "See the kernel log for Xid messages of these addresses; a lost GPU needs a reset or a power cycle.",
        )
    return check("gpu_count", "pass", evidence)


def driver_loaded(driver, wanted, gpus):
    """The loaded kernel module, the user-space library and the wanted version are one version (B3, M16).

    A host without GPUs of its own gets no driver (P18, B15): whether it should have some is :func:`gpu_count`'s.
    """
    loaded = driver["loaded"]["version"] if driver["loaded"] else None
    library = driver["library"]["version"] if driver["library"] else None
    evidence = "loaded {} (/proc/driver/nvidia/version), library {}".format(loaded or "none", library or "none")
    if wanted:
        evidence += f", wanted {wanted}"
    if not loaded and all(gpu["driver"] == _pci.PASSTHROUGH_DRIVER for gpu in gpus):
        return check("driver_loaded", "pass", "no GPU for a driver, and no driver")
    if not loaded:
        return check(
            "driver_loaded", "fail", evidence, "Reboot if one is pending; otherwise run the nvidia_driver role."
        )
    if library != loaded:
        return check(
            "driver_loaded",
            "fail",
            evidence,
            "Module and library differ, so every CUDA call fails: reboot, or reload the module when nothing uses it.",
        )
    if wanted and loaded != wanted:
        return check("driver_loaded", "fail", evidence, "Run the nvidia_driver role; a reboot completes the change.")
    return check("driver_loaded", "pass", evidence)


def nouveau_gone(driver, gpus):
    """No GPU is driven by an in-kernel driver (nouveau, nova) and nouveau's module is not loaded."""
    driven = [gpu["address"] for gpu in gpus if (gpu["driver"] or "").lower().startswith(("nouveau", "nova"))]
    if driver["nouveau"]["loaded"] or driven:
        evidence = "/sys/module/nouveau exists" if driver["nouveau"]["loaded"] else "an in-kernel driver is bound"
        if driven:
            evidence += "; it drives " + ", ".join(driven)
        return check(
            "nouveau_gone", "fail", evidence, "Run the nouveau and nvidia_driver roles; the reboot completes them."
        )
    if driver["nouveau"]["loaded"] is None:
        return check(
            "nouveau_gone", "not_measured", "/sys/module shows no module", "Run as root, where sysfs is not masked."
        )
    return check("nouveau_gone", "pass", "nouveau is not loaded (/sys/module)")


def link_width(pci, expected):
    """Every card's PCIe width against the card, its upstream port and the inventory (K1, K3, K4).

    The speed is not judged: it drops at idle.
    """
    failures, warnings, unknown, widths = [], [], [], []
    for gpu in pci["gpus"]:
        link, upstream = gpu["link"], gpu["upstream"] or {}
        width, card, port = link["width"], link["max_width"], upstream.get("max_width")
        if not width or not card:
            unknown.append(gpu["address"])
            continue
        widths.append(width)
        possible = min(card, port or card)
        if width < max(possible, expected or 0):
            failures.append("{} runs x{} of x{}".format(gpu["address"], width, max(possible, expected or 0)))
        elif width < card:
            warnings.append("{}: an x{} card in an x{} slot".format(gpu["address"], card, port))
    if failures:
        return check(
            "pcie_link_width",
            "fail",
            "; ".join(failures + warnings),
            "Reseat the card or riser, check the bifurcation in the BIOS; the width takes effect at a cold boot.",
        )
    if warnings:
        return check(
            "pcie_link_width",
            "warn",
            "; ".join(warnings),
            "Move the card to a wider slot; set gpu_verify_expected_link_width to make this a failure.",
        )
    if unknown or not widths:
        evidence = "no link width in sysfs for {}".format(", ".join(unknown)) if unknown else "no GPU on the PCI bus"
        return check(
            "pcie_link_width",
            "not_measured",
            evidence,
            "The platform hides the PCIe link (a virtual machine does): measure bandwidth instead.",
        )
    return check("pcie_link_width", "pass", f"{len(widths)} card(s), x{min(widths)} (sysfs current_link_width)")


def direct_traffic(pci, access_control):
    """Between two cards, and between a card and memory, nothing is in the way (K6, K7). Virtual machines need both.

    :param access_control: bridge address -> enabled services (see :func:`_pci.access_control`), None to leave it out.
    :returns: list of checks.
    """
    own = [gpu for gpu in pci["gpus"] if gpu["driver"] != _pci.PASSTHROUGH_DRIVER]
    if not own or len(own) < len(pci["gpus"]):
        return []
    found = [iommu(pci["iommu"])]
    if access_control is not None and len(own) > 1:
        found.append(bridges(access_control))
    return found


def iommu(found):
    """Translation costs bandwidth; switching the IOMMU off is no remedy where more than 255 CPUs need it (K7)."""
    if not found["enabled"]:
        return check("iommu", "pass", "no IOMMU is in use (/sys/class/iommu)")
    if found["translation"] is None:
        return check("iommu", "not_measured", "the kernel does not tell the mode of its IOMMU groups", "Run as root.")
    if not found["translation"]:
        return check("iommu", "pass", "the IOMMU passes the GPUs through (/sys/kernel/iommu_groups)")
    return check(
        "iommu",
        "warn",
        "the IOMMU translates the GPUs' addresses (/sys/kernel/iommu_groups)",
        "Add iommu=pt to the kernel command line. Do not switch the IOMMU off: more than 255 logical CPUs need it.",
    )


def bridges(access_control):
    """Bridges that redirect requests send traffic between cards through the processor: slow, or a hang (K6)."""
    hidden, redirecting, suspect = [], [], []
    for address, enabled in sorted(access_control.items()):
        if enabled is None:
            hidden.append(address)
        elif {"ReqRedir", "CmpltRedir"} & set(enabled):
            redirecting.append("{} ({})".format(address, " ".join(enabled)))
        elif "SrcValid" in enabled:
            suspect.append("{} ({})".format(address, " ".join(enabled)))
    remedy = (
        "Switch Access Control Services off in the BIOS, which takes effect at a cold boot; what setpci sets is lost "
        "at every boot. Where the isolation is wanted, set gpu_verify_access_control to ignore."
    )
    if redirecting:
        return check("pcie_access_control", "fail", "redirecting: {}".format(", ".join(redirecting + suspect)), remedy)
    if suspect:
        return check("pcie_access_control", "warn", "source validation: {}".format(", ".join(suspect)), remedy)
    if hidden:
        evidence = "configuration space is not shown for {}".format(", ".join(hidden))
        return check("pcie_access_control", "not_measured", evidence, "Run as root, where sysfs is not masked.")
    return check("pcie_access_control", "pass", f"{len(access_control)} bridge(s) above the GPUs redirect nothing")


def concern_state(name, entry):
    """A concern's assessment as a check: what is locked, switched off or blocked must be so now."""
    if entry["status"] == "clean":
        return check(name, "pass", "the host matches the inventory")
    if entry["status"] == "unmanaged":
        return check(name, "not_measured", f"{name}_state is unmanaged", "Nothing is asked of this concern.")
    if entry["status"] == "unknown":
        evidence = "; ".join("{what}: {why}".format(**unknown) for unknown in entry["unknown"])
        remedy = f"Run as root (become: true); what cannot be told on this system: set {name}_state to unmanaged."
        return check(name, "not_measured", evidence, remedy)
    if entry["status"] == "pending":
        return check(name, "warn", "; ".join(pending["why"] for pending in entry["pending"]), "Reboot the host.")
    evidence = "; ".join("{what}: {why}".format(**item) for item in entry["differences"])
    return check(name, "fail", evidence, f"Run the {name} role.")


def checks(facts, assessment, options, driver_wanted=True):
    """All checks of one host.

    :param facts: ``{pci, driver, nvml, access_control}`` as the readers give them; ``nvml`` as :func:`_nvml.presence`
        does, ``access_control`` as :func:`direct_traffic` takes it.
    :param assessment: the answer of :func:`_assess.assess`.
    :param options: dict by :data:`OPTIONS`.
    :param driver_wanted: False where ``nvidia_driver_state`` is absent: then only that concern speaks of the driver.
    :returns: list of checks.
    """
    found = [gpu_count(facts["pci"], facts["nvml"] if driver_wanted else None, options["expected_count"])]
    if driver_wanted:
        found.append(driver_loaded(facts["driver"], options["driver_version"], facts["pci"]["gpus"]))
        found.append(nouveau_gone(facts["driver"], facts["pci"]["gpus"]))
    found.append(link_width(facts["pci"], options["expected_link_width"]))
    found += direct_traffic(facts["pci"], facts["access_control"])
    return found + [concern_state(name, entry) for name, entry in assessment["concerns"].items()]
