# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine h200-vm-1 answers as the recorded H200 did."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RECORDING = HERE.parent / "fixtures" / "h200" / "nvml.json"
FUNCTION_NOT_FOUND = {"error": {"code": 13}}

#: Recorded calls that the library does not offer, because the collection does not make them.
NOT_OFFERED = set((HERE / "not_offered.txt").read_text().split())
#: The binding that recorded this structure gave the UUID 80 bytes instead of 16, so what follows it was not recorded.
MISRECORDED = ["c_nvmlGpuFabricInfo_t"]


def expected(record):
    if "error" in record:
        return {"error": {"code": record["error"]["code"]}}
    answer = {key: record[key] for key in ("rc", "type", "result") if key in record}
    if isinstance(answer["result"], str) and "c_nvmlDevice_t object" in answer["result"]:
        answer["result"] = "<LP_struct_c_nvmlDevice_t>"
    return answer


@pytest.fixture(scope="module")
def replayed():
    records = json.loads(RECORDING.read_text())["records"]
    return [record for record in records if record["args"] != MISRECORDED]


@pytest.fixture
def answers(nvml_machine, replayed, tmp_path):
    recording = tmp_path / "records.json"
    recording.write_text(json.dumps({"records": replayed}))
    environment = {**os.environ, **nvml_machine("h200-vm-1")}
    output = subprocess.run(
        [sys.executable, str(HERE / "replay.py"), str(recording)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout
    return json.loads(output)


def test_every_offered_call_answers_as_recorded(replayed, answers):
    wrong = [
        (record["call"], record["args"], expected(record), answer)
        for record, answer in zip(replayed, answers, strict=True)
        if record["call"] not in NOT_OFFERED and answer != expected(record)
    ]
    assert wrong == []


def test_only_calls_the_collection_does_not_make_are_missing(replayed, answers):
    missing = {
        record["call"]
        for record, answer in zip(replayed, answers, strict=True)
        if answer == FUNCTION_NOT_FOUND and expected(record) != FUNCTION_NOT_FOUND
    }
    offered_in_name_only = {record["call"] for record in replayed if expected(record) == FUNCTION_NOT_FOUND}
    assert missing == NOT_OFFERED - offered_in_name_only
