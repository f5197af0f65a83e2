# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from tests.unit.repo import laws


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_the_repository_keeps_the_law(law):
    violations = list(law(laws.repository()))
    assert not violations, "\n" + "\n".join(violations)
