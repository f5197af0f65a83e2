# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a wrong inventory gets to hear: one message with the public variable and the remedy, and an untouched host.

Documents are refused by :mod:`_assess`, what only the host can tell by :mod:`_preflight`; both before any change.
"""

import pytest
import yaml

from ansible_collections.gpufleet.metal.plugins.doc_fragments import reading
from ansible_collections.gpufleet.metal.plugins.module_utils import _assess, _preflight, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import InvalidDesired, completed
from ansible_collections.gpufleet.metal.plugins.modules import gpu_assess
from tests.unit.plugins.module_utils.nvidia_driver import trees

DRIVER = {"version": "580.65.06", "runfile_sha256": trees.SHA256}
V100, B200, H100 = "0x1db5", "0x2901", "0x2330"


@pytest.mark.parametrize(
    ("concern", "document", "message"),
    [
        ("nouveau", {"stat": "present"}, "nouveau_stat: no such variable. Known: nouveau_kernel_command_line"),
        ("nouveau", {"state": "gone"}, "nouveau_state"),
        ("nvidia_driver", dict(DRIVER, verison="1"), "nvidia_driver_verison: no such variable. Known: "),
        ("version_lock", {"mode": "x"}, "version_lock_mode: no such variable. Known: "),
        ("auto_updates", {"mode": "x"}, "auto_updates_mode: no such variable. Known: "),
        ("nvidia_driver", dict(DRIVER, runfile_sha256="cafe"), "nvidia_driver_runfile_sha256: .* Take it from"),
        ("nvidia_driver", dict(DRIVER, version="latest"), "nvidia_driver_version: 'latest' is no .* Write it in two"),
        ("nvidia_driver", dict(DRIVER, version="580"), "nvidia_driver_version: '580' is no .* Write it in two"),
        ("nvidia_driver", dict(DRIVER, version=570.190), "nvidia_driver_version: 570.19 is a number.* in quotes"),
        ("nvidia_driver", dict(DRIVER, installer_timeout="x"), "nvidia_driver_installer_timeout.* README of the role"),
        ("nvidia_driver", dict(DRIVER, version=""), "nvidia_driver_version: is not set. Set it to"),
        ("nvidia_drivers", {}, "nvidia_drivers: no such concern. Known: "),
    ],
)
def test_a_wrong_document_gets_one_message_with_variable_and_remedy(concern, document, message):
    with pytest.raises(InvalidDesired, match=message) as error:
        _assess.validate({concern: document})
    assert len(str(error.value).splitlines()) == 1


def test_all_mistakes_of_all_documents_are_told_at_once():
    with pytest.raises(InvalidDesired) as error:
        _assess.validate({"nouveau": {"stat": 1}, "nvidia_driver": {"version": "latest"}})
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("role", "options", "document", "variable"),
    [
        ("gpu_verify", _verify.OPTIONS, {"expected_count": "eight"}, "gpu_verify_expected_count"),
        ("gpu_verify", _verify.OPTIONS, {"depth": "deep"}, "gpu_verify_depth"),
        ("gpu_verify", _verify.OPTIONS, {"driver_version": 570.190}, "gpu_verify_driver_version: 570.19 is a number"),
        (
            "gpu_verify",
            _verify.OPTIONS,
            {"count": 8},
            "gpu_verify_count: no such variable. Known: gpu_verify_access_control",
        ),
        ("gpu_preflight", _preflight.OPTIONS, {"expected_gpus": "eight"}, "gpu_preflight_expected_gpus"),
    ],
)
def test_the_documents_of_roles_that_only_read_are_told_by_their_public_names(role, options, document, variable):
    with pytest.raises(InvalidDesired, match=variable):
        completed(role, options, document)


@pytest.mark.parametrize(
    ("module", "option", "options"),
    [
        (gpu_assess, "preflight", _preflight.OPTIONS),
        (reading.ModuleDocFragment, "verify", _verify.OPTIONS),
    ],
)
def test_such_a_document_is_documented_as_it_is_checked(module, option, options):
    documented = yaml.safe_load(module.DOCUMENTATION)["options"][option]["suboptions"]
    shared = ("type", "choices", "default")
    assert {name: {key: spec[key] for key in shared if key in spec} for name, spec in documented.items()} == options


def preflight(host, devices, options, **driver):
    """Only the failed findings about GPUs on a virgin host with these devices, after proof that nothing was changed."""
    for index, device in enumerate(devices):
        host.put(trees.gpu(f"0000:{index + 16:02x}:00.0", device))
    before = host.tree()
    desired = _assess.validate({"nvidia_driver": dict(DRIVER, **driver)})
    found = _preflight.findings(host, desired, options)
    assert host.tree() == before
    return [entry for entry in found if entry["result"] == "fail" and entry["id"].startswith("gpu_")]


@pytest.mark.parametrize(
    ("devices", "driver", "variable", "says"),
    [
        ([V100], {"version": "590.48.01"}, "nvidia_driver_version", "Use branch 580 or older"),
        ([B200], {"version": "550.163.01"}, "nvidia_driver_version", "Use 570.133.20 or newer"),
        ([V100], {"kernel_module_type": "open"}, "nvidia_driver_kernel_module_type", "Use auto or proprietary"),
        ([B200], {"kernel_module_type": "proprietary"}, "nvidia_driver_kernel_module_type", "Use auto or open"),
        ([V100, B200], {}, "nvidia_driver_version", "or GPUs of one kind in a host"),
        ([B200, V100], {}, "nvidia_driver_version", "or GPUs of one kind in a host"),
    ],
)
def test_B14_an_unsupported_pair_names_variable_and_remedy_before_any_change(
    make_host, devices, driver, variable, says
):
    files = {path: text for path, text in trees.virgin(runfile=False).items() if "/pci/" not in path}
    (found,) = preflight(make_host(files), devices, {}, **driver)
    assert found["variable"] == variable
    assert found["remedy"].startswith(variable)
    assert says in found["remedy"]


@pytest.mark.parametrize("devices", [[], [H100]])
def test_P18_fewer_gpus_than_expected_names_the_variable(make_host, devices):
    files = {path: text for path, text in trees.virgin(runfile=False).items() if "/pci/" not in path}
    (found,) = preflight(make_host(files), devices, {"expected_gpus": 8})
    assert found["variable"] == "gpu_preflight_expected_gpus"
    assert f"{len(devices)} NVIDIA GPU(s)" in found["evidence"]
    assert "correct the number" in found["remedy"]
