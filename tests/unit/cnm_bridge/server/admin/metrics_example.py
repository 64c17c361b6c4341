# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Metrics with every kind of figure."""

from cnm_bridge.server.admin.event_counts import Durations, EventCounts
from cnm_bridge.server.admin.metric_families import Values, render_metrics


def render_example() -> bytes:
    """Return the answer to a scrape."""
    counts = EventCounts()
    counts.calls["NetworkDriver.Join", "answered"] = 2
    counts.executions["bridge", "ADD", "success"] = 1
    counts.call_durations["NetworkDriver.Join",] = Durations()
    counts.call_durations["NetworkDriver.Join",].add(0.003)
    counts.execution_durations["bridge", "ADD"] = Durations()
    single = {
        "networks": 2,
        "pending_teardowns": 1,
        "pending_teardown_age_seconds": 601.5,
        "endpoints_unpublished": 5,
        "engine_up": 1,
        "reconcile_rounds": 6,
        "reconcile_last_round_timestamp_seconds": 1e9,
        "state_size_bytes": 7,
        "state_damaged_copies": 8,
        "pending_releases": 11,
        "log_lines_dropped": 13,
    }
    labelled: dict[str, Values] = {
        "endpoints": {('a "network"', "joined"): 3, ("blue", "ready"): 1},
        "ipam_addresses": {("blue", "10.22.0.0/16"): 65533},
        "ipam_reserved_addresses": {("blue",): 9},
        "docker_addresses": {("lan", "10.1.2.0/24", "reserved"): 10},
        "direct_address_info": {("lan", "10.1.2.9"): 1},
    }
    return render_metrics(counts, {**labelled, **{name: {(): value} for name, value in single.items()}})
