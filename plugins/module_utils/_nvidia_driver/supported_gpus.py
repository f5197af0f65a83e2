# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a runfile says itself of the GPUs that it drives: ``supported-gpus/supported-gpus.json`` inside it.

The file is ``{"chips": [{"devid": "0x2330", "name", "features": [...], "legacybranch"?: "580.xx", "subdevid"?,
"subvendorid"?}]}``. ``kernelopen`` among the features: the open modules drive the chip; ``gsp_proprietary_supported``:
the proprietary ones do too; ``legacybranch``: an older branch is the chip's last. Source: how NVIDIA's own
nvidia-driver-assistant and gpu-driver-container read it (2026-12).
"""

import json

NAME = "supported-gpus/supported-gpus.json"
OPEN, PROPRIETARY = "kernelopen", "gsp_proprietary_supported"
EXTRACT_TIMEOUT = 600


def read(host, path, folder, devices):
    """The runfile's word on some GPUs. It has to be unpacked for that, which leaves nothing behind.

    :param path: the runfile, proven to be the wanted one: it is executed.
    :param folder: a directory that exists, with room for the unpacked driver; programs need not run in it.
    :param devices: PCI device ids (``"0x2330"``).
    :returns: dict of device -> ``{flavours: [str], legacy_branch: str|None}``, or None for one that the file does not
        list; None when the runfile has no such file.
    """
    target = folder.rstrip("/") + "/.gpufleet-supported-gpus"
    try:
        host.run(["/bin/sh", path, "--extract-only", "--target", target], EXTRACT_TIMEOUT, {"TMPDIR": folder})
        text = host.read_text("%s/%s" % (target, NAME))
    finally:
        host.run(["rm", "-rf", "--", target], timeout=120)
    return None if text is None else parse(text, devices)


def parse(text, devices):
    """See :func:`read`. A file in another shape than the documented one says nothing: None."""
    try:
        chips = json.loads(text)["chips"]
        # the feature is younger than the file: where no chip has it, its absence means nothing
        told = any(PROPRIETARY in _features(chip) for chip in chips)
        return {device: _judge([chip for chip in chips if _is(chip, device)], told) for device in devices}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is(chip, device):
    return int(chip["devid"], 16) == int(device, 16)


def _features(chip):
    return [str(feature).lower() for feature in chip.get("features", [])]


def _judge(chips, told):
    """One entry of several boards with the same chip: what holds for one of them may hold for this one."""
    if not chips:
        return None
    flavours = set()
    for chip in chips:
        features = _features(chip)
        if OPEN in features:
            flavours.add("open")
        if PROPRIETARY in features or OPEN not in features or not told:
            flavours.add("proprietary")
    legacy = [chip.get("legacybranch") for chip in chips]
    return {"flavours": sorted(flavours), "legacy_branch": legacy[0] if all(legacy) else None}
