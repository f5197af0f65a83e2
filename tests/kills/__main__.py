# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.kills [PATTERN...]``: phases x kills, on lab hosts; the table says old, new or BROKEN.

A row is ``<change>/<phase>/<kill>``, such as upgrade/install/reboot; a pattern chooses rows as a shell would. Each row
takes a fresh host, kills one run at the beginning of that phase (the installer: at the end of one of its own; dkms: in
the middle of its work for the second kernel), and lets the next run do what it does. A row that has a result is not
run again, unless --again is given; results are kept in build/kills/results.json, each row's output in
build/kills/<row>.log. Exit code 1 unless every row that was asked for has ended with the old or the new driver.

One row a kind of kill is in molecule/nvidia_driver_upgrade, too, which CI runs.
"""

import argparse
import fnmatch
import json
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.kills import host as hosts

CHANGES = ("upgrade", "fresh")
PHASES = ("unload", "install", "build", "members", "configure", "load", "verify")
KILLS = ("module", "connection", "reboot")
#: Phases of the installer itself; its death is seen by the module, which goes back in the same run.
INSTALLER_PHASES = ("preflight", "build", "files", "modules")
ROWS = [f"{change}/{phase}/{kill}" for change in CHANGES for phase in PHASES for kill in KILLS]
ROWS += [f"{change}/{phase}/installer" for change in CHANGES for phase in INSTALLER_PHASES]
#: In the middle of a phase: DKMS is at work, and goes on without the module that had started it.
ROWS += [f"{change}/dkms/module" for change in CHANGES]
RESULTS = hosts.BUILD / "results.json"
GOOD = ("old", "new")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN", help="rows; all when none is given")
    parser.add_argument("--again", action="store_true", help="run rows that have a result once more")
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="rows that run side by side (default: 2)")
    parser.add_argument("--minutes", type=float, default=None, metavar="N", help="begin no row after N minutes")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    parser.add_argument("--table", action="store_true", help="print the results so far and stop")
    options = parser.parse_args()
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row, pattern) for pattern in options.patterns)]
    if options.list:
        print("\n".join(rows))
        return 0
    hosts.BUILD.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        due = [row for row in rows if options.again or row not in results]
        run(due, results, options.hosts, None if options.minutes is None else time.monotonic() + options.minutes * 60)
    print(table({row: result for row, result in results.items() if row in rows}))
    return 0 if all(results.get(row) in GOOD for row in rows) else 1


def run(rows, results, count, deadline):
    """Run these rows, ``count`` at a time, each on a host of its own; each result is kept at once."""
    free: queue.SimpleQueue[hosts.KillHost] = queue.SimpleQueue()
    every = [hosts.KillHost(f"kills-{number}") for number in range(1, min(count, len(rows)) + 1)]
    for host in every:
        free.put(host)
    writing = threading.Lock()

    def one(row):
        if deadline is not None and time.monotonic() > deadline:
            return
        host, start = free.get(), time.monotonic()
        try:
            result = once(host, row)
        except (hosts.Lost, subprocess.TimeoutExpired) as error:
            result = f"BROKEN: {error}"
        except subprocess.CalledProcessError as error:  # the lab's own fault: the next call tries again
            print(f"{row}: no result: {error}: {error.stderr}", flush=True)
            return
        finally:
            free.put(host)
        with writing:
            results[row] = result
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            print(f"{row}: {result} ({time.monotonic() - start:.0f} s)", flush=True)

    try:
        if rows:
            hosts.make_images(every[0], {row.split("/")[0] for row in rows})
        with ThreadPoolExecutor(max_workers=max(1, len(every))) as pool:
            list(pool.map(one, rows))
    finally:
        for host in every:
            host.down()


def once(host, row):
    """Kill one change as the row says, run the next one; "old", "new" or "BROKEN: what is between"."""
    change, phase, kill = row.split("/")
    log = hosts.BUILD / (row.replace("/", "-") + ".log")
    log.unlink(missing_ok=True)
    host.up(hosts.image(change))
    if kill == "installer":
        host.set_fault(phase)
    else:
        host.set_trap(phase, kill)
    sha256 = host.sha256(hosts.NEW)
    first = host.run(hosts.NEW, log, sha256=sha256)
    if not host.disarm():
        return f"not reached (the first run ended with {first})"
    # Ansible connects again by itself, and its next attempt may be the next run.
    if not first and kill in ("module", "installer"):
        return "not killed (the first run went well)"
    # Only this kill is survived by the run that it hits, which goes back itself.
    gone_back = verdict(change, first, host.look()) if kill == "installer" else "old"
    second = host.run(hosts.NEW, log, sha256=sha256)
    found = host.look()
    with log.open("a") as stream:
        stream.write(f"\nThe runs ended with {first} and {second}; the host has {found}\n")
    return verdict(change, second, found) if gone_back == "old" else f"BROKEN: the first run ended {gone_back}"


def verdict(change, code, found):
    """Whole is: loaded, on disk, built and nothing beside it, the daemon runs, no transaction is open."""
    whole = {
        key: found.get(key, []) for key in ("loaded", "library", "firmware", "source", "dkms", "installed", "modules")
    }
    closed = found.get("phase", ["done"])[0] in ("done", "staged")
    runs = found.get("nvidia-persistenced") == ["active"]
    for version, name in ((hosts.NEW, "new"), (hosts.OLD, "old")):
        if all(versions == [version] for versions in whole.values()) and closed and runs:
            return name if (code == 0) == (name == "new") else f"BROKEN: {name}, and the run ended with {code}"
    if change == "fresh" and not any(value for values in whole.values() for value in values) and closed:
        return "old" if code else f"BROKEN: no driver, and the run ended with {code}"
    return f"BROKEN: {found}"


def table(results):
    """Rows of phases, columns of kills, one block a change."""
    lines = []
    for change in CHANGES:
        lines.append(f"{change:<12}" + "".join(f"{kill:<12}" for kill in (*KILLS, "installer")))
        for phase in dict.fromkeys((*PHASES, "dkms", *INSTALLER_PHASES)):
            cells = [results.get(f"{change}/{phase}/{kill}", "-") for kill in (*KILLS, "installer")]
            if any(cell != "-" for cell in cells):
                lines.append(f"  {phase:<10}" + "".join(f"{cell.partition(':')[0]:<12}" for cell in cells))
    others = [f"{row}: {result}" for row, result in sorted(results.items()) if result not in GOOD]
    return "\n".join(lines + others)


if __name__ == "__main__":
    sys.exit(main())
