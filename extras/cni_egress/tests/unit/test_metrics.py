# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Prometheus scrapes, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client.parser import text_string_to_metric_families

from cni_egress.metrics import Figures, serve_metrics
from tests.egress.metrics_example import render_example

NONE = Figures(
    queries={},
    refused={},
    noticed={},
    answers=(0,) * 13,
    answers_s=0.0,
    containers={},
    names={},
    addresses={},
    repairs=0,
    upstream_is_up=False,
)


class Served:
    """Metrics that are served.

    Attributes:
        reads: How often the figures were read.
    """

    def __init__(self, listening: socket.socket) -> None:
        self.reads = 0
        self._address = listening.getsockname()

    def read(self) -> Figures:
        """Return the figures."""
        self.reads += 1
        return NONE

    async def ask(self, request: bytes) -> bytes:
        """Return the response to a request, up to the end of the connection."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(request)
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    """Serve metrics for the length of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = Served(listening)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve_metrics(listening, made.read))
            try:
                yield made
            finally:
                serving.cancel()


def test_the_figures() -> None:
    """Each has the labels that are documented, by alphabet; buckets are cumulative, and a bound is in its own."""
    families = text_string_to_metric_families(render_example().decode())
    samples = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
    assert samples["cni_egress_queries_total", "agents", "noerror"] == 310
    assert samples["cni_egress_refused_total", "name", "agents", "name not allowed"] == 12
    assert samples["cni_egress_noticed_total", "connection", "probe", "destination not allowed"] == 3
    buckets = [value for (name, *_), value in samples.items() if name == "cni_egress_answer_duration_seconds_bucket"]
    assert (buckets[:3], buckets[-2:]) == ([2, 2, 3], [3, 4])
    assert samples["cni_egress_answer_duration_seconds_count",] == 4
    assert samples["cni_egress_open_addresses", "agents"] == 9
    assert samples["cni_egress_repairs_total",] == samples["cni_egress_upstream_up",] == 1


async def test_scrapes() -> None:
    """The figures are read at most once a second."""
    async with served() as metrics:
        for _ in range(3):
            response = await metrics.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            head, _, body = response.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n")
            assert f"Content-Length: {len(body)}".encode() in head
            assert b"cni_egress_upstream_up 0.0" in body
    assert metrics.reads == 1


async def test_what_is_no_scrape() -> None:
    """It is not served, and holds up the next one for a short time only, even if nothing comes of it."""
    async with served() as metrics:
        for request in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\r\n\r\n"):
            assert (await metrics.ask(request)).startswith(b"HTTP/1.1 404 ")
        _, silent = await asyncio.open_connection(*metrics._address)
        assert b" 200 OK" in await metrics.ask(b"GET /metrics HTTP/1.1\r\n\r\n")
        silent.close()
