# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Calls and executions are counted as they are added to the journal."""

from cni_invoker import Execution, Verb
from cnm_bridge.server.admin.event_counts import BOUNDS_S, Durations, EventCounts
from cnm_bridge.system.journal import Journal


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


def test_a_snapshot_does_not_change() -> None:
    """A thread renders it while the event loop goes on counting."""
    journal, counts = Journal(), EventCounts()
    journal.add_listener(counts.note)
    journal.add("rpc.answered", rpc="NetworkDriver.Join", durationMs=7)
    snapshot = counts.snapshot()
    journal.add("rpc.answered", rpc="NetworkDriver.Join", durationMs=7)
    assert snapshot.calls.total() == snapshot.call_durations["NetworkDriver.Join",].cumulative[-1] == 1
    assert counts.call_durations["NetworkDriver.Join",].cumulative[-1] == 2


def test_a_bound_is_part_of_its_class() -> None:
    """Prometheus' bounds are upper and inclusive; what is above all of them counts in the sum only."""
    durations = Durations()
    for duration_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] + 1e-6, BOUNDS_S[-1] + 1):
        durations.add(duration_s)
    assert durations.cumulative[:3] == (2, 3, 3)
    assert durations.cumulative[-2:] == (3, 4)
