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
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
BIN = Path(sys.executable).parent


@dataclasses.dataclass
class Target:
    """A promise: ``variant`` costs at most ``limit`` times ``baseline`` (controller CPU)."""

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


def commands(inventory: Path, pyinfra: Path, hosts: list[str]) -> dict[str, list[str]]:
    """variant -> command line; every variant works on the same hosts."""
    playbook = [str(BIN / "ansible-playbook"), "-i", str(inventory), "-l", ",".join(hosts)]
    return {
        "ping": [*playbook, str(BENCH / "ping.yml")],
        "site": [*playbook, str(ROOT / "playbooks" / "site.yml")],
        "builtin": [*playbook, str(BENCH / "builtin.yml")],
        "facts": [*playbook, str(BENCH / "facts.yml")],
        "pyinfra": [str(pyinfra), "-y", str(BENCH / "pyinfra_inventory.py"), str(BENCH / "pyinfra_deploy.py")],
    }


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run one variant; return (CPU seconds of the controller and its workers, wall seconds)."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")
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
            verdict = "met" if ratio["cpu"] <= target.limit else "MISSED"
            lines.append(
                f"  {target.title:<64}{ratio['cpu']:>7.2f}x{ratio['wall']:>7.2f}x{target.limit:>8.2f}x  {verdict}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inventory", type=Path, required=True, help="hosts that already match site.yml")
    parser.add_argument("--hosts", required=True, help="comma-separated; the first is measured alone, then all")
    parser.add_argument("--facts-host", required=True, help="the 8-GPU machine")
    parser.add_argument("--pyinfra", type=Path, required=True, help="the pyinfra command of its own environment")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json")
    options = parser.parse_args()

    hosts = options.hosts.split(",")
    results: dict[str, object] = {}
    lines: list[str] = []
    counted = count_results(commands(options.inventory, options.pyinfra, hosts)["site"])
    results["worker_results"] = counted
    lines.append(f"worker results of a no-op site.yml on a clean host: {max(counted.values())} (target: at most 3)")
    for title, group, names in (
        ("one host", hosts[:1], ("ping", "site", "builtin", "pyinfra")),
        (f"{len(hosts)} hosts", hosts, ("ping", "site", "builtin", "pyinfra")),
        ("gpu_facts", [options.facts_host], ("ping", "facts")),
    ):
        available = commands(options.inventory, options.pyinfra, group)
        medians = measure({name: available[name] for name in names}, options.rounds, group, options.inventory)
        results[title] = medians
        lines += table(title, medians)
    print("\n".join(lines))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"JSON: {options.output}")


if __name__ == "__main__":
    main()
