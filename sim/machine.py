# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine descriptions: from a short YAML file to everything a simulated host needs to know.

``machines/<name>.yml`` says what is special about a machine; ``models.yml`` says what every card of a model has in
common. :func:`load` joins the two, :func:`flatten` renders the result for the C library (one ``key=value`` a line),
:func:`install` puts both under a root directory.

    python -m sim.machine list
    python -m sim.machine show hgx-h100-8
    python -m sim.machine install hgx-h100-8 ROOT
"""

import argparse
import copy
import functools
import hashlib
import json
from pathlib import Path

import jsonschema
import yaml

HERE = Path(__file__).parent
#: Where the description lies on a simulated host, relative to its root.
INSTALL_DIRECTORY = "etc/gpufleet-sim"
NVIDIA_VENDOR = 0x10DE
#: nvmlGpuTopologyLevel_t
TOPOLOGY_NODE, TOPOLOGY_SYSTEM = 40, 50
#: nvmlGpuP2PStatus_t
P2P_OK, P2P_NOT_SUPPORTED = 0, 5
#: nvmlIntNvLinkDeviceType_t
REMOTE_GPU, REMOTE_SWITCH = 0, 2


def names():
    """Sorted names of the machines that ship with the test bed."""
    return sorted(path.stem for path in (HERE / "machines").glob("*.yml"))


def merged(base, override):
    """``override`` laid over ``base``: dicts are merged key by key, anything else is replaced."""
    if not isinstance(base, dict) or not isinstance(override, dict):
        return copy.deepcopy(override)
    result = dict(base)
    for key, value in override.items():
        result[key] = merged(base[key], value) if key in base else copy.deepcopy(value)
    return result


def resolved(entry, lookup):
    """``entry`` laid over what its ``extends`` names, however deep the chain."""
    parent = entry.get("extends")
    own = {key: value for key, value in entry.items() if key != "extends"}
    return merged(resolved(lookup(parent), lookup), own) if parent else own


@functools.cache
def models():
    """The GPU model catalogue: dict of key -> model, with ``extends`` resolved. Not to be changed."""
    catalogue = yaml.safe_load((HERE / "models.yml").read_text())
    return {key: resolved(entry, catalogue.__getitem__) for key, entry in catalogue.items()}


def load(name_or_path):
    """The expanded description of a machine.

    :param name_or_path: the name of a shipped machine, or the path of a description anywhere.
    :returns: dict as described in ``machines/README.md``.
    :raises jsonschema.ValidationError: for a description that does not follow ``machines/schema.json``.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yml", ".yaml", ".json"):
        path = HERE / "machines" / f"{name_or_path}.yml"
    machine = {**resolved(_read(path), lambda parent: _read(path.parent / f"{parent}.yml")), "name": path.stem}
    jsonschema.validate(machine, json.loads((HERE / "machines" / "schema.json").read_text()))
    return expanded(machine)


def _read(path):
    return yaml.safe_load(path.read_text())


def expanded(machine):
    """A validated description with every default filled in."""
    catalogue = models()
    overrides = machine.pop("gpu_overrides", {})
    gpus = [
        _gpu(index, merged(gpu, overrides.get(index, {})), catalogue, machine)
        for index, gpu in enumerate(machine["gpus"])
    ]
    machine.setdefault("dmi", {})
    machine.setdefault("numa_nodes", [{"node": 0, "cpus": "0"}])
    machine.setdefault("nvswitches", [])
    machine.setdefault("faults", [])
    machine.setdefault("nouveau_in_use", True)
    machine.setdefault("driver", {"version": "580.95.05", "flavour": "open"})
    machine["gpus"] = gpus
    _connect(machine)
    known = json.loads((HERE / "mig_profiles.json").read_text())
    used = {gpu["mig_profiles_key"] for gpu in gpus if gpu["mig_profiles_key"]}
    machine["mig_profiles"] = {key: known[key]["profiles"] for key in sorted(used)}
    return machine


def _gpu(index, gpu, catalogue, machine):
    """One GPU: the model, then what the machine says about this card, then what follows from both."""
    model = copy.deepcopy(catalogue[gpu["model"]])
    link = model["link"]
    upstream = {"max_gen": link["max_gen"], "max_width": link["max_width"], **gpu.get("upstream", {})}
    trained = {"gen": min(link["max_gen"], upstream["max_gen"]), "width": min(link["max_width"], upstream["max_width"])}
    digest = hashlib.sha256(f"{machine['name']}/{index}".encode()).hexdigest()
    uuid = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
    result = {
        "subsystem_vendor": "0x10de",
        "class": "0x030200",
        "mig_profiles_key": None,
        "mig_mode_persistent": False,
        "numa_node": -1,
        "iommu_group": None,
        "index": index,
        "minor": index,
        "uuid": f"GPU-{uuid}",
        "serial": str(1650000000000 + int(digest[:8], 16)),
        **{key: value for key, value in model.items() if key not in ("link", "nvlink")},
        **gpu,
        "link": {**link, **trained, **gpu.get("link", {})},
        "upstream": {"pci": None, **upstream},
        "nvml": merged(model["nvml"], gpu.get("nvml", {})),
        "nvlink": [],
    }
    result["nvlink_model"] = model.get("nvlink")
    return result


def _connect(machine):
    """Wire up the NVLinks: to the NVSwitches, in bridged pairs, or all to all."""
    topology = machine.get("nvlink", {"topology": "none"})
    gpus = machine["gpus"]
    for gpu in gpus:
        model = gpu.pop("nvlink_model")
        peers = [] if model is None else _peers(gpu, topology, machine)
        links = model["links"] if peers else 0
        for number in range(links):
            remote_type, remote_pci = peers[number * len(peers) // links]
            gpu["nvlink"].append(
                {
                    "state": 1,
                    "version": model["version"],
                    "speed_mbps": model["speed_mbps"],
                    "remote_type": remote_type,
                    "remote_pci": remote_pci,
                }
            )


def _peers(gpu, topology, machine):
    """What a GPU's links lead to: list of (remote device type, PCI address), links shared out evenly in this order."""
    gpus = machine["gpus"]
    if topology["topology"] == "switch":
        return [(REMOTE_SWITCH, switch["pci"]) for switch in machine["nvswitches"]] or [(REMOTE_SWITCH, None)]
    if topology["topology"] == "mesh":
        return [(REMOTE_GPU, other["pci"]) for other in gpus if other is not gpu]
    pairs = topology.get("pairs", [])
    index = gpu["index"]
    return [(REMOTE_GPU, gpus[sum(pair) - index]["pci"]) for pair in pairs if index in pair]


def _linked(one, other):
    """True when two GPUs reach each other over NVLink, directly or through a switch."""
    remotes = [link["remote_type"] for link in one["nvlink"]]
    if REMOTE_SWITCH in remotes:
        return bool(other["nvlink"])
    return any(link["remote_pci"] == other["pci"] for link in one["nvlink"])


def _lines(prefix, value):
    """Flat (key, text) pairs of a nested value; a list of scalars becomes one blank-separated line."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _lines(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list):
        yield prefix, " ".join(str(item) for item in value)
    elif value is not None:
        yield prefix, str(int(value) if isinstance(value, bool) else value)


def _cpus(gpu, machine):
    """CPU list of the GPU's NUMA node; of the whole machine when the node is not known."""
    nodes = machine["numa_nodes"]
    return ",".join(node["cpus"] for node in nodes if gpu["numa_node"] in (-1, node["node"]))


def _relations(gpu, machine):
    """How a GPU relates to every other one: topology level, and P2P status of read, write, NVLink, atomics, PCIe."""
    relations: dict[str, dict] = {"topology": {}, "p2p": {}}
    for other in machine["gpus"]:
        if other is gpu:
            continue
        same = gpu["numa_node"] == other["numa_node"]
        relations["topology"][other["index"]] = TOPOLOGY_NODE if same else TOPOLOGY_SYSTEM
        linked = P2P_OK if _linked(gpu, other) else P2P_NOT_SUPPORTED
        relations["p2p"][other["index"]] = [P2P_OK, P2P_OK, linked, linked, P2P_OK]
    return relations


def flatten(machine):
    """The description as the C library reads it: sorted ``key=value`` lines.

    A GPU's keys start with ``gpu.<index>.``. A key that is absent means "Not Supported"; a value ``!<code>`` means
    that NVML error.
    """
    lines = {"gpu.count": str(len(machine["gpus"]))}
    lines.update(_lines("driver", {"branch": machine["driver"].get("branch")}))
    for key, profiles in machine["mig_profiles"].items():
        lines[f"mig.{key}.count"] = str(len(profiles))
        for number, profile in enumerate(profiles):
            *columns, starts = profile.values()
            known = [0 if value is None else value for value in columns]
            lines[f"mig.{key}.{number}"] = " ".join(str(value) for value in (*known, *starts))
    for gpu in machine["gpus"]:
        prefix = f"gpu.{gpu['index']}"
        facts = {key: gpu[key] for key in ("name", "uuid", "serial", "pci", "minor", "numa_node")}
        facts["pci_device_id"] = int(gpu["device_id"], 16) << 16 | NVIDIA_VENDOR
        facts["pci_subsystem_id"] = int(gpu["subsystem_device"], 16) << 16 | int(gpu["subsystem_vendor"], 16)
        facts["link"] = gpu["link"]
        facts["upstream"] = {"max_gen": gpu["upstream"]["max_gen"]}
        facts["cpus"] = _cpus(gpu, machine)
        facts["nodes"] = [node["node"] for node in machine["numa_nodes"] if gpu["numa_node"] in (-1, node["node"])]
        facts["mig"] = {"profiles": gpu["mig_profiles_key"], "persistent": gpu["mig_mode_persistent"]}
        facts["fabric"] = merged(gpu.get("fabric", {}), machine.get("fabric", {}))
        facts["nvlink"] = {number: dict(link) for number, link in enumerate(gpu["nvlink"])}
        facts["nvlink"]["count"] = len(gpu["nvlink"]) or None
        facts.update(_relations(gpu, machine))
        lines.update(_lines(prefix, facts))
        lines.update(_lines(prefix, gpu["nvml"]))
    return "".join(f"{key}={value}\n" for key, value in sorted(lines.items()))


def install(name_or_path, root):
    """Put the description of a machine under ``root``; returns the expanded description."""
    machine = load(name_or_path)
    directory = Path(root) / INSTALL_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    (directory / "machine.flat").write_text(flatten(machine))
    return machine


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sim.machine", description="Simulated machine descriptions.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name and summary of every machine")
    show = commands.add_parser("show", help="the expanded description, as JSON")
    show.add_argument("machine")
    place = commands.add_parser("install", help="put a description under a root directory")
    place.add_argument("machine")
    place.add_argument("root")
    options = parser.parse_args(arguments)
    if options.command == "list":
        for name in names():
            print(f"{name:28} {load(name)['summary']}")
    elif options.command == "show":
        print(json.dumps(load(options.machine), indent=1))
    else:
        install(options.machine, options.root)


if __name__ == "__main__":
    main()
