# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from tests.unit.hosts import RecordedHost


@pytest.fixture
def make_host(tmp_path_factory):
    """``make_host(files=None, commands=None, clock=None) -> RecordedHost``; see tests/unit/hosts.py."""

    def make(files=None, commands=None, clock=None):
        return RecordedHost(tmp_path_factory.mktemp("host"), files, commands, clock)

    return make
