# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of gpu_facts with ``nvidia-smi -q -x``: which fact is which element, and how closely they must agree."""

import re
import xml.etree.ElementTree as ElementTree

#: fact -> element below <gpu>. These never change while nobody changes settings, so they must be equal.
#: (module_id is not here: nvidia-smi prints the platform's number, which on an H200 is one more.)
STATIC = {
    "name": "product_name",
    "architecture": "product_architecture",
    "brand": "product_brand",
    "uuid": "uuid",
    "serial": "serial",
    "minor": "minor_number",
    "board.id": "board_id",
    "board.part_number": "board_part_number",
    "versions.vbios": "vbios_version",
    "versions.gsp_firmware": "gsp_firmware_version",
    "versions.inforom.image": "inforom_version/img_version",
    "versions.inforom.oem": "inforom_version/oem_object",
    "versions.inforom.ecc": "inforom_version/ecc_object",
    "versions.inforom.power": "inforom_version/pwr_object",
    "pci.address": "pci/pci_bus_id",
    "pci.device": "pci/pci_device_id",
    "pci.subsystem": "pci/pci_sub_system_id",
    "pci.link.max_generation": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pci.link.gpu_max_generation": "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    "pci.link.max_width": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "pci.link.width": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "mig.enabled": "mig_mode/current_mig",
    "mig.pending": "mig_mode/pending_mig",
    "ecc.enabled": "ecc_mode/current_ecc",
    "ecc.pending": "ecc_mode/pending_ecc",
    "virtualization_mode": "gpu_virtualization_mode/virtualization_mode",
    "recovery_action": "gpu_recovery_action",
    "memory.total_mib": "fb_memory_usage/total",
    "bar1.total_mib": "bar1_memory_usage/total",
    "power.limit_w": "gpu_power_readings/current_power_limit",
    "power.default_limit_w": "gpu_power_readings/default_power_limit",
    "power.min_limit_w": "gpu_power_readings/min_power_limit",
    "power.max_limit_w": "gpu_power_readings/max_power_limit",
    "clocks.max.graphics_mhz": "max_clocks/graphics_clock",
    "clocks.max.sm_mhz": "max_clocks/sm_clock",
    "clocks.max.memory_mhz": "max_clocks/mem_clock",
    "clocks.max.video_mhz": "max_clocks/video_clock",
    "clocks.max_customer_boost_mhz": "max_customer_boost_clocks/graphics_clock",
    "remapped_rows.corrected": "remapped_rows/remapped_row_corr",
    "remapped_rows.uncorrected": "remapped_rows/remapped_row_unc",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending",
    "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "remapped_rows.banks.max": "remapped_rows/row_remapper_histogram/row_remapper_histogram_max",
    "remapped_rows.banks.high": "remapped_rows/row_remapper_histogram/row_remapper_histogram_high",
    "remapped_rows.banks.partial": "remapped_rows/row_remapper_histogram/row_remapper_histogram_partial",
    "remapped_rows.banks.low": "remapped_rows/row_remapper_histogram/row_remapper_histogram_low",
    "remapped_rows.banks.none": "remapped_rows/row_remapper_histogram/row_remapper_histogram_none",
    "repair.channel_pending": "ecc_errors/channel_repair_pending",
    "repair.tpc_pending": "ecc_errors/tpc_repair_pending",
    "retired_pages.pending": "retired_pages/pending_retirement",
    "ecc.volatile.dram_uncorrected": "ecc_errors/volatile/dram_uncorrectable",
    "ecc.aggregate.dram_corrected": "ecc_errors/aggregate/dram_correctable",
    "ecc.aggregate.dram_uncorrected": "ecc_errors/aggregate/dram_uncorrectable",
    "ecc.aggregate.sram_corrected": "ecc_errors/aggregate/sram_correctable",
    "ecc.aggregate.sram_uncorrected_parity": "ecc_errors/aggregate/sram_uncorrectable_parity",
    "ecc.aggregate.sram_uncorrected_secded": "ecc_errors/aggregate/sram_uncorrectable_secded",
    "ecc.aggregate.sram_threshold_exceeded": "ecc_errors/aggregate/sram_threshold_exceeded",
}

#: fact -> (element, how far the fact may lie outside what nvidia-smi read before and after it). An idle GPU wakes up
#: when it is asked: clocks and power may be anywhere between idle and their limit, so their width is that range.
DYNAMIC = {
    "temperature.gpu_c": ("temperature/gpu_temp", 10),
    "temperature.memory_c": ("temperature/memory_temp", 10),
    "temperature.margin_c": ("temperature/gpu_temp_tlimit", 10),
    "power.average_w": ("gpu_power_readings/average_power_draw", 200),
    "power.instant_w": ("gpu_power_readings/instant_power_draw", 200),
    "power.memory_average_w": ("gpu_memory_power_readings/average_power_draw", 60),
    "clocks.current.sm_mhz": ("clocks/sm_clock", 2000),
    "clocks.current.memory_mhz": ("clocks/mem_clock", 1100),
    "memory.used_mib": ("fb_memory_usage/used", 64),
    "memory.reserved_mib": ("fb_memory_usage/reserved", 64),
    "bar1.used_mib": ("bar1_memory_usage/used", 16),
    "pci.link.generation": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen", 4),
    "pci.replay_count": ("pci/replay_counter", 4),
    "utilization.gpu_percent": ("utilization/gpu_util", 100),
    "performance_state": ("performance_state", 8),
}

_NOTHING = ("N/A", "Unknown Error", "Requested functionality has been deprecated", "")
_WORDS = {"Yes": True, "No": False, "Enabled": True, "Disabled": False}
_PART = re.compile(r"[A-Za-z0-9.\-]+")


def parse(text):
    """nvidia-smi's XML as a list of <gpu> elements."""
    return ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text)).findall("gpu")


def element(gpu, path):
    """An element's text, or None when it is not there or says that there is nothing."""
    text = (gpu.findtext(path) or "").strip()
    return None if text in _NOTHING else text


def fact(gpu, name):
    for part in name.split("."):
        gpu = gpu[part]
    return gpu


def same(name, value, text):
    """Does a fact say what an element says?"""
    if value is None or text is None:
        return value is None and text is None
    if isinstance(value, bool):
        return _WORDS.get(text) is value
    if isinstance(value, int | float):
        number = int(text, 16) if text.startswith("0x") else float(re.sub(r"[^\d.\-].*$", "", text))
        return abs(number - value) < 0.01
    if name == "pci.address":
        return text.lower().endswith(value)
    if name == "pci.device":
        return f"{value}10de"[2:] == text.lower()
    if name == "pci.subsystem":
        vendor, device = value.split(":")
        return (device[2:] + vendor[2:]) == text.lower()
    if name in ("architecture", "brand", "compute_mode", "virtualization_mode", "recovery_action"):
        return re.sub(r"[^a-z]", "", text.lower()) == value.replace("_", "")
    return value == text


def static_differences(gpu, element_tree):
    """Every static fact that is not what nvidia-smi says: list of ``(fact, value, text)``."""
    return [
        (name, fact(gpu, name), element(element_tree, path))
        for name, path in STATIC.items()
        if not same(name, fact(gpu, name), element(element_tree, path))
    ]


def number(text):
    """The first number of an element: ``P0`` is 0, ``39 C`` is 39.0."""
    return None if text is None else float(re.search(r"-?\d+(\.\d+)?", text).group(0))


def dynamic_differences(gpu, before, after):
    """Every dynamic fact outside its tolerance: list of ``(fact, value, before, after)``."""
    found = []
    for name, (path, tolerance) in DYNAMIC.items():
        value, readings = fact(gpu, name), [number(element(tree, path)) for tree in (before, after)]
        known = [reading for reading in readings if reading is not None]
        if value is None and not known:
            continue
        if value is None or not known or not min(known) - tolerance <= value <= max(known) + tolerance:
            found.append((name, value, *readings))
    return found
