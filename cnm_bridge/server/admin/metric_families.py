# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The metrics in Prometheus' text format; pure, apart from the figures of the process itself.

Everything is counted elsewhere, in plain Python. Only this module imports prometheus_client, which owns the format, and
it is imported by the first scrape.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cnm_bridge import __version__
from cnm_bridge.server.admin.event_counts import BOUNDS_S, Durations, EventCounts

_PREFIX: Final = "cni_bridge"
Values = Mapping[tuple[str, ...], float]
"""Values by their labels; a single value has none."""

_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "endpoints": ("Endpoints.", ("network", "phase")),
    "networks": ("Networks.", ()),
    "pending_teardowns": ("Teardowns that have failed and are repeated.", ()),
    "pending_teardown_age_seconds": (
        "Seconds since the first failure of the oldest pending teardown, in this run of the daemon.",
        (),
    ),
    "endpoints_unpublished": ("Endpoints whose ports are not published.", ()),
    "engine_up": ("1 if the Docker engine answers, else 0.", ()),
    "reconcile_last_round_timestamp_seconds": ("When the last one ended.", ()),
    "state_size_bytes": ("Size of the database's files.", ()),
    "state_damaged_copies": ("Copies of damaged files and records.", ()),
    "ipam_addresses": ("Addresses that can be assigned.", ("network", "subnet")),
    "ipam_reserved_addresses": ("Reserved addresses, of all subnets.", ("network",)),
    "docker_addresses": (
        "Addresses that Docker has requested from its IPAM driver.",
        ("section", "subnet", "phase"),
    ),
    "pending_releases": ("Such addresses whose release has failed.", ()),
    "direct_address_info": ("An address that Docker does not know; the value is 1.", ("network", "address")),
}
"""Name → help and labels."""
_COUNTERS: Final = {
    "reconcile_rounds": "Completed rounds of reconcile.",
    "log_lines_dropped": "Lines of the log that could not be written.",
}


def render_metrics(counts: EventCounts, figures: Mapping[str, Values]) -> bytes:
    """Return the answer to a scrape: what was counted, and the values of each of `_GAUGES` and `_COUNTERS`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(_families(counts, figures))))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(counts: EventCounts, figures: Mapping[str, Values]) -> Iterator[Metric]:
    yield _simple(GaugeMetricFamily, "build_info", "The version; the value is 1.", {(__version__,): 1}, "version")
    yield _simple(CounterMetricFamily, "calls", "Calls of Docker, by outcome.", counts.calls, "call", "outcome")
    yield _histogram("call_duration_seconds", "Durations of Docker's calls.", counts.call_durations, "call")
    executions = counts.executions
    yield _simple(
        CounterMetricFamily, "plugin_executions", "Executions of plugins.", executions, "plugin", "verb", "outcome"
    )
    yield _histogram("plugin_duration_seconds", "Durations of plugins.", counts.execution_durations, "plugin", "verb")
    for name, (text, labels) in _GAUGES.items():
        yield _simple(GaugeMetricFamily, name, text, figures[name], *labels)
    for name, text in _COUNTERS.items():
        yield _simple(CounterMetricFamily, name, text, figures[name])


def _simple(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, values: Values, *labels: str
) -> Metric:
    family = kind(f"{_PREFIX}_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, values: Mapping[tuple[str, ...], Durations], *labels: str) -> Metric:
    family = HistogramMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    bounds = (*map(str, BOUNDS_S), "+Inf")
    for key, durations in sorted(values.items()):
        family.add_metric(key, list(zip(bounds, durations.cumulative, strict=True)), durations.sum_s)
    return family
