# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import datetime
import json

import pytest

from ansible_collections.gpufleet.metal.plugins.plugin_utils import report

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
SUMMARY = {"gpus": [{"model": "NVIDIA L40S", "count": 2}], "kernel": "6.1.0", "driver": "580.95.05"}
CLEAN = {"status": "clean", "differences": [], "unknown": [], "pending": []}
DIFFERS = dict(
    CLEAN,
    status="differs",
    differences=[
        {"what": "x", "before": "a", "after": "b", "why": "nothing blocks nouveau", "action": "write the blacklist"}
    ],
)


def assessment(**more):
    return {
        "concerns": {"nouveau": CLEAN},
        "due": [],
        "reboot_reasons": [],
        "summary": SUMMARY,
        "checks": [check("pass")],
        **more,
    }


def check(result, evidence="what was read"):
    return {
        "id": "gpu_count",
        "result": result,
        "evidence": evidence,
        "remedy": "" if result == "pass" else "reseat it",
    }


def hostvars(**more):
    return {"__gpu_assessment": assessment(**more)}


def test_a_clean_host_is_judged_by_its_assessment():
    entry = report.record("a", hostvars())
    assert (entry["verdict"], entry["actions"], entry["reachable"]) == ("pass", {}, True)


def test_a_changed_host_is_judged_by_its_verification_and_shows_its_new_driver():
    variables = hostvars(due=["nvidia_driver"], checks=[check("fail")])
    variables["__nvidia_driver_result"] = {"changed": True, "actions": ["install 580.95.05"], "reboot_reasons": []}
    variables["__gpu_verify_result"] = {"checks": [check("warn")], "summary": dict(SUMMARY, driver="580.95.05")}
    entry = report.record("a", variables)
    assert entry["verdict"] == "warn"
    assert entry["actions"] == {"nvidia_driver": ["install 580.95.05"]}


def test_a_reboot_that_a_role_completed_is_no_longer_due():
    variables = hostvars(reboot_reasons=["nouveau is loaded"])
    assert report.record("a", variables)["reboot_reasons"] == ["nouveau is loaded"]
    variables["__nouveau_result"] = {"changed": True, "actions": [], "reboot_reasons": ["nouveau is loaded"]}
    assert report.record("a", variables)["reboot_reasons"] == ["nouveau is loaded"]
    variables["__gpu_verify_result"] = {"concerns": {}, "checks": [check("pass")], "reboot_reasons": []}
    assert report.record("a", variables)["reboot_reasons"] == []


def test_a_host_without_an_answer_has_failed():
    entry = report.record("a", {})
    assert (entry["verdict"], entry["reachable"]) == ("failed", False)
    assert "no answer" in report.plan_text([entry])


def test_the_plan_says_what_why_and_reboot():
    variables = hostvars(concerns={"nouveau": DIFFERS}, due=["nouveau"], reboot_reasons=["nouveau is loaded"])
    text = report.plan_text([report.record("a", variables), report.record("b", hostvars())])
    assert "  nouveau\n    ~ write the blacklist (nothing blocks nouveau)\n" in text
    assert "  reboot\n    nouveau is loaded\n" in text
    assert "nothing to do" in text
    assert "2 host(s): 1 would change, 1 would not" in text


def test_the_table_names_every_trouble_and_its_remedy():
    text = report.table_text([report.record("a", hostvars(checks=[check("pass"), check("fail", "x8 of x16")]))])
    assert "1/2" in text and "fail: gpu_count: x8 of x16. reseat it" in text


def test_troubles_come_worst_first():
    entry = {"checks": [check("pass"), check("not_measured"), check("fail"), check("warn")]}
    assert [found["result"] for found in report.troubles(entry)] == ["fail", "warn", "not_measured"]


@pytest.mark.parametrize(
    ("checks", "verdict"), [([], "not_measured"), (["pass", "warn"], "warn"), (["warn", "fail"], "fail")]
)
def test_the_verdict_is_the_worst_check(checks, verdict):
    assert report.verdict([check(result) for result in checks]) == verdict


def test_the_files_escape_what_a_host_says(tmp_path):
    evil = "<script>alert(1)</script> | pipe"
    records = [report.record("a", hostvars(checks=[check("fail", evil)]))]
    paths = report.write(records, tmp_path / "new", "Title", NOW)
    texts = {path.name: path.read_text() for path in paths}
    assert "<script>alert" not in texts["report.html"] and "&lt;script&gt;" in texts["report.html"]
    assert "\\| pipe" in texts["report.md"]
    assert json.loads(texts["report.json"])["hosts"][0]["checks"][0]["evidence"] == evil


def test_verify_alone_needs_no_assessment_of_its_own():
    answer = {"concerns": {"nouveau": CLEAN}, "checks": [check("pass")], "summary": SUMMARY, "reboot_reasons": []}
    entry = report.record("a", {"__gpu_verify_result": answer})
    assert (entry["reachable"], entry["verdict"], entry["concerns"]) == (True, "pass", {"nouveau": CLEAN})


def test_a_failed_role_is_a_failed_host_whatever_was_checked_before():
    variables = hostvars(due=["nvidia_driver"])
    variables["__nvidia_driver_result"] = {"failed": True, "msg": "no space left"}
    entry = report.record("a", variables)
    assert (entry["verdict"], entry["failure"]) == ("failed", "no space left")
    assert "a: failed: no space left" in report.table_text([entry])


def test_checks_from_before_a_change_do_not_count():
    variables = hostvars(due=["nvidia_driver"])
    variables["__nvidia_driver_result"] = {"changed": True, "actions": ["install"], "reboot_reasons": []}
    assert report.record("a", variables)["verdict"] == "not_measured"


def test_the_plan_counts_a_silent_host_apart_and_says_why():
    silent = report.record("a", {"__gpu_assessment": {"unreachable": True, "msg": "Connection timed out"}})
    text = report.plan_text([silent])
    assert "a: not looked at\n  no answer: Connection timed out" in text
    assert "1 host(s): 0 would change, 0 would not, 1 gave no answer" in text


def test_the_plan_says_why_a_clean_role_runs_again():
    found = assessment(concerns={"nouveau": DIFFERS, "nvidia_driver": CLEAN}, due=["nouveau", "nvidia_driver"])
    text = report.plan_text([report.record("a", {"__gpu_assessment": found})])
    assert "  nvidia_driver: runs again, because what it depends on changes\n" in text


def test_a_sentence_ends_with_one_full_stop():
    assert report.sentence({"evidence": "it is so.", "remedy": "Mend it"}) == "it is so. Mend it."
    assert report.sentence({"evidence": "it is so", "remedy": ""}) == "it is so."


def test_a_failure_that_a_playbook_kept_for_the_report_is_the_hosts_verdict():
    entry = report.record("a", {**hostvars(), "__gpu_failure": "the disk is on fire"})
    assert (entry["verdict"], entry["failure"]) == ("failed", "the disk is on fire")
