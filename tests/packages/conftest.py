# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import shutil

import pytest

from sim.packages import apt


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """The repository, built anew."""
    for tool in ("dpkg-deb", "gpg", "apt-get"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    return apt.build(tmp_path_factory.mktemp("mirror") / "apt")
