# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The metrics are valid in Prometheus' text format."""

from prometheus_client.parser import text_string_to_metric_families

from cni_invoker import Execution, Verb
from cnm_bridge.server.admin.event_counts import BOUNDS_S, Durations, EventCounts
from cnm_bridge.system.journal import Journal
from tests.unit.cnm_bridge.server.admin.metrics_example import render_example


def test_every_figure_is_rendered() -> None:
    """The parser of the format reads back what was given."""
    samples = {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(render_example().decode())
        for sample in family.samples
    }
    expected = {
        ("cni_bridge_calls_total", ("NetworkDriver.Join", "answered")): 2,
        ("cni_bridge_call_duration_seconds_bucket", ("0.005", "NetworkDriver.Join")): 1,
        ("cni_bridge_call_duration_seconds_count", ("NetworkDriver.Join",)): 1,
        ("cni_bridge_call_duration_seconds_sum", ("NetworkDriver.Join",)): 0.003,
        ("cni_bridge_plugin_executions_total", ("ADD", "bridge", "success")): 1,
        ("cni_bridge_plugin_duration_seconds_count", ("ADD", "bridge")): 0,
        ("cni_bridge_endpoints", ('a "network"', "joined")): 3,
        ("cni_bridge_networks", ()): 2,
        ("cni_bridge_pending_teardowns", ()): 1,
        ("cni_bridge_pending_teardown_age_seconds", ()): 601.5,
        ("cni_bridge_endpoints_unpublished", ()): 5,
        ("cni_bridge_engine_up", ()): 1,
        ("cni_bridge_reconcile_rounds_total", ()): 6,
        ("cni_bridge_reconcile_last_round_timestamp_seconds", ()): 1e9,
        ("cni_bridge_state_size_bytes", ()): 7,
        ("cni_bridge_state_damaged_copies", ()): 8,
        ("cni_bridge_ipam_addresses", ("10.22.0.0/16", "blue")): 65533,
        ("cni_bridge_ipam_reserved_addresses", ("blue",)): 9,
        ("cni_bridge_log_lines_dropped_total", ()): 13,
    }
    assert {key: samples.get(key) for key in expected} == expected
    assert samples["process_resident_memory_bytes", ()] > 0


def test_calls_and_executions_are_counted() -> None:
    """Each by its kind and outcome, with its duration in seconds."""
    journal, counts = Journal(), EventCounts()
    journal.add_listener(counts.note)
    journal.add("rpc.answered", rpc="NetworkDriver.Join", durationMs=7)
    journal.add("rpc.answered", rpc="NetworkDriver.Join", durationMs=20_000.0)
    journal.add("rpc.refused", rpc="NetworkDriver.Join", durationMs=1.5, error="no")
    execution = Execution(plugin="bridge", verb=Verb.ADD, container_id="c", outcome="PluginFailed", duration_s=0.2)
    journal.on_execution(execution)
    journal.add("endpoint.phase", endpointId="e", networkId="n", phase="ready")
    assert counts.calls == {("NetworkDriver.Join", "answered"): 2, ("NetworkDriver.Join", "refused"): 1}
    assert counts.executions == {("bridge", "ADD", "PluginFailed"): 1}
    assert counts.call_durations["NetworkDriver.Join",].sum_s == 20.0085
    assert counts.execution_durations["bridge", "ADD"].cumulative[-1] == 1


def test_a_bound_is_part_of_its_class() -> None:
    """Prometheus' bounds are upper and inclusive; what is above all of them counts in the sum only."""
    durations = Durations()
    for duration_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] + 1e-6, BOUNDS_S[-1] + 1):
        durations.add(duration_s)
    assert durations.cumulative[:3] == (2, 3, 3)
    assert durations.cumulative[-2:] == (3, 4)
