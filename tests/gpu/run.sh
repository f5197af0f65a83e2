#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run the tests that need a real GPU. Needs Python, an NVIDIA driver with nvidia-smi and the wheels that
# tests/gpu/wheels.sh fetched; no network, no pip, no root. It reads; it never changes a setting.
#
#   tests/gpu/run.sh [pytest arguments]
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
wheels=$repository/build/gpu-wheels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
ls "$wheels"/*.whl >/dev/null 2>&1 || { echo "no wheels in $wheels: run tests/gpu/wheels.sh first" >&2; exit 1; }
# a wheel is a zip archive of importable files; so that neither pip nor venv is needed
"$python" - "$wheels" "$work/site" <<'PYTHON'
import pathlib
import sys
import zipfile

for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    zipfile.ZipFile(wheel).extractall(sys.argv[2])
PYTHON
cd "$repository"
export PYTHONPATH="$work/site" PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
"$python" -m pytest -p no:cacheprovider --basetemp="$work/tests" tests/gpu "$@"
