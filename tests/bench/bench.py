# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what a clean host costs, as ratios of one interleaved run.

Every variant runs once a round, over a cold SSH connection, in an order that rotates, so that a slow moment of the
machine falls on all of them. The medians are compared; absolute seconds mean nothing on another machine and are kept
in the JSON only. Targets are printed, never asserted.
"""

import argparse
import dataclasses
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import child, machines

ROOT = machines.ROOT
BENCH = ROOT / "tests" / "bench"
PYINFRA = ROOT / ".venv-bench" / "bin" / "pyinfra"
#: What the recap of ansible-playbook, and the last row of pyinfra's table, say of a run that changed something.
CHANGED = re.compile(r"changed=[1-9]|Grand total\s+\d+\s+[1-9]")


@dataclasses.dataclass
class Target:
    """A promise: ``variant`` costs at most ``limit`` times ``baseline``, in controller CPU and in wall time."""

    title: str
    variant: str
    baseline: str
    limit: float


TARGETS = [
    Target("no-op site.yml against a play with one ping", "site", "ping", 2.5),
    Target("no-op site.yml against the same end states by built-in tasks", "site", "builtin", 1 / 8),
    Target("no-op site.yml against the same end states in pyinfra", "site", "pyinfra", 1.0),
    Target("gpu_facts on the 8-GPU machine against a ping", "facts", "ping", 1.5),
]


def commands(inventory: Path, hosts: list[str]) -> dict[str, list[str]]:
    """variant -> command line; every variant works on the same hosts."""
    playbook = [str(machines.BIN / "ansible-playbook"), "-i", str(inventory), "-l", ",".join(hosts)]
    reports = ["-e", f"gpu_report_directory={machines.WORK}"]
    return {
        "ping": [*playbook, str(BENCH / "ping.yml")],
        "site": [*playbook, *reports, str(ROOT / "playbooks" / "site.yml")],
        "builtin": [*playbook, str(BENCH / "builtin.yml"), "-e", f"@{machines.WORK / 'states.json'}"],
        "facts": [*playbook, str(BENCH / "facts.yml")],
        "pyinfra": [str(PYINFRA), "-y", str(BENCH / "pyinfra_inventory.py"), str(BENCH / "pyinfra_deploy.py")],
    }


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run one variant; return (CPU seconds of the controller and its workers, wall seconds).

    A run that fails, or that changes a host, measures something else: it ends the bench.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or CHANGED.search(done.stdout + done.stderr):
        what = f"{' '.join(command)} failed or changed a host (exit code {done.returncode})"
        sys.exit(f"{what}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def measure(
    variants: dict[str, list[str]], rounds: int, hosts: list[str], inventory: Path
) -> dict[str, dict[str, float]]:
    """variant -> medians ``{cpu, wall}`` over ``rounds`` interleaved rounds."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    names = list(variants)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with tempfile.TemporaryDirectory(prefix="gf") as sockets:  # no connection is left over from the last run
                environment = dict(
                    os.environ,
                    ANSIBLE_SSH_CONTROL_PATH_DIR=sockets,
                    BENCH_HOSTS=",".join(hosts),
                    BENCH_INVENTORY=str(inventory),
                    BENCH_STATES=str(machines.WORK / "states.json"),
                )
                samples[name].append(run(variants[name], environment))
            print(".", end="", flush=True)
    print()
    return {
        name: {"cpu": statistics.median(cpu for cpu, _ in runs), "wall": statistics.median(wall for _, wall in runs)}
        for name, runs in samples.items()
    }


def count_results(command: list[str]) -> dict[str, int]:
    """Worker results a host of one run, by the callback in callback_plugins/."""
    with tempfile.NamedTemporaryFile(suffix=".json") as answer:
        environment = dict(
            os.environ,
            ANSIBLE_CALLBACK_PLUGINS=str(BENCH / "callback_plugins"),
            ANSIBLE_CALLBACKS_ENABLED="count_results",
            COUNT_RESULTS_FILE=answer.name,
        )
        run(command, environment)
        return json.loads(Path(answer.name).read_text(encoding="utf-8"))


def table(title: str, medians: dict[str, dict[str, float]]) -> list[str]:
    """The lines of one table: every target whose two variants were measured, CPU first, wall second."""
    lines = [title, f"  {'what':<64}{'CPU':>8}{'wall':>8}{'target':>9}"]
    for target in TARGETS:
        if target.variant in medians and target.baseline in medians:
            ratio = {kind: medians[target.variant][kind] / medians[target.baseline][kind] for kind in ("cpu", "wall")}
            missed = [kind for kind, value in ratio.items() if value > target.limit]
            verdict = f"MISSED ({', '.join(missed)})" if missed else "met"
            lines.append(
                f"  {target.title:<64}{ratio['cpu']:>7.2f}x{ratio['wall']:>7.2f}x{target.limit:>8.2f}x  {verdict}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    print(f"starting {len(machines.HOSTS)} hosts that match site.yml", flush=True)
    inventory = machines.start()
    try:
        report(inventory, options.rounds)
    finally:
        machines.stop()


def report(inventory: Path, rounds: int) -> None:
    """Measure, print each table when it is there, write the JSON."""
    counted = count_results(commands(inventory, machines.HOSTS)["site"])
    print(f"worker results of a no-op site.yml on a clean host: {max(counted.values())} (target: at most 3)")
    peak = child.peak_mib(machines.MACHINE)
    print(f"peak memory of the child that reads NVML, 8 GPUs: {peak:.0f} MiB (target: under 64 MiB)")
    results: dict[str, object] = {"worker_results": counted, "child_peak_mib": peak}
    everyone = ("ping", "site", "builtin", "pyinfra")
    # ten hosts share this machine with their controller, so a round of them takes minutes, and its medians move less
    for title, hosts, names, turns in (
        ("one host", machines.HOSTS[:1], (*everyone, "facts"), rounds),
        (f"{len(machines.HOSTS)} hosts", machines.HOSTS, everyone, max(1, rounds // 4)),
    ):
        available = commands(inventory, hosts)
        results[title] = medians = measure({name: available[name] for name in names}, turns, hosts, inventory)
        print("\n".join(["", *table(f"{title}, medians of {turns} interleaved round(s)", medians)]), flush=True)
    output = ROOT / "build" / "bench.json"
    output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"\nseconds are in {output.relative_to(ROOT)}")
