# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The metrics in Prometheus' text format; pure, apart from the figures of the process itself.

Everything is counted elsewhere, in plain Python. Only this module imports prometheus_client, which owns the format, and
it is imported by the first scrape.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cnm_bridge import __version__
from cnm_bridge.server.admin.event_counts import BOUNDS_S, Durations, EventCounts

_PREFIX = "cni_bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was read for one scrape.

    Attributes:
        endpoints: (configuration, phase) → number of endpoints.
        networks: Number of networks.
        pending_teardowns: Number of teardowns that have failed at least once.
        oldest_failure_s: Seconds since the first failure of the oldest of them, 0 if there is none.
        unpublished: Number of endpoints whose ports are not published.
        engine_is_up: Whether the engine answers.
        rounds: Number of completed rounds of reconcile.
        last_round: When the last one ended, in seconds since 1970; 0 if none has.
        state_bytes: Size of the database's files.
        damaged_copies: Number of copies of damaged files and records that are kept.
        addresses: (network, subnet) → number of addresses that can be assigned.
        reserved: (network,) → number of reservations, of all its subnets.
        docker_addresses: (section, subnet, phase) → number of addresses that Docker has requested from this driver as
            its IPAM driver.
        pending_releases: Number of such addresses whose release has failed at least once.
        direct_addresses: (network, address) → 1, for the addresses that Docker does not know.
        dropped_lines: Number of lines of the log that could not be written.
    """

    endpoints: Mapping[tuple[str, ...], int]
    networks: int
    pending_teardowns: int
    oldest_failure_s: float
    unpublished: int
    engine_is_up: bool
    rounds: int
    last_round: float
    state_bytes: int
    damaged_copies: int
    addresses: Mapping[tuple[str, ...], int]
    reserved: Mapping[tuple[str, ...], int]
    docker_addresses: Mapping[tuple[str, ...], int]
    pending_releases: int
    direct_addresses: Mapping[tuple[str, ...], int]
    dropped_lines: int


def render_metrics(counts: EventCounts, figures: Figures) -> bytes:
    """Return the answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(_families(counts, figures))))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(counts: EventCounts, figures: Figures) -> Iterator[Metric]:
    yield _gauge("build_info", "The version; the value is 1.", {(__version__,): 1}, "version")
    yield _counter("calls", "Calls of Docker, by outcome.", counts.calls, "call", "outcome")
    yield _histogram("call_duration_seconds", "Durations of Docker's calls.", counts.call_durations, "call")
    yield _counter("plugin_executions", "Executions of plugins.", counts.executions, "plugin", "verb", "outcome")
    yield _histogram("plugin_duration_seconds", "Durations of plugins.", counts.execution_durations, "plugin", "verb")
    yield _gauge("endpoints", "Endpoints.", figures.endpoints, "network", "phase")
    yield _value("networks", "Networks.", figures.networks)
    yield _value("pending_teardowns", "Teardowns that have failed and are repeated.", figures.pending_teardowns)
    yield _value(
        "pending_teardown_age_seconds",
        "Seconds since the first failure of the oldest pending teardown, in this run of the daemon.",
        figures.oldest_failure_s,
    )
    yield _value("endpoints_unpublished", "Endpoints whose ports are not published.", figures.unpublished)
    yield _value("engine_up", "1 if the Docker engine answers, else 0.", int(figures.engine_is_up))
    yield _counter("reconcile_rounds", "Completed rounds of reconcile.", {(): figures.rounds})
    yield _value("reconcile_last_round_timestamp_seconds", "When the last one ended.", figures.last_round)
    yield _counter("log_lines_dropped", "Lines of the log that could not be written.", {(): figures.dropped_lines})
    yield _value("state_size_bytes", "Size of the database's files.", figures.state_bytes)
    yield _value("state_damaged_copies", "Copies of damaged files and records.", figures.damaged_copies)
    yield _gauge("ipam_addresses", "Addresses that can be assigned.", figures.addresses, "network", "subnet")
    yield _gauge("ipam_reserved_addresses", "Reserved addresses, of all subnets.", figures.reserved, "network")
    yield _gauge(
        "docker_addresses",
        "Addresses that Docker has requested from its IPAM driver.",
        figures.docker_addresses,
        "section",
        "subnet",
        "phase",
    )
    yield _value("pending_releases", "Such addresses whose release has failed.", figures.pending_releases)
    yield _gauge(
        "direct_address_info",
        "An address that Docker does not know; the value is 1.",
        figures.direct_addresses,
        "network",
        "address",
    )


def _value(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=value)


def _gauge(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, values: Mapping[tuple[str, ...], int], *labels: str) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, values: Mapping[tuple[str, ...], Durations], *labels: str) -> Metric:
    family = HistogramMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    bounds = (*map(str, BOUNDS_S), "+Inf")
    for key, durations in sorted(values.items()):
        family.add_metric(key, list(zip(bounds, durations.cumulative, strict=True)), durations.sum_s)
    return family
