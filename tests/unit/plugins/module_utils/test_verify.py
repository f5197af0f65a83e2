# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _verify


def gpu(address="0000:1b:00.0", driver="nvidia", width=16, max_width=16, port=16):
    return {
        "address": address,
        "driver": driver,
        "link": {"width": width, "max_width": max_width},
        "upstream": {"address": "0000:1a:00.0", "max_width": port} if port else None,
    }


def answering(*addresses, lost=()):
    return {
        "reason": None,
        "binding_missing": False,
        "gpus": [{"address": address, "lost": address in lost} for address in addresses],
    }


def driver(loaded="580.95.05", library="580.95.05", nouveau=False):
    return {
        "loaded": {"version": loaded, "flavour": "open"} if loaded else None,
        "library": {"version": library, "path": "/usr/lib/libnvidia-ml.so." + library} if library else None,
        "nouveau": {"loaded": nouveau},
    }


A, B = "0000:1b:00.0", "0000:3b:00.0"


def test_K9_a_gpu_that_nvml_does_not_see_is_named():
    found = _verify.gpu_count({"gpus": [gpu(A), gpu(B)]}, answering(A), None)
    assert found["result"] == "fail"
    assert B in found["evidence"] and A not in found["evidence"]


def test_M1_a_lost_gpu_is_missing():
    found = _verify.gpu_count({"gpus": [gpu(A), gpu(B)]}, answering(A, B, lost=[B]), None)
    assert found["result"] == "fail" and B in found["evidence"]


def test_K10_a_gpu_absent_from_the_bus_is_noticed_by_the_expectation():
    found = _verify.gpu_count({"gpus": [gpu(A)]}, answering(A), 2)
    assert found["result"] == "fail" and "gpu_verify_expected_count" in found["remedy"]


def test_B15_a_gpu_passed_through_is_not_missing():
    assert _verify.gpu_count({"gpus": [gpu(A), gpu(B, driver="vfio-pci")]}, answering(A), 2)["result"] == "pass"


@pytest.mark.parametrize(("expected", "result"), [(None, "not_measured"), (0, "pass"), (8, "fail")])
def test_P18_no_gpu_is_judged_by_the_expectation(expected, result):
    assert _verify.gpu_count({"gpus": []}, answering(), expected)["result"] == result


def test_a_driver_that_does_not_answer_is_a_failure_with_its_reason():
    nvml = {"reason": "driver not loaded", "binding_missing": False, "gpus": []}
    found = _verify.gpu_count({"gpus": [gpu()]}, nvml, None)
    assert found["result"] == "fail" and "driver not loaded" in found["evidence"]


def test_the_wanted_driver_is_loaded():
    assert _verify.driver_loaded(driver(), "580.95.05", [gpu()])["result"] == "pass"


def test_M16_module_and_library_of_two_versions_offer_the_reboot():
    found = _verify.driver_loaded(driver(library="570.133.20"), "", [gpu()])
    assert found["result"] == "fail" and "reboot" in found["remedy"]


def test_B3_a_library_without_a_loaded_module_is_no_driver():
    assert _verify.driver_loaded(driver(loaded=None), "580.95.05", [gpu()])["result"] == "fail"


def test_another_version_than_the_wanted_one_fails():
    assert _verify.driver_loaded(driver(), "580.82.07", [gpu()])["result"] == "fail"


@pytest.mark.parametrize("gpus", [[], [gpu(driver="vfio-pci")]])
def test_P18_B15_a_host_without_gpus_of_its_own_needs_no_driver(gpus):
    nothing = driver(loaded=None, library=None)
    assert _verify.driver_loaded(nothing, "580.95.05", gpus)["result"] == "pass"
    assert _verify.driver_loaded(nothing, "580.95.05", [*gpus, gpu()])["result"] == "fail"
    assert _verify.driver_loaded(driver(library="570.133.20"), "580.95.05", gpus)["result"] == "fail"


def test_nouveau_loaded_fails():
    assert _verify.nouveau_gone(driver(nouveau=True), [])["result"] == "fail"
    assert _verify.nouveau_gone(driver(), [])["result"] == "pass"


def test_modules_that_the_host_does_not_show_are_not_measured():
    assert _verify.nouveau_gone(driver(nouveau=None), [gpu()])["result"] == "not_measured"
    assert _verify.nouveau_gone(driver(nouveau=None), [gpu(driver="nouveau")])["result"] == "fail"


@pytest.mark.parametrize(
    ("card", "expected", "result"),
    [
        (gpu(), None, "pass"),
        (gpu(width=8), None, "fail"),
        (gpu(width=8, port=8), None, "warn"),
        (gpu(width=8, port=8), 16, "fail"),
        (gpu(width=8, port=None), None, "fail"),
        (gpu(width=0, max_width=0), None, "not_measured"),
        (gpu(width=None, max_width=None), None, "not_measured"),
    ],
)
def test_K3_link_width(card, expected, result):
    assert _verify.link_width({"gpus": [card]}, expected)["result"] == result


def test_K8_the_remedy_for_a_narrow_link_speaks_of_the_cold_boot():
    assert "cold boot" in _verify.link_width({"gpus": [gpu(width=8)]}, None)["remedy"]


def test_K4_one_hidden_link_among_good_ones_is_not_a_pass():
    found = _verify.link_width({"gpus": [gpu(A), gpu(B, width=None)]}, None)
    assert found["result"] == "not_measured" and B in found["evidence"]


def entry(status, **more):
    return dict({"status": status, "differences": [], "unknown": [], "pending": []}, **more)


def test_concern_states():
    assert _verify.concern_state("version_lock", entry("clean"))["result"] == "pass"
    assert _verify.concern_state("version_lock", entry("unmanaged"))["result"] == "not_measured"
    pending = entry("pending", pending=[{"what": "nouveau", "why": "nouveau is still loaded"}])
    assert _verify.concern_state("nouveau", pending)["evidence"] == "nouveau is still loaded"
    unknown = entry("unknown", unknown=[{"what": "/etc/apt", "why": "cannot be read"}])
    assert _verify.concern_state("version_lock", unknown)["result"] == "not_measured"
    differs = entry("differs", differences=[{"what": "hold", "why": "linux-image-amd64 is not held"}])
    found = _verify.concern_state("version_lock", differs)
    assert found["result"] == "fail" and "linux-image-amd64" in found["evidence"]


def test_every_check_that_did_not_pass_has_a_remedy():
    facts = {
        "pci": {"gpus": [gpu(width=8), gpu(B)], "iommu": {"enabled": True, "translation": True}},
        "nvml": answering(),
        "driver": driver(loaded=None, nouveau=True),
        "access_control": {"0000:00:01.0": ["SrcValid"]},
    }
    options = {"expected_count": None, "driver_version": "580.95.05", "expected_link_width": None}
    found = _verify.checks(facts, {"concerns": {"nouveau": entry("unmanaged")}}, options)
    assert [check["result"] for check in found] == ["fail", "fail", "fail", "fail", "warn", "warn", "not_measured"]
    assert all(check["remedy"] for check in found)


def test_a_missing_binding_is_not_measured_and_blames_the_controller():
    nvml = {"reason": "no Python package nvidia-ml-py", "binding_missing": True, "gpus": []}
    found = _verify.gpu_count({"gpus": [gpu()]}, nvml, None)
    assert found["result"] == "not_measured" and "nvidia-ml-py" in found["remedy"]


def test_B15_a_host_that_gives_every_gpu_away_needs_no_nvml():
    nvml = {"reason": "driver not loaded", "binding_missing": False, "gpus": []}
    assert _verify.gpu_count({"gpus": [gpu(driver="vfio-pci")]}, nvml, 1)["result"] == "pass"


def test_a_gpu_that_an_in_kernel_driver_holds_is_named():
    found = _verify.nouveau_gone(driver(), [gpu(A, driver="nova_core")])
    assert found["result"] == "fail" and A in found["evidence"]


def test_K1_the_speed_at_idle_is_not_judged():
    idle = gpu()
    idle["link"].update(speed_gts=2.5, max_speed_gts=32.0)
    assert _verify.link_width({"gpus": [idle]}, 16)["result"] == "pass"


def direct(bridges, drivers=("nvidia", "nvidia"), iommu=(False, None)):
    """id -> check of the direct traffic of GPUs with these drivers."""
    pci = {
        "gpus": [gpu(A, driver=name) for name in drivers],
        "iommu": dict(zip(("enabled", "translation"), iommu, strict=True)),
    }
    return {found["id"]: found for found in _verify.direct_traffic(pci, bridges)}


@pytest.mark.parametrize(
    ("bridges", "result"),
    [
        ({"0000:00:01.0": ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"], "0000:00:02.0": None}, "fail"),
        ({"0000:00:01.0": ["SrcValid"]}, "warn"),
        ({"0000:00:01.0": [], "0000:00:02.0": None}, "not_measured"),
        ({"0000:00:01.0": []}, "pass"),
    ],
)
def test_K6_bridges_that_redirect_fail_and_source_validation_alone_is_suspect(bridges, result):
    found = direct(bridges)["pcie_access_control"]
    assert found["result"] == result
    assert result == "pass" or [address for address in bridges if address in found["evidence"]]


def test_K6_isolation_is_right_where_a_gpu_goes_to_a_virtual_machine_and_harmless_for_a_single_one():
    redirecting = {"0000:00:01.0": ["ReqRedir"]}
    assert direct(redirecting, drivers=("nvidia", "vfio-pci"), iommu=(True, True)) == {}
    assert "pcie_access_control" not in direct(redirecting, drivers=("nvidia",))
    assert "pcie_access_control" not in direct(None)


@pytest.mark.parametrize(
    ("state", "result"),
    [((False, None), "pass"), ((True, False), "pass"), ((True, None), "not_measured"), ((True, True), "warn")],
)
def test_K7_pass_through_is_recommended_and_never_off(state, result):
    found = direct(None, iommu=state)["iommu"]
    assert found["result"] == result
    if result == "warn":
        assert "iommu=pt" in found["remedy"] and "Do not switch the IOMMU off" in found["remedy"]


def test_a_host_that_is_to_have_no_driver_is_not_blamed_for_having_none():
    facts = {
        "pci": {"gpus": [gpu()], "iommu": {"enabled": False, "translation": None}},
        "nvml": {"reason": "driver not loaded", "binding_missing": False, "gpus": []},
        "driver": driver(loaded=None, library=None),
        "access_control": None,
    }
    options = {"expected_count": 1, "driver_version": "580.95.05", "expected_link_width": None}
    concerns = {"concerns": {"nvidia_driver": entry("clean")}}
    found = {check["id"]: check["result"] for check in _verify.checks(facts, concerns, options, driver_wanted=False)}
    assert found == {"gpu_count": "pass", "pcie_link_width": "pass", "iommu": "pass", "nvidia_driver": "pass"}
    assert _verify.checks(facts, concerns, options)[1]["result"] == "fail"
