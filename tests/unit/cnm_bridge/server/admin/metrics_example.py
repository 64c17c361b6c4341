# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Metrics with every kind of figure."""

from cnm_bridge.server.admin.event_counts import Durations, EventCounts
from cnm_bridge.server.admin.metric_families import Figures, render_metrics

__all__ = ["render_example"]


def render_example() -> bytes:
    """Return the answer to a scrape."""
    counts = EventCounts()
    counts.calls["NetworkDriver.Join", "answered"] = 2
    counts.executions["bridge", "ADD", "success"] = 1
    counts.call_durations["NetworkDriver.Join",] = Durations()
    counts.call_durations["NetworkDriver.Join",].add(0.003)
    counts.execution_durations["bridge", "ADD"] = Durations()
    return render_metrics(
        counts,
        Figures(
            endpoints={('a "network"', "joined"): 3, ("blue", "ready"): 1},
            networks=2,
            pending_teardowns=1,
            oldest_failure_s=601.5,
            unpublished=5,
            engine_is_up=True,
            rounds=6,
            last_round=1e9,
            state_bytes=7,
            damaged_copies=8,
            addresses={("blue", "10.22.0.0/16"): 65533},
            reserved={("blue",): 9},
            docker_addresses={("lan", "10.1.2.0/24", "reserved"): 10},
            pending_releases=11,
            direct_addresses={("lan", "10.1.2.9"): 1},
            dropped_lines=13,
        ),
    )
