# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was found, done and proven on each host, as a plan, a table, Markdown, HTML and JSON.

A *record* is the plain data of one host::

    {name, summary: {gpus: [{model, count}], kernel, driver}, reachable: bool, concerns: {name: assessment},
     due: [name], reboot_reasons: [str], preflight: [finding], actions: {role: [str]}, failure: str | None,
     checks: [check], verdict: str}

Everything else here turns records into text; nothing here talks to a host.
"""

import datetime
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

Record = dict[str, Any]

#: The worst first, so that the table reads from the top.
VERDICTS = ("failed", "fail", "warn", "not_measured", "pass")
#: Roles whose registered result carries the actions they took, in the order of site.yml.
ACTING_ROLES = ("auto_updates", "nouveau", "nvidia_driver", "version_lock")


def record(name: str, hostvars: dict[str, Any]) -> Record:
    """The record of one host from the variables that site.yml, upgrade.yml, plan.yml and verify.yml register.

    :param hostvars: the host's variables; a host that never answered has no ``__gpu_assessment``. A playbook that goes
        on to its report after a host has failed leaves the reason in ``__gpu_failure``.
    """
    assessment = hostvars.get("__gpu_assessment") or {}
    verified = hostvars.get("__gpu_verify_result") or {}
    results = {role: hostvars.get(f"__{role}_result") or {} for role in ACTING_ROLES}
    # verify.yml does not assess on its own: its verification carries the assessment that it made
    seen = verified if "concerns" in verified else assessment
    reachable = "concerns" in seen
    actions = {role: result["actions"] for role, result in results.items() if result.get("changed")}
    # what was checked before a change says nothing about the host after it
    checks = verified.get("checks") or ([] if actions else assessment.get("checks", []))
    failure = hostvars.get("__gpu_failure") or next(
        (result.get("msg", "failed") for result in (assessment, *results.values()) if stopped(result)),
        None,
    )
    return {
        "name": name,
        "reachable": reachable,
        "summary": verified.get("summary") or assessment.get("summary") or {"gpus": [], "kernel": None, "driver": None},
        "concerns": assessment.get("concerns") or seen.get("concerns", {}),
        "due": assessment.get("due", []),
        "reboot_reasons": reboot_reasons([assessment, *results.values(), verified]),
        "preflight": [entry for entry in assessment.get("preflight", []) if entry["result"] in ("fail", "warn")],
        "actions": actions,
        "failure": failure,
        "checks": checks,
        "verdict": verdict(checks) if reachable and not failure else "failed",
    }


def stopped(result: dict[str, Any]) -> bool:
    """Whether a registered result ended its host's run."""
    return bool(result.get("failed") or result.get("unreachable"))


def reboot_reasons(answers: list[dict[str, Any]]) -> list[str]:
    """Why a reboot is still due, from a host's answers, oldest first.

    Each role speaks only of itself, so their reasons add up; the assessment before and the verification after them
    speak of the whole host, so the last of those replaces what was said earlier.
    """
    reasons: list[str] = []
    for answer in answers:
        if "concerns" in answer:
            reasons = []
        reasons += [reason for reason in answer.get("reboot_reasons", []) if reason not in reasons]
    return reasons


def verdict(checks: list[dict[str, Any]]) -> str:
    """The worst result among the checks; no check at all is ``not_measured``."""
    results = {check["result"] for check in checks}
    return next((name for name in VERDICTS if name in results), "not_measured")


def machine(record: Record) -> str:
    """The hardware in a few words: ``8x NVIDIA H100 80GB HBM3``."""
    if not record["reachable"]:
        return "not looked at"
    gpus = record["summary"]["gpus"]
    return ", ".join("{count}x {model}".format(**gpu) for gpu in gpus) if gpus else "no GPU seen"


def plan_text(records: list[Record]) -> str:
    """The plan: per host what would change, why, and whether a reboot comes. Nothing to do is said in one line."""
    lines: list[str] = []
    for entry in records:
        lines.append(f"{entry['name']}: {machine(entry)}")
        if not entry["reachable"]:
            lines.append(f"  no answer: {entry['failure'] or 'the host could not be assessed'}")
        elif not entry["due"]:
            lines.append("  nothing to do")
        for name in [name for name in entry["concerns"] if name in entry["due"]]:
            lines += _plan_of_concern(name, entry["concerns"][name])
        for finding in entry["preflight"]:
            mark = "!" if finding["result"] == "fail" else "-"
            lines.append(f"  {mark} preflight {finding['id']}: {sentence(finding)}")
        if entry["reboot_reasons"]:
            lines += ["  reboot", *(f"    {reason}" for reason in entry["reboot_reasons"])]
        lines.append("")
    due = sum(bool(entry["due"]) for entry in records)
    silent = sum(not entry["reachable"] for entry in records)
    lines.append(f"{len(records)} host(s): {due} would change, {len(records) - due - silent} would not")
    if silent:
        lines[-1] += f", {silent} gave no answer"
    return "\n".join(lines)


def _plan_of_concern(name: str, concern: dict[str, Any]) -> list[str]:
    if concern["status"] == "pending":
        return [f"  {name}: waits for the reboot"]
    if concern["status"] == "clean":
        return [f"  {name}: runs again, because what it depends on changes"]
    lines = [f"  {name}", *(f"    ~ {item['action']} ({item['why']})" for item in concern["differences"])]
    return lines + [f"    ? {item['what']} {item['why']}" for item in concern["unknown"]]


def sentence(check: dict[str, Any]) -> str:
    """Evidence and remedy of a check as one text, each ending with one full stop."""
    return " ".join(text.rstrip(". ") + "." for text in (check["evidence"], check["remedy"]) if text)


def table_text(records: list[Record]) -> str:
    """One line a host: machine, driver, changes made, checks passed, verdict; then every check that did not pass."""
    rows = [("host", "machine", "driver", "changes", "checks", "verdict")]
    for entry in records:
        passed = sum(check["result"] == "pass" for check in entry["checks"])
        rows.append(
            (
                entry["name"],
                machine(entry),
                entry["summary"]["driver"] or "none",
                str(sum(len(actions) for actions in entry["actions"].values())),
                f"{passed}/{len(entry['checks'])}",
                entry["verdict"].replace("_", " "),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines.append("")
    for entry in records:
        lines += [
            f"{entry['name']}: {check['result'].replace('_', ' ')}: {check['id']}: {sentence(check)}"
            for check in troubles(entry)
        ]
        lines += [f"{entry['name']}: reboot required: {reason}" for reason in entry["reboot_reasons"]]
        if entry["failure"]:
            lines.append(f"{entry['name']}: failed: {entry['failure']}")
    return "\n".join(lines).rstrip()


def troubles(record: Record) -> list[dict[str, Any]]:
    """The checks of a host that did not pass, worst first."""
    found = [check for check in record["checks"] if check["result"] != "pass"]
    return sorted(found, key=lambda check: VERDICTS.index(check["result"]))


def write(records: list[Record], directory: Path, title: str, now: datetime.datetime) -> list[Path]:
    """Write ``report.{json,md,html}`` into ``directory`` (made if missing); return their paths."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    values = {
        "title": title,
        "generated": now.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "hosts": sorted(records, key=lambda entry: VERDICTS.index(entry["verdict"])),
        "machine": machine,
        "troubles": troubles,
        "counts": {name: sum(entry["verdict"] == name for entry in records) for name in VERDICTS},
    }
    texts = {
        "report.json": json.dumps({"title": title, "generated": now.isoformat(), "hosts": records}, indent=2) + "\n",
        "report.md": environment.get_template("report.md.j2").render(values),
        "report.html": environment.get_template("report.html.j2").render(values),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in texts]
