# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The body of gpu_assess, over small concerns that want one file each."""

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _assess, _graph, _nvml, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import Concern, InvalidDesired
from tests.unit.hosts import Dir

DEVICES = "/sys/bus/pci/devices/"


class OneFile(Concern):
    """Wants the file ``/<name>``; proves it slowly."""

    options = {
        "state": {"type": "str", "choices": ["present", "unmanaged"], "default": "present"},
        "size": {"type": "int", "default": 1},
    }

    def __init__(self, name):
        self.name = name
        self.reads = 0

    def validate(self, desired):
        if desired["size"] < 0:
            raise self.invalid("size", "it is negative", "Give 0 or more.")

    def read(self, host, desired):
        self.reads += 1
        return {"text": host.read_text("/" + self.name)}

    def assess(self, state, desired):
        difference = _assess.Difference()
        if state["text"] is None:
            difference.add("/" + self.name, "absent", "present", "it is wanted", "Write it")
        elif state["text"] == "staged":
            difference.add_pending(self.name, self.name + " waits for the reboot")
        return difference

    def prove(self, host, desired):
        return [_verify.check(self.name + "_proof", "pass", "looked twice")]


@pytest.fixture
def concerns(monkeypatch):
    fakes = {name: OneFile(name) for name in _graph.ORDER}
    monkeypatch.setattr(_assess, "CONCERNS", fakes)
    return fakes


@pytest.fixture
def nvml(monkeypatch):
    """What NVML answers: the test fills ``gpus``."""
    answer = {"reason": None, "binding_missing": False, "gpus": []}
    monkeypatch.setattr(_nvml, "presence", lambda *_arguments: answer)
    return answer


def desired(**documents):
    return _assess.validate({name: documents.get(name, {}) for name in _graph.ORDER})


def gpu(address, device="0x2330"):
    base = DEVICES + address + "/"
    values = {"vendor": "0x10de", "device": device, "class": "0x030200"}
    return {base + name: value for name, value in values.items()}


def options(**changed):
    return dict({name: option.get("default") for name, option in _verify.OPTIONS.items()}, **changed)


def test_every_real_concern_stands_in_the_graph():
    assert set(_assess.CONCERNS) == set(_graph.ORDER)


def test_all_mistakes_are_told_at_once_by_their_public_names(concerns):
    with pytest.raises(InvalidDesired) as refused:
        _assess.validate(
            {
                "fan_speed": {},
                "nouveau": {"state": "gone"},
                "auto_updates": {"sizes": 1},
                "version_lock": {"size": -1},
            }
        )
    lines = str(refused.value).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("fan_speed: no such concern. Known: auto_updates")
    for name in ("auto_updates_sizes", "nouveau_state", "version_lock_size: it is negative"):
        assert sum(name in line for line in lines) == 1, name


def test_documents_are_completed_and_ordered_as_the_site_acts(concerns):
    found = _assess.validate({"version_lock": {"size": "7"}, "nouveau": {}})
    assert found == {"nouveau": {"state": "present", "size": 1}, "version_lock": {"state": "present", "size": 7}}
    assert list(found) == ["nouveau", "version_lock"]


def test_what_differs_makes_everything_downstream_due(make_host, concerns):
    host = make_host({"/auto_updates": "", "/nvidia_driver": "", "/version_lock": ""})
    answer = _assess.assess(host, desired())
    assert answer["due"] == ["nouveau", "nvidia_driver", "version_lock"]
    assert answer["concerns"]["nouveau"]["differences"][0]["what"] == "/nouveau"
    assert answer["concerns"]["auto_updates"]["status"] == "clean"
    assert (answer["reboot_required"], answer["reboot_reasons"]) == (False, [])
    assert "state" not in answer["concerns"]["nouveau"]


def test_an_unmanaged_concern_is_not_even_read(make_host, concerns):
    host = make_host({"/auto_updates": "", "/nvidia_driver": "", "/version_lock": ""})
    answer = _assess.assess(host, desired(nouveau={"state": "unmanaged"}), full=True)
    assert concerns["nouveau"].reads == 0
    assert answer["concerns"]["nouveau"]["status"] == "unmanaged"
    assert answer["due"] == []
    assert answer["concerns"]["version_lock"]["state"] == {"text": ""}


def test_what_waits_for_a_reboot_is_told_with_its_reason(make_host, concerns):
    answer = _assess.assess(make_host({"/nouveau": "staged"}), {"nouveau": {"state": "present", "size": 1}})
    assert answer["concerns"]["nouveau"]["status"] == "pending"
    assert answer["reboot_reasons"] == ["nouveau waits for the reboot"]
    assert answer["reboot_required"] is True


def test_a_file_that_may_not_be_read_makes_its_concern_due(make_host, concerns):
    host = make_host({"/version_lock": Dir()})  # reading a folder is refused to root, too
    answer = _assess.assess(host, {"version_lock": {"state": "present", "size": 1}})
    assert answer["due"] == ["version_lock"]
    assert answer["concerns"]["version_lock"]["unknown"][0]["what"] == "/version_lock"


def test_a_model_has_the_name_that_nvml_gives_it(make_host, nvml):
    host = make_host({**gpu("0000:01:00.0"), **gpu("0000:02:00.0"), **gpu("0000:03:00.0", "0x0001")})
    nvml["gpus"] = [{"index": 0, "address": "0000:01:00.0", "name": "NVIDIA H100 80GB HBM3", "lost": False}]
    found = _assess.summary(host, nvml)
    assert found == {
        "gpus": [{"model": "NVIDIA H100 80GB HBM3", "count": 2}, {"model": "NVIDIA device 0x0001", "count": 1}],
        "kernel": "",
        "driver": None,
    }


def test_without_nvml_a_model_has_the_name_of_the_pci_table(make_host, nvml):
    [entry] = _assess.summary(make_host(gpu("0000:01:00.0")), nvml)["gpus"]
    assert "H100" in entry["model"] and entry["count"] == 1


def test_an_empty_machine_is_summed_up(make_host, nvml):
    assert _assess.summary(make_host(), nvml) == {"gpus": [], "kernel": "", "driver": None}


@pytest.mark.parametrize(("depth", "proofs"), [("quick", []), ("standard", ["auto_updates_proof", "nouveau_proof"])])
def test_only_the_standard_depth_runs_the_slow_proofs(make_host, concerns, nvml, depth, proofs):
    host = make_host({"/" + name: "" for name in _graph.ORDER})
    wanted = desired(nvidia_driver={"state": "unmanaged"}, version_lock={"state": "unmanaged"})
    answer = _assess.verify(host, wanted, _assess.assess(host, wanted), options(depth=depth), None)
    assert [check["id"] for check in answer["checks"] if check["id"].endswith("_proof")] == proofs


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        ({"depth": "quick"}, False),
        ({"depth": "standard"}, True),
        ({"depth": "standard", "access_control": "ignore"}, False),
    ],
)
def test_K6_bridges_are_read_at_the_standard_depth_unless_ignored(make_host, nvml, changed, read):
    host = make_host({**gpu("0000:01:00.0"), **gpu("0000:02:00.0")})
    answer = _assess.verify(host, {}, _assess.assess(host, {}), options(**changed), None)
    assert ("pcie_access_control" in [check["id"] for check in answer["checks"]]) is read


def test_failed_checks_are_named_and_told_as_one_message(make_host, concerns, nvml):
    host = make_host()
    wanted = {"nouveau": {"state": "present", "size": 1}}
    answer = _assess.verify(host, wanted, _assess.assess(host, wanted), options(expected_count=8), None)
    assert answer["failed_checks"] == ["gpu_count", "nouveau"]
    assert "gpu_verify_expected_count is 8" in answer["failure"]
    assert "Run the nouveau role" in answer["failure"]


@pytest.mark.parametrize("remembered", [False, True])
def test_a_file_that_two_concerns_may_not_read_makes_both_unknown(make_host, concerns, monkeypatch, remembered):
    def read(_self, host, desired):
        if remembered:
            return {"text": host.once("shared", lambda: host.read_text("/shared") or "")}
        return {"text": host.read_text("/shared") or ""}

    monkeypatch.setattr(OneFile, "read", read)
    answer = _assess.assess(make_host({"/shared": Dir()}), desired())
    assert {entry["status"] for entry in answer["concerns"].values()} == {"unknown"}
