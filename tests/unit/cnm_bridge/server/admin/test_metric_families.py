# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The metrics are valid in Prometheus' text format."""

from prometheus_client.parser import text_string_to_metric_families

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
