# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading of NVML against a small stand-in for the binding; tests/nvml has the same over a simulated library.

The stand-in is executed from memory in the child, exactly as the real binding is, and bound to libc instead of NVML.
"""

import os
import time

import pytest
import yaml

from ansible_collections.gpufleet.metal.plugins.module_utils import _nvml, _verify
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import binding, collect, fields, links, values
from ansible_collections.gpufleet.metal.plugins.modules import gpu_facts

BINDING = """
import os
import time


class NVMLError(Exception):
    def __init__(self, value):
        self.value = value

    def __str__(self):
        return "error %d" % self.value


NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
nvmlMemory_v2 = 0x02000028


class Answer:
    def __init__(self, **members):
        self.__dict__.update(members)


def fail(code):
    raise NVMLError(code)


def nvmlInit():
    pass


def nvmlDeviceGetCount():
    return 4


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetPciInfo(gpu):
    return Answer(busId="00000000:%02X:00.0" % (0x1B + gpu), pciDeviceId=0x233010DE, pciSubSystemId=0x16C110DE)


def nvmlDeviceGetName(gpu):
    return b"NVIDIA H100 80GB HBM3"


def nvmlDeviceGetSerial(gpu):
    return "N/A"


def nvmlDeviceGetTemperature(gpu, sensor):
    return 30 + gpu


def __getattr__(name):
    if name.startswith("nvml"):
        return lambda *arguments: fail(NVML_ERROR_NOT_SUPPORTED)
    raise AttributeError(name)
"""
LIBRARY = "libc.so.6"


@pytest.fixture
def read(make_host):
    """``read(changes, subsets, timeout)``: a reading with ``changes`` (Python source) applied to the stand-in."""

    def read(changes="", subsets=("nvml",), timeout=6):
        return _nvml.read(make_host(), binding.pack((BINDING + changes).encode()), timeout, subsets, LIBRARY)

    return read


def states(found):
    return [gpu["state"] for gpu in found["gpus"]]


def test_values_are_typed_and_what_is_not_there_is_null(read):
    found = read()
    assert (found["reason"], found["errors"], found["binding"]) == (None, [], "controller")
    assert states(found) == ["ok"] * 4
    gpu = found["gpus"][1]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert gpu["pci"]["address"] == "0000:1c:00.0"
    assert (gpu["pci"]["device"], gpu["pci"]["subsystem"]) == ("0x2330", "0x10de:0x16c1")
    assert gpu["temperature"]["gpu_c"] == 31
    assert gpu["power"]["draw_w"] is None
    assert "power.draw_w" in gpu["unsupported"]


def test_every_gpu_has_every_field_whatever_it_answers(read):
    found = read(
        "def nvmlDeviceGetHandleByIndex(index):\n    return index if index != 2 else fail(15)\n", _nvml.SUBSETS
    )

    def keys(tree):
        return {key: keys(value) if isinstance(value, dict) else None for key, value in tree.items()}

    assert len({str(keys(gpu)) for gpu in found["gpus"]}) == 1


def test_M1_a_lost_handle_leaves_the_other_gpus_alone(read):
    found = read("def nvmlDeviceGetHandleByIndex(index):\n    return index if index != 2 else fail(15)\n")
    assert states(found) == ["ok", "ok", "lost", "ok"]
    assert found["errors"] == [{"gpu": 2, "address": None, "field": "handle", "code": 15, "reason": "error 15"}]
    assert found["gpus"][3]["temperature"]["gpu_c"] == 33


def test_M2_a_gpu_lost_in_one_field_keeps_its_other_fields(read):
    found = read("def nvmlDeviceGetRemappedRows(gpu):\n    return [0, 0, 0, 0] if gpu != 1 else fail(15)\n")
    assert states(found) == ["ok", "lost", "ok", "ok"]
    assert found["errors"] == [
        {"gpu": 1, "address": "0000:1c:00.0", "field": "remapped_rows", "code": 15, "reason": "error 15"}
    ]
    assert found["gpus"][1]["temperature"]["gpu_c"] == 31
    assert found["gpus"][0]["remapped_rows"]["pending"] is False


def test_a_gpu_that_answers_only_that_it_is_lost_is_not_asked_everything(read):
    lost = "".join(
        f"def {name}(gpu, *rest):\n    return fail(15) if gpu == 0 else 1\n"
        for name in ("nvmlDeviceGetMinorNumber", "nvmlDeviceGetBoardId", "nvmlDeviceGetModuleId", "nvmlDeviceGetBrand")
    )
    found = read(lost + "def nvmlDeviceGetBoardPartNumber(gpu):\n    return fail(15) if gpu == 0 else 'x'\n")
    assert [error["field"] for error in found["errors"]] == ["minor", "board.id", "board.part_number"]
    assert found["gpus"][0]["temperature"]["gpu_c"] is None


def test_M4_a_hang_costs_one_gpu_and_the_parent_returns(read):
    started = time.monotonic()
    found = read(
        "def nvmlDeviceGetRemappedRows(gpu):\n    return time.sleep(60) if gpu == 1 else [0, 0, 0, 0]\n", timeout=3
    )
    assert time.monotonic() - started < 5
    assert states(found) == ["ok", "hung", "ok", "ok"]
    [error] = found["errors"]
    assert (error["gpu"], error["address"], error["field"]) == (1, "0000:1c:00.0", "remapped_rows")
    assert "no answer within 1.0 s" in error["reason"]
    assert found["gpus"][1]["name"], "what the GPU had told before is kept"


def test_M4_a_hang_in_the_start_is_the_reason(read):
    found = read("def nvmlInit():\n    time.sleep(60)\n", timeout=1)
    assert found["reason"].startswith("NVML did not start: no answer within")
    assert "needs a reboot" in found["reason"]
    assert found["gpus"] == []


def test_M4_a_child_that_cannot_be_killed_is_left_behind(read, monkeypatch):
    def waitpid(_pid, flags):
        assert flags == os.WNOHANG, "the parent must never wait for such a child"
        return 0, 0

    monkeypatch.setattr(os, "waitpid", waitpid)
    found = read("def nvmlInit():\n    time.sleep(60)\n", timeout=1)
    assert "stuck in the driver, a reboot clears it" in found["reason"]


def test_M7_the_default_time_is_enough_for_eight_gpus_without_persistence():
    documented = yaml.safe_load(gpu_facts.DOCUMENTATION)["options"]["nvml_timeout"]["default"]
    assert documented == _verify.OPTIONS["nvml_timeout"]["default"] >= 60


def test_M7_a_slow_start_may_take_more_than_a_single_call(read):
    found = read("def nvmlInit():\n    time.sleep(1.5)\n", timeout=3)
    assert found["reason"] is None and set(states(found)) == {"ok"}


def test_M5_every_call_slow_gives_a_partial_answer_within_the_deadline(read):
    started = time.monotonic()
    found = read("def nvmlDeviceGetName(gpu):\n    time.sleep(45)\n", timeout=2)
    assert time.monotonic() - started < 4
    assert set(states(found)) == {"hung", "not_read"}
    assert {error["gpu"] for error in found["errors"]} == {0, 1, 2, 3}
    assert all(gpu["pci"]["address"] for gpu in found["gpus"] if gpu["state"] == "hung")


def test_a_crash_costs_one_gpu(read):
    found = read("def nvmlDeviceGetName(gpu):\n    return os.kill(os.getpid(), 9) if gpu == 0 else 'x'\n")
    assert states(found) == ["crashed", "ok", "ok", "ok"]
    assert found["errors"][0]["reason"] == "the process that asked was ended by SIGKILL"


def test_a_hang_in_a_system_field_leaves_the_gpus(read):
    found = read("def nvmlSystemGetDriverVersion():\n    time.sleep(60)\n", timeout=3)
    assert states(found) == ["ok"] * 4
    assert found["errors"][0]["field"] == "driver_version"


@pytest.mark.parametrize("kind", ["TypeError", "ValueError", "KeyError"])
def test_a_field_that_raises_anything_is_one_error(read, kind):
    found = read(f"def nvmlDeviceGetModuleId(gpu):\n    raise {kind}('x')\n")
    assert states(found) == ["ok"] * 4
    assert [error["field"] for error in found["errors"]] == ["module_id"] * 4
    assert found["errors"][0]["reason"].startswith(kind)


def test_M8_unified_memory_has_no_size_and_is_no_failure(read):
    found = read()
    assert found["gpus"][0]["memory"] == dict.fromkeys(("total_mib", "reserved_mib", "used_mib", "free_mib"))
    assert found["errors"] == []


def test_M8_an_old_driver_answers_the_old_memory_call(read):
    found = read(
        "def nvmlDeviceGetMemoryInfo(gpu, version=None):\n"
        "    return fail(13) if version else Answer(total=80 << 30, used=1 << 20, free=79 << 30)\n"
    )
    assert found["gpus"][0]["memory"] == {"total_mib": 81920, "reserved_mib": None, "used_mib": 1, "free_mib": 80896}


def test_M9_no_bar1_is_null(read):
    assert read()["gpus"][0]["bar1"] == {"total_mib": None, "used_mib": None}


@pytest.mark.parametrize(("number", "word"), [(10, "blackwell"), (9, "hopper"), (99, "unknown(99)")])
def test_M12_an_unknown_architecture_is_named_by_its_number(read, number, word):
    assert read(f"def nvmlDeviceGetArchitecture(gpu):\n    return {number}\n")["gpus"][0]["architecture"] == word


@pytest.mark.parametrize(("number", "word"), [(10, "nvidia_vws"), (14, "nvidia"), (77, "unknown(77)")])
def test_M13_an_unknown_brand_is_named_by_its_number(read, number, word):
    assert read(f"def nvmlDeviceGetBrand(gpu):\n    return {number}\n")["gpus"][0]["brand"] == word


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "", b"\0\0", "  "])
def test_M18_the_ways_of_saying_nothing_are_null(text):
    assert values.text(text) is None


PROCESS = (
    "def nvmlDeviceGetComputeRunningProcesses(gpu):\n"
    "    return [Answer(pid=%d, usedGpuMemory=%s, gpuInstanceId=0xFFFFFFFF, computeInstanceId=0xFFFFFFFF)]\n"
)


def test_processes_are_typed(read):
    found = read(PROCESS % (4242, "3 << 30"), ("processes",))
    assert found["gpus"][0]["processes"] == [
        {"pid": 4242, "type": "compute", "memory_mib": 3072, "gpu_instance_id": None, "compute_instance_id": None}
    ]


@pytest.mark.parametrize("pid", [0, 2**31, 2**32 - 1])
def test_M11_a_process_id_that_cannot_be_true_gives_no_list_at_all(read, pid):
    found = read(PROCESS % (pid, "None"), ("processes",))
    assert found["gpus"][0]["processes"] is None
    assert "cannot be true" in found["errors"][0]["reason"]


@pytest.mark.parametrize("memory", [1 << 60, (4242 << 32) + 1])
def test_M11_a_memory_that_cannot_be_true_gives_no_list_at_all(read, memory):
    found = read(PROCESS % (4242, memory), ("processes",))
    assert found["gpus"][0]["processes"] is None
    assert "cannot be true" in found["errors"][0]["reason"]


@pytest.mark.parametrize(
    ("code", "remedy"), [(9, "the driver is not loaded"), (18, "different versions: reboot"), (4, "run as root")]
)
def test_M16_a_refused_start_is_classified(read, code, remedy):
    found = read(f"def nvmlInit():\n    fail({code})\n")
    assert found["code"] == code
    assert remedy in found["reason"]
    assert found["gpus"] == []


def test_no_library_is_a_reason_and_no_failure(make_host):
    found = _nvml.read(make_host(), binding.pack(BINDING.encode()), 5, ("nvml",), "/nonexistent/libnvidia-ml.so.1")
    assert found["code"] == 12
    assert "install the driver" in found["reason"]


def test_no_binding_anywhere_names_the_remedy(make_host, monkeypatch):
    def missing():
        raise binding.BindingError(binding.NO_BINDING)

    monkeypatch.setattr(binding, "_from_host", missing)
    found = _nvml.read(make_host(), None, 5, ("nvml",), LIBRARY)
    assert "nvidia-ml-py >= 12.570.86" in found["reason"]


def test_the_quickest_look_asks_for_addresses_and_names_only(make_host):
    source = BINDING + "def nvmlDeviceGetUUID(gpu):\n    os.abort()\n"
    lost = "def nvmlDeviceGetHandleByIndex(index):\n    return index if index != 2 else fail(15)\n"
    found = _nvml.presence(make_host(), binding.pack((source + lost).encode()), 5, LIBRARY)
    assert found["reason"] is None
    assert [(gpu["address"], gpu["lost"]) for gpu in found["gpus"]] == [
        ("0000:1b:00.0", False),
        ("0000:1c:00.0", False),
        (None, True),
        ("0000:1e:00.0", False),
    ]


def test_topology_is_a_square_matrix_whatever_is_lost(read):
    found = read(
        "def nvmlDeviceGetTopologyCommonAncestor(one, other):\n    return 10 if one + other < 4 else 50\n"
        "def nvmlDeviceGetP2PStatus(one, other, index):\n    return 0 if index < 3 else 5\n"
        "def nvmlDeviceGetHandleByIndex(index):\n    return index if index != 3 else fail(15)\n",
        ("topology",),
    )
    topology = found["topology"]
    assert topology["gpus"] == ["0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0", None]
    assert topology["ancestor"] == [
        [None, "single", "single", None],
        ["single", None, "single", None],
        ["single", "single", None, None],
        [None, None, None, None],
    ]
    assert topology["p2p"]["nvlink"][0][1] == "ok"
    assert topology["p2p"]["atomics"][0][1] == "not_supported"


def test_a_hang_between_two_gpus_costs_one_row(read):
    found = read(
        "def nvmlDeviceGetTopologyCommonAncestor(one, other):\n    return time.sleep(60) if one == 1 else 10\n",
        ("topology",),
        timeout=3,
    )
    assert found["topology"]["ancestor"][0] == [None, "single", "single", "single"]
    assert found["topology"]["ancestor"][1] == ["single", None, None, None]
    assert found["gpus"][1]["state"] == "hung"


class TestBinding:
    def test_the_option_carries_nothing_but_the_source(self):
        # every value of a no_log option is masked in the module's answer
        option = binding.pack(b"x = 1\n")
        assert list(option) == ["source"]
        assert binding.unpack(option) == b"x = 1\n"
        assert binding.unpack(None) is None

    def test_a_stored_copy_with_the_same_hash_is_preferred(self, make_host):
        host = make_host()
        option = binding.pack(BINDING.encode())
        assert _nvml.store(host, option) is True
        assert _nvml.store(host, option) is False
        assert _nvml.read(host, option, 5, (), LIBRARY)["binding"] == "store"

    def test_a_stored_copy_that_was_tampered_with_is_not_used(self, make_host):
        host = make_host()
        option = binding.pack(BINDING.encode())
        _nvml.store(host, option)
        [name] = [name for name in host.listdir(binding.STORE) if name.endswith(".py")]
        host.write(binding.STORE + name, BINDING + "raise SystemExit\n")
        assert _nvml.read(host, option, 5, (), LIBRARY)["binding"] == "controller"

    def test_a_newer_binding_replaces_the_stored_one(self, make_host):
        host = make_host()
        _nvml.store(host, binding.pack(b"old = 1\n"))
        _nvml.store(host, binding.pack(BINDING.encode()))
        assert len([name for name in host.listdir(binding.STORE) if name.endswith(".py")]) == 1

    def test_reading_leaves_nothing_on_the_host(self, make_host):
        host = make_host()
        _nvml.read(host, binding.pack(BINDING.encode()), 5, (), LIBRARY)
        assert host.tree() == {}

    def test_versions_compare_as_numbers(self):
        assert binding.version_key("12.570.86") < binding.version_key("12.570.172") < binding.version_key("13.580.82")


@pytest.mark.parametrize(
    ("words", "expected"),
    [([0], []), ([0b1011], [[0, 1], [3, 3]]), ([1 << 63, 1], [[63, 64]]), ([2**64 - 1, 2**64 - 1], [[0, 127]])],
)
def test_affinity_ranges(words, expected):
    assert values.ranges(words) == expected


def test_clock_reasons_that_are_not_known_yet_are_kept():
    assert values.reasons(0x5) == ["gpu_idle", "sw_power_cap"]
    assert values.reasons(0x1000) == ["unknown(0x1000)"]
    assert values.reasons(0) == []


def test_the_fabric_structures_have_the_sizes_that_their_versions_say():
    import ctypes

    assert ctypes.sizeof(links._FabricInfo) == 40 == links._FABRIC_VERSIONS[0] & 0xFFFF
    assert links._FABRIC_VERSIONS[1] & 0xFFFF == 36


def test_no_field_is_asked_twice():
    names = collect.names(_nvml.SUBSETS)
    assert len(names) == len(set(names))
    assert fields.IDENTITY[0] is fields.ADDRESS


@pytest.mark.parametrize(
    ("value", "number"),
    [(b"\x02", 2), ("\x02", 2), (b"", 0), ("", 0), (7, 7), (0xFFFFFFFF, None), (0xFFFFFFFFFFFFFFFF, None)],
)
def test_a_single_char_of_any_binding_is_a_number(value, number):
    assert values.number(value) == number
