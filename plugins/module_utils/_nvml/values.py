# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML's numbers as words, and its texts without "N/A"."""

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
BRANDS = {
    1: "quadro",
    2: "tesla",
    3: "nvs",
    4: "grid",
    5: "geforce",
    6: "titan",
    7: "nvidia_vapps",
    8: "nvidia_vpc",
    9: "nvidia_vcs",
    10: "nvidia_vws",
    11: "nvidia_cloud_gaming",
    12: "quadro_rtx",
    13: "nvidia_rtx",
    14: "nvidia",
    15: "geforce_rtx",
    16: "titan_rtx",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
FABRIC_HEALTH = {0: "not_supported", 1: "healthy", 2: "unhealthy", 3: "limited_capacity"}
REMOTE_TYPES = {0: "gpu", 1: "npu", 2: "switch", 255: "unknown"}
ANCESTORS = {0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system"}
P2P_STATUSES = {
    0: "ok",
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "topology_not_supported",
    4: "disabled",
    5: "not_supported",
    6: "unknown",
}
#: Bits of the reasons why clocks are lower than they could be.
CLOCK_REASONS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)
_NOTHING = ("", "N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "Unknown Error", "Not Supported")


def word(table, number):
    """The table's word; a number that the table does not know is ``unknown(<n>)``, never an error."""
    return table.get(number, f"unknown({number})")


def text(value):
    """A str from NVML's str or bytes, or None for its ways of saying that there is nothing."""
    if isinstance(value, bytes):
        value = value.split(b"\0", 1)[0].decode("utf-8", "replace")
    value = value.strip()
    return None if value in _NOTHING else value


def number(value):
    """An int from NVML's int or single char (bytes; str from newer bindings), or None for "not available"."""
    if isinstance(value, (bytes, str)):
        value = ord(value) if value else 0
    return None if value in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else value


def mib(octets):
    octets = number(octets)
    return None if octets is None else octets >> 20


def watts(milliwatts):
    milliwatts = number(milliwatts)
    return None if milliwatts is None else milliwatts / 1000.0


def address(bus_id):
    """A PCI address as sysfs writes it: ``0000:1b:00.0`` from NVML's ``00000000:1B:00.0``."""
    domain, _colon, rest = text(bus_id).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def reasons(bits):
    """Words of a clocks event mask."""
    known = [name for bit, name in CLOCK_REASONS if bits & bit]
    rest = bits & ~sum(bit for bit, _name in CLOCK_REASONS)
    return known + ([f"unknown(0x{rest:x})"] if rest else [])


def ranges(words):
    """Bits set in a list of 64-bit words, as ``[[first, last], ...]``."""
    found = []
    for bit in (64 * index + bit for index, value in enumerate(words) for bit in range(64) if value >> bit & 1):
        if found and found[-1][1] == bit - 1:
            found[-1][1] = bit
        else:
            found.append([bit, bit])
    return found
