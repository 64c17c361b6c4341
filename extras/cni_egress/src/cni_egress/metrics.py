# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`GET /metrics` at an address of the host: what the daemon counts, in Prometheus' text format.

Everything is counted elsewhere, in plain Python. Only this module imports prometheus_client, and it is imported only if
the daemon has such an address. Labels are networks and reasons, never names and containers.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cni_egress import __version__
from cni_egress.durations import BOUNDS_S

__all__ = ["Figures", "render_metrics", "serve_metrics"]

_VALID_S: Final = 1.0
"""How long an answer serves further scrapes."""
_LIMIT_S: Final = 2.0
_HEAD_BYTES: Final = 8192
_PREFIX: Final = "cni_egress"
_TYPE: Final = "text/plain; version=0.0.4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the daemon has counted, and what there is now.

    Attributes:
        queries: (network, outcome) → number of queries.
        refused: (network, kind, reason) → number of refusals.
        noticed: The same, of what passed because of an audit.
        answers: How many allowed queries took at most as long as each of `BOUNDS_S`, and how many there were.
        answers_s: How long these took together, in seconds.
        containers: (network,) → number of guarded containers.
        names: (network,) → number of names in use, each for each container.
        addresses: (network,) → number of addresses that these have opened.
        repairs: How often something was missing in the kernel and was put in force again.
        upstream_is_up: Whether a resolver has answered the last question.
    """

    queries: Mapping[tuple[str, ...], int]
    refused: Mapping[tuple[str, ...], int]
    noticed: Mapping[tuple[str, ...], int]
    answers: tuple[int, ...]
    answers_s: float
    containers: Mapping[tuple[str, ...], int]
    names: Mapping[tuple[str, ...], int]
    addresses: Mapping[tuple[str, ...], int]
    repairs: int
    upstream_is_up: bool


def render_metrics(figures: Figures) -> bytes:
    """Return the answer to a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(_families(figures))))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(figures: Figures) -> Iterator[Metric]:
    yield _gauge("build_info", "The version; the value is 1.", {(__version__,): 1}, "version")
    yield _gauge("containers", "Guarded containers.", figures.containers, "network")
    yield _gauge("names", "Names in use.", figures.names, "network")
    yield _gauge("open_addresses", "Addresses that names have opened.", figures.addresses, "network")
    yield _counter("refused", "What was refused.", figures.refused, "network", "kind", "reason")
    yield _counter("noticed", "What passed because of an audit.", figures.noticed, "network", "kind", "reason")
    yield _counter("queries", "Queries, by outcome.", figures.queries, "network", "outcome")
    bounds = (*map(str, BOUNDS_S), "+Inf")
    yield HistogramMetricFamily(
        f"{_PREFIX}_answer_duration_seconds",
        "How long answers to allowed queries took.",
        buckets=list(zip(bounds, figures.answers, strict=True)),
        sum_value=figures.answers_s,
    )
    yield _counter("repairs", "Repairs of tables, rules and elements.", {(): figures.repairs})
    yield _gauge("upstream_up", "1 if a resolver has answered the last question.", {(): int(figures.upstream_is_up)})


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


async def serve_metrics(listening: socket.socket, read: Callable[[], Figures]) -> None:
    """Answer scrapes, one after the other, until cancelled.

    Args:
        listening: The socket.
        read: Returns the figures.
    """
    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    body, valid_until = b"", 0.0
    while True:
        connection, _ = await loop.sock_accept(listening)
        with connection, suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(_LIMIT_S):
                connection.setblocking(False)
                head = await _receive_head(connection)
                if not head.startswith(b"GET /metrics "):
                    await loop.sock_sendall(connection, _response("404 Not Found", b"see /metrics\n"))
                    continue
                if loop.time() >= valid_until:
                    body, valid_until = await asyncio.to_thread(render_metrics, read()), loop.time() + _VALID_S
                await loop.sock_sendall(connection, _response("200 OK", body))


async def _receive_head(connection: socket.socket) -> bytes:
    """Return the head of a request, or what came of it until the client has closed the connection."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES:
        data = await asyncio.get_running_loop().sock_recv(connection, _HEAD_BYTES)
        if not data:
            break
        head += data
    return head


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
