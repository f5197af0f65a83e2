#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Fetch the wheels that tests/gpu/run.sh needs on a GPU machine without a network. Run it where a package index is
# reachable, then copy the repository with build/gpu-wheels to the GPU machine.
#
#   tests/gpu/wheels.sh [PYTHON_VERSION of the GPU machine, default 3.12]
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
version=${1:-3.12}
folder=$repository/build/gpu-wheels
mkdir -p "$folder"
"${PYTHON:-python3}" -m pip download --quiet --quiet --quiet --disable-pip-version-check --dest "$folder" --only-binary=:all: \
    --python-version "$version" --implementation cp \
    --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64 --platform any \
    "ansible-core>=2.19,<2.22" "nvidia-ml-py>=12.570.86" "pytest>=8"
ls -l "$folder"
