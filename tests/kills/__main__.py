# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.kills [PATTERN...]``: phases x kills, on lab hosts; the table says old, new or BROKEN.

A row is ``<change>/<phase>/<kill>``, such as upgrade/install/reboot; a pattern chooses rows as a shell would. Each row
takes a fresh host, kills one run at the beginning of that phase (the installer: at the end of one of its own), and lets
the next run do what it does. A row that has a result is not run again, unless --again is given; results are kept in
build/kills/results.json, each row's output in build/kills/<row>.log. Exit code 1 when any row is BROKEN.
"""

import argparse
import fnmatch
import json
import sys
import time

from tests.kills import host

PHASES = ("unload", "install", "build", "members", "configure", "load", "verify")
KILLS = ("module", "connection", "reboot")
#: Phases of the installer itself; its death is seen by the module, which goes back in the same run.
INSTALLER_PHASES = ("preflight", "build", "files", "modules")
ROWS = [f"{change}/{phase}/{kill}" for change in host.IMAGES for phase in PHASES for kill in KILLS]
ROWS += [f"{change}/{phase}/installer" for change in host.IMAGES for phase in INSTALLER_PHASES]
RESULTS = host.BUILD / "results.json"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN", help="rows; all when none is given")
    parser.add_argument("--again", action="store_true", help="run rows that have a result once more")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    parser.add_argument("--table", action="store_true", help="print the results so far and stop")
    options = parser.parse_args()
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row, pattern) for pattern in options.patterns)]
    if options.list:
        print("\n".join(rows))
        return 0
    host.BUILD.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        host.images({row.split("/")[0] for row in rows})
        for row in rows:
            if options.again or row not in results:
                start = time.monotonic()
                results[row] = once(row)
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
                print(f"{row}: {results[row]} ({time.monotonic() - start:.0f} s)", flush=True)
        host.lab("down", host.NAME)
    print(table({row: result for row, result in results.items() if row in rows}))
    return 1 if any(results.get(row, "").startswith("BROKEN") for row in rows) else 0


def once(row):
    """Kill one change as the row says, run the next one; "old", "new" or "BROKEN: what is between"."""
    change, phase, kill = row.split("/")
    log = host.BUILD / (row.replace("/", "-") + ".log")
    log.unlink(missing_ok=True)
    host.up(host.IMAGES[change])
    if kill == "installer":
        host.set_fault(phase)
    else:
        host.set_trap(phase, kill)
    first = host.run(host.NEW, log)
    if not host.disarm():
        return f"not reached (the first run ended with {first})"
    if not first:
        return "not killed (the first run went well)"
    between = host.look()
    second = host.run(host.NEW, log)
    found = host.look()
    log.open("a").write(f"\nafter the kill: {between}\nafter the next run ({second}): {found}\n")
    return verdict(change, second, found)


def verdict(change, code, found):
    """Whole is: loaded, on disk, built and nothing beside it, the daemon runs, no transaction is open."""
    whole = {key: found.get(key, []) for key in ("loaded", "library", "firmware", "source", "dkms")}
    closed = found.get("phase", ["done"])[0] in ("done", "staged")
    runs = found.get("nvidia-persistenced") == ["active"]
    for version, name in ((host.NEW, "new"), (host.OLD, "old")):
        if all(versions == [version] for versions in whole.values()) and closed and runs:
            return name if (code == 0) == (name == "new") else f"BROKEN: {name}, and the run ended with {code}"
    if change == "fresh" and not any(whole.values()) and closed:
        return "old"
    return f"BROKEN: {found}"


def table(results):
    """Rows of phases, columns of kills, one block a change."""
    lines = []
    for change in host.IMAGES:
        lines.append(f"{change:<12}" + "".join(f"{kill:<12}" for kill in (*KILLS, "installer")))
        for phase in dict.fromkeys(PHASES + INSTALLER_PHASES):
            cells = [results.get(f"{change}/{phase}/{kill}", "-") for kill in (*KILLS, "installer")]
            if any(cell != "-" for cell in cells):
                lines.append(f"  {phase:<10}" + "".join(f"{cell.partition(':')[0]:<12}" for cell in cells))
    broken = [f"{row}: {result}" for row, result in sorted(results.items()) if result not in ("old", "new")]
    return "\n".join(lines + broken)


if __name__ == "__main__":
    sys.exit(main())
