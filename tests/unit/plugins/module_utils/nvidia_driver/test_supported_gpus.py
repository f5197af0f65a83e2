# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of GPUs inside a runfile, in the shapes that it has."""

import json

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import supported_gpus
from sim.runfile import package

BOTH, OPEN_ONLY = ["kernelopen", "gsp_proprietary_supported"], ["kernelopen"]


def parse(*chips, devices=("0x2330",)):
    return supported_gpus.parse(json.dumps({"chips": list(chips)}), devices)


def chip(devid="0x2330", features=(), **more):
    return {"devid": devid, "name": "a GPU", "features": list(features), **more}


@pytest.mark.parametrize(
    ("features", "flavours"),
    [(BOTH, ["open", "proprietary"]), (OPEN_ONLY, ["open"]), ([], ["proprietary"]), (["KernelOpen"], ["open"])],
)
def test_B14_features_tell_the_flavours(features, flavours):
    other = chip("0x0001", BOTH)
    assert parse(chip(features=features), other)["0x2330"] == {"flavours": flavours, "legacy_branch": None}


def test_B14_an_older_file_does_not_tell_the_proprietary_flavour():
    assert parse(chip(features=OPEN_ONLY))["0x2330"]["flavours"] == ["open", "proprietary"]


def test_B14_a_chip_that_the_branch_dropped_names_its_last_one():
    assert parse(chip("0x1DB6", legacybranch="580.xx"), devices=["0x1db6"])["0x1db6"]["legacy_branch"] == "580.xx"


def test_a_chip_with_several_boards_is_driven_when_one_of_them_is():
    boards = [chip(features=BOTH, subdevid="0x1626"), chip(features=BOTH, subdevid="0x16C1", legacybranch="580.xx")]
    assert parse(*boards)["0x2330"] == {"flavours": ["open", "proprietary"], "legacy_branch": None}


def test_a_chip_that_is_not_listed_is_told():
    assert parse(chip("0x0001")) == {"0x2330": None}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"chips": [{"name": 1}]}', '{"chips": 1}'])
def test_another_shape_says_nothing(text):
    assert supported_gpus.parse(text, ["0x2330"]) is None


@pytest.mark.parametrize(
    ("branch", "device", "answer"),
    [
        (580, "0x2330", {"flavours": ["open", "proprietary"], "legacy_branch": None}),
        (580, "0x2901", {"flavours": ["open"], "legacy_branch": None}),
        (580, "0x1db6", {"flavours": ["proprietary"], "legacy_branch": None}),
        (590, "0x1db6", {"flavours": ["proprietary"], "legacy_branch": "580.xx"}),
        (550, "0x2901", None),
    ],
)
def test_B14_the_stand_ins_file_is_read_alike(branch, device, answer):
    assert supported_gpus.parse(package.supported_gpus(branch), [device]) == {device: answer}


def test_a_runfile_without_the_file_says_nothing_and_leaves_nothing(make_host):
    target = "/tmp/.gpufleet-supported-gpus"
    remove = ("rm", "-rf", "--", target)
    host = make_host({}, {("/bin/sh", "/x.run", "--extract-only", "--target", target): (1, ""), remove: (0, "")})
    assert supported_gpus.read(host, "/x.run", "/tmp", ["0x2330"]) is None
    assert host.calls[-1] == remove
