# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from ansible_collections.gpufleet.metal.plugins.module_utils import _graph

CLEAN = dict.fromkeys(_graph.ORDER, "clean")


def test_a_clean_host_is_not_due():
    assert _graph.due(CLEAN) == []


def test_what_differs_pulls_in_everything_downstream():
    assert _graph.due(dict(CLEAN, nouveau="differs")) == ["nouveau", "nvidia_driver", "version_lock"]


def test_a_concern_that_nothing_depends_on_is_due_alone():
    assert _graph.due(dict(CLEAN, auto_updates="differs")) == ["auto_updates"]


def test_unknown_and_pending_are_due_because_a_skip_must_be_proven_safe():
    assert _graph.due(dict(CLEAN, version_lock="unknown")) == ["version_lock"]
    assert _graph.due(dict(CLEAN, nvidia_driver="pending")) == ["nvidia_driver", "version_lock"]


def test_an_unmanaged_concern_is_never_due():
    statuses = dict(CLEAN, nouveau="differs", nvidia_driver="unmanaged")
    assert _graph.due(statuses) == ["nouveau", "version_lock"]


def test_downstream_follows_the_order_of_the_roles():
    for name, later in _graph.DOWNSTREAM.items():
        assert all(_graph.ORDER.index(other) > _graph.ORDER.index(name) for other in later)
