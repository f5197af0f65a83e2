#!/usr/bin/env python3
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpufleet-sim: what happens to a simulated GPU machine from outside NVML.

Boot, loading and unloading the driver, resetting a GPU, faults. Works on files under ``GPUFLEET_SIM_ROOT`` (default:
the real root), which the simulated NVML library reads and writes too:

    /etc/gpufleet-sim/machine.json    the machine (sim/machine.py)
    /run/gpufleet-sim/state           gone at boot: the loaded driver, MIG mode and instances
    /run/gpufleet-sim/faults          gone at boot, then the machine's own faults again
    /var/lib/gpufleet-sim/state       kept, like an InfoROM: MIG mode of Ampere cards, ECC mode

State files hold sorted ``key=value`` lines. Needs Python 3.9 and nothing else.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import sys
from pathlib import Path

#: fault name -> number of words it needs after its name, at least and at most
FAULTS = {
    "lost": (1, 1),
    "lose": (2, 2),
    "hang": (1, 2),
    "crash": (1, 2),
    "error": (2, 3),
    "hide": (1, 1),
    "version-mismatch": (0, 0),
    "in-use": (3, 4),
    "value": (3, 99),
}
FAULT_HELP = """faults:
  lost GPU                        the GPU has fallen off the bus
  lose CALL GPU                   the GPU falls off the bus, for this process, when the NVML call is made
  hang CALL [GPU]                 the NVML call never returns
  crash CALL [GPU]                the NVML call ends its process
  error CALL CODE [GPU]           the NVML call returns this error code
  hide CALL                       the library does not offer the NVML call
  version-mismatch                library and loaded module disagree
  in-use GPU PID KIND [INSTANCE]  a process holds the GPU; KIND: compute, graphics, mps, or hidden (shown in no list)
  value GPU KEY TEXT              NVML's answer for one key of machine.flat

CALL is an NVML symbol without version suffix (nvmlInit, nvmlDeviceGetRemappedRows)."""


class Refused(Exception):
    """The machine does not allow it; the message says why."""


class Sim:
    """The simulated machine under ``root``."""

    def __init__(self, root):
        self.description = Path(f"{root}/etc/gpufleet-sim/machine.json")
        self.volatile = Path(f"{root}/run/gpufleet-sim")
        self.kept = Path(f"{root}/var/lib/gpufleet-sim")

    def machine(self):
        return json.loads(self.description.read_text())

    @contextlib.contextmanager
    def locked(self):
        """Exclusive access; the lock is the one that the NVML library takes."""
        self.volatile.mkdir(parents=True, exist_ok=True)
        self.kept.mkdir(parents=True, exist_ok=True)
        with open(self.volatile / "lock", "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @staticmethod
    def read(path):
        """A ``key=value`` file as a dict; {} when there is none."""
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @staticmethod
    def write(path, values):
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text("".join(f"{key}={values[key]}\n" for key in sorted(values)))
        temporary.replace(path)

    def state(self):
        return self.read(self.volatile / "state")

    def faults(self):
        """The faults in force, each as its list of words."""
        return [text.split() for _, text in sorted(self.read(self.volatile / "faults").items())]

    def write_faults(self, faults):
        self.write(self.volatile / "faults", {f"{number:04}": " ".join(words) for number, words in enumerate(faults)})

    def clients(self, index=None):
        """Processes that hold a GPU: list of (GPU index, pid, kind)."""
        held = [(int(words[1]), int(words[2]), words[3]) for words in self.faults() if words[0] == "in-use"]
        return [client for client in held if index in (None, client[0])]

    def fresh_gpu(self, gpu):
        """A GPU's volatile state just after a reset or a driver load."""
        kept = self.read(self.kept / "state")
        prefix = f"gpu.{gpu['index']}."
        state = {}
        if gpu["mig_profiles_key"]:
            mode = kept.get(f"{prefix}mig.mode", "0") if gpu["mig_mode_persistent"] else "0"
            state = {"mig.mode": mode, "mig.pending": mode, "mig.instances": ""}
        if f"{prefix}ecc.mode" in kept:
            state["ecc.mode"] = kept[f"{prefix}ecc.mode"]
        return {prefix + key: value for key, value in state.items()}


def boot(sim, _options):
    """Forget what does not outlive a power cycle; the machine's own faults come back."""
    with sim.locked():
        sim.write(sim.volatile / "state", {})
        faults = [fault.split() for fault in sim.machine()["faults"]]
        for words in faults:
            check_fault(words)
        sim.write_faults(faults)


def load(sim, options):
    """Load the kernel driver."""
    with sim.locked():
        state = sim.state()
        if "driver.version" in state:
            raise Refused(f"the driver {state['driver.version']} is loaded already")
        machine = sim.machine()
        if not machine["gpus"]:
            raise Refused("no supported GPU: No such device")
        state = {"driver.version": options.version, "driver.flavour": options.flavour}
        for gpu in machine["gpus"]:
            state.update(sim.fresh_gpu(gpu))
        sim.write(sim.volatile / "state", state)


def unload(sim, _options):
    """Unload the kernel driver; a process on a GPU prevents it."""
    with sim.locked():
        if "driver.version" not in sim.state():
            raise Refused("the driver is not loaded")
        if sim.clients():
            raise Refused(f"the driver is in use by {sim.clients()}")
        sim.write(sim.volatile / "state", {})


def reset(sim, options):
    """Reset GPUs: pending modes take effect, MIG instances go."""
    with sim.locked():
        state = sim.state()
        chosen = [
            gpu for gpu in sim.machine()["gpus"] if options.gpu in ("all", str(gpu["index"]), gpu["uuid"], gpu["pci"])
        ]
        if not chosen:
            raise Refused(f"no such GPU: {options.gpu}")
        for gpu in chosen:
            index = gpu["index"]
            if sim.clients(index):
                raise Refused(f"GPU {index} is in use by {sim.clients(index)}")
            if ["lost", str(index)] in sim.faults():
                raise Refused(f"GPU {index} is lost: only a reboot may bring it back")
            pending = state.get(f"gpu.{index}.mig.pending")
            state.update(sim.fresh_gpu(gpu))
            if pending is not None:
                state[f"gpu.{index}.mig.mode"] = state[f"gpu.{index}.mig.pending"] = pending
        sim.write(sim.volatile / "state", state)


def check_fault(words):
    least, most = FAULTS.get(words[0], (0, -1))
    if not least <= len(words) - 1 <= most:
        raise Refused(f"not a fault: {' '.join(words)}\n{FAULT_HELP}")


def fault(sim, options):
    """Set a fault, or clear those that begin with the given words (all without any)."""
    with sim.locked():
        faults = sim.faults()
        if options.action == "set":
            words = " ".join(options.words).split()
            check_fault(words or [""])
            faults.append(words)
        else:
            faults = [words for words in faults if words[: len(options.words)] != options.words]
        sim.write_faults(faults)


def show(sim, _options):
    """Print driver, GPUs, instances and faults as JSON."""
    state = sim.state()
    driver = {key: state[f"driver.{key}"] for key in ("version", "flavour") if f"driver.{key}" in state}
    gpus = []
    for gpu in sim.machine()["gpus"]:
        prefix = f"gpu.{gpu['index']}."
        own = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
        gpus.append({"index": gpu["index"], "name": gpu["name"], "uuid": gpu["uuid"], "pci": gpu["pci"], "state": own})
    faults = [" ".join(words) for words in sim.faults()]
    print(json.dumps({"driver": driver or None, "gpus": gpus, "faults": faults}, indent=1))


def version(text):
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"not a driver version: {text}")
    return text


def parser():
    result = argparse.ArgumentParser(
        prog="gpufleet-sim",
        description="Drive a simulated GPU machine.",
        epilog=FAULT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(required=True)

    def command(function):
        sub = commands.add_parser(function.__name__, help=function.__doc__.splitlines()[0])
        sub.set_defaults(function=function)
        return sub

    command(boot)
    loading = command(load)
    loading.add_argument("version", type=version)
    loading.add_argument("flavour", choices=["open", "proprietary"])
    command(unload)
    command(reset).add_argument("gpu", help="index, UUID, PCI address or `all`")
    faulting = command(fault)
    faulting.add_argument("action", choices=["set", "clear"])
    faulting.add_argument("words", nargs="*")
    command(show)
    return result


def main(arguments=None, root=None):
    options = parser().parse_args(arguments)
    try:
        options.function(Sim(os.environ.get("GPUFLEET_SIM_ROOT", "") if root is None else root), options)
    except (Refused, OSError) as error:
        print(f"gpufleet-sim: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
