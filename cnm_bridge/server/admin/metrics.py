# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`GET /metrics`: what the daemon counts, in Prometheus' text format, at the admin socket and at an address of TCP.

Calls and executions are counted when they happen. The rest is read by a scrape, in a thread, and at most once a second:
however many scrape, that delays none of Docker's calls. Strangers can connect to the address: they get no other code of
the daemon.
"""

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError
from cni_bridge_state import AddressRecord, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories, NetworkConfigurationList
from cnm_bridge.core.lists.address_ranges import HOST_LOCAL, find_ranges, reservation_directories
from cnm_bridge.driver.endpoints.after_join import Unpublished
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.event_counts import EventCounts
from cnm_bridge.server.admin.http import Request
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.log import LogWriter

CONTENT_TYPE: Final = "text/plain; version=0.0.4"

_VALID_S: Final = 1.0
"""How long an answer serves further scrapes."""

_AT_ONCE: Final = 32
"""Connections at a time. For a further one the oldest that has sent no request is closed, else it is closed itself. So
strangers leave the descriptors to Docker, and do not keep a scraper out by silence."""
_LIMIT_S: Final = 20.0
"""Time limit of a connection."""
_LONGEST: Final = 8192
"""Bytes of a request."""


@dataclass(slots=True, kw_only=True)
class Metrics:
    """Builds the answers to scrapes.

    Attributes:
        log_output: What writes the log; None if that is not the daemon's own.
    """

    store: Store
    teardowns: TeardownQueue
    reconcile: Reconciler
    unpublished: Unpublished
    releases: Releases
    directories: ConfigurationDirectories
    journal: Journal
    state_dir: Path
    log_output: LogWriter | None
    _counts: EventCounts = field(default_factory=EventCounts, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _answer: bytes = field(default=b"", init=False)
    _valid_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.journal.add_listener(self._counts.note)

    @property
    def request(self) -> Request:
        """The request of a scraper."""
        return Request(path="/metrics", answer=lambda _: self.give(), content_type=CONTENT_TYPE)

    async def give(self) -> bytes:
        """Return the answer to a scrape."""
        async with self._lock:
            if time.monotonic() >= self._valid_until:
                self._answer = await self._read()
                self._valid_until = time.monotonic() + _VALID_S
            return self._answer

    async def _read(self) -> bytes:
        pending = [teardown for teardown in self.teardowns.all.values() if teardown.attempts]
        since = min((teardown.since for teardown in pending if teardown.since is not None), default=None)
        networks = self.store.networks()
        single = {
            "networks": len(networks),
            "pending_teardowns": len(pending),
            "pending_teardown_age_seconds": 0.0 if since is None else max(0.0, time.monotonic() - since),
            "endpoints_unpublished": len(self.unpublished.reasons),
            "engine_up": int(bool(self.reconcile.engine_is_up)),
            "reconcile_rounds": self.reconcile.rounds,
            "reconcile_last_round_timestamp_seconds": self.reconcile.last_round or 0.0,
            "state_damaged_copies": len(self.store.damaged_copies()),
            "pending_releases": sum(release.attempts > 0 for release in self.releases.all.values()),
            "log_lines_dropped": self.log_output.dropped if self.log_output else 0,
        }
        return await asyncio.to_thread(
            self._render,
            counts=deepcopy(self._counts),  # a thread reads it
            single=single,
            endpoints=self.store.endpoints(),
            configurations={network.id: network.configuration or network.name for network in networks},
            subnets={pool.id: str(pool.subnet) for pool in self.store.ipam.pools.all()},
            addresses=self.store.ipam.addresses(),
        )

    def _render(
        self,
        *,
        counts: EventCounts,
        single: Mapping[str, float],
        endpoints: Sequence[EndpointRecord],
        configurations: Mapping[str, str | None],
        subnets: Mapping[str, str],
        addresses: Sequence[AddressRecord],
    ) -> bytes:
        # Imported by the first scrape: a daemon that is never scraped does not load the library.
        from cnm_bridge.server.admin.metric_families import Values, render_metrics  # noqa: PLC0415

        index = self.directories.index()
        lists = [index.find(name) for name in index.names if name in configurations.values()]
        labelled: Mapping[str, Values] = {
            "state_size_bytes": {(): sum(_sizes(self.state_dir))},
            "endpoints": Counter(
                (configurations.get(endpoint.network_id) or "", endpoint.phase.value) for endpoint in endpoints
            ),
            "ipam_addresses": {
                (network.name, str(part.subnet)): part.size for network in lists for part in find_ranges(network)
            },
            "ipam_reserved_addresses": {
                (network.name,): _count_reserved(network) for network in lists if _has_host_local(network)
            },
            "docker_addresses": Counter((one.section, subnets.get(one.pool, ""), one.phase.value) for one in addresses),
            "direct_address_info": {
                (configurations.get(endpoint.network_id) or "", address): 1
                for endpoint in endpoints
                for address in _unknown_to_docker(endpoint)
            },
        }
        return render_metrics(counts, {**labelled, **{name: {(): value} for name, value in single.items()}})


def _unknown_to_docker(record: EndpointRecord) -> Iterator[str]:
    """Yield the addresses of a joined endpoint that Docker does not know: it knows those that it has requested."""
    if record.phase is Phase.JOINED and not record.attachment.mode.docker_knows_addresses:
        requested = {str(one.ip) for one in (record.requested.address, record.requested.address_ipv6) if one}
        yield from (address for address in record.addresses if address not in requested)


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the sizes of the database's files, except those that LevelDB has just removed."""
    for file in (directory / "leveldb").glob("*"):
        with suppress(OSError):
            yield file.stat().st_size


def _has_host_local(network: NetworkConfigurationList) -> bool:
    return bool(find_ranges(network)) and any(plugin.ipam_type == HOST_LOCAL for plugin in network.plugins)


def _count_reserved(network: NetworkConfigurationList) -> int:
    """Return the number of host-local's reservations, by the names of their files alone."""
    names: list[str] = []
    with suppress(JsonError):  # the plugin refuses the list
        for directory in reservation_directories(network):
            with suppress(OSError):  # no address was ever reserved
                names += os.listdir(Path(directory, network.name))  # noqa: PTH208 - ten thousand names
    return sum(map(_is_address, names))


def _is_address(name: str) -> bool:
    try:
        ip_address(name.replace("_", ":"))
    except ValueError:  # `lock`, `last_reserved_ip.0`
        return False
    return True


@asynccontextmanager
async def answering_scrapes(
    sock: socket.socket | None, give_metrics: Callable[[], Awaitable[bytes]]
) -> AsyncIterator[None]:
    """Answer scrapes on a listening socket during the block; do nothing without one."""
    if sock is None:
        yield
        return
    open_now: set[asyncio.StreamWriter] = set()
    without_request: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        without_request[writer] = None
        if len(open_now) > _AT_ONCE:
            oldest = next(iter(without_request))
            oldest.transport.abort()
            open_now.discard(oldest)
            del without_request[oldest]
            if oldest is writer:
                return
        try:
            with suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_LIMIT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    without_request.pop(writer, None)
                    writer.write(await _answer(head, give_metrics))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            open_now.discard(writer)
            without_request.pop(writer, None)
            writer.transport.abort()

    server = await asyncio.start_server(serve, sock=sock, limit=_LONGEST, backlog=_AT_ONCE)
    try:
        yield
    finally:
        server.close()
        for writer in tuple(open_now):
            writer.transport.abort()


async def _answer(head: bytes, give_metrics: Callable[[], Awaitable[bytes]]) -> bytes:
    method, target, *_ = (*head.split(b" ", 2), b"")
    if (method, target.partition(b"?")[0]) != (b"GET", b"/metrics"):
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    body = await give_metrics()
    fields = f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + body
