# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon `cni-egress`: answers the queries of guarded containers, logs what is refused, and repairs the tables.

It keeps no policy: each query is judged by the record of the container that has its source address. When it is killed,
what the kernel has opened stays open until its time is over, and nothing else is opened.
"""

import asyncio
import logging
import os
import pwd
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cni_egress import __version__
from cni_egress.cache import Cache
from cni_egress.enforcement import Enforcement, NftFailed
from cni_egress.in_use import NamesInUse
from cni_egress.nflog import Nflog, Packet
from cni_egress.opening import OpeningThread
from cni_egress.privileges import become
from cni_egress.records import BadRecord, Record, Records
from cni_egress.refusals import Kind, Refusal, RefusalLog, Why
from cni_egress.renewal import Renewal
from cni_egress.responder import Responder
from cni_egress.sockets import Sockets, has_link, open_sockets
from cni_egress.status import open_status_socket
from cni_egress.supervisor import notify
from cni_egress.table_watch import TableWatch
from cni_egress.tables import LOG_GROUP, RESPONDER4, RESPONDER6
from cni_egress.upstream import ResolvConf, Server, Upstream
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, render_json

__all__ = ["LOG_FILE", "Daemon", "Settings", "run"]

log = logging.getLogger(__name__)

LOG_FILE: Final = "log/refusals.jsonl"
"""The log of refusals, below the directory of the records."""

_QUESTIONS: Final = 4096
"""How many questions may wait for a resolver."""
_LINK_INTERVAL_S: Final = 1.0
_RETRY_S: Final = 10.0
_CHECK_INTERVAL_S: Final = 1.0
_CHECKED: Final = 8
"""How many records are compared with the kernel in a second; each costs one to two milliseconds."""
_PAUSE_S: Final = 1.0
_STATUS_S: Final = 5.0
_NAMED: Final = 5
"""How many things that were missing the log names."""
_REASONS: Final = {"unknown": Why.SOURCE, "spoofed": Why.SPOOFED}
"""Why a packet was refused, by the prefix of the rule that has logged it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings.

    Attributes:
        upstream: The resolvers to ask; none: those of `resolv_conf`.
        resolv_conf: A file that names resolvers.
        grace_s: How long an address stays open after the TTL of the answer that had it, in seconds.
        cache: How many responses are remembered.
        directory: The records of the plugin, and the log of refusals.
        user: The user that the daemon becomes; "": it stays who it is.
        metrics_listen: Where metrics are served over HTTP, for everyone who can connect; None: nowhere.
    """

    upstream: tuple[Server, ...]
    resolv_conf: Path
    grace_s: float
    cache: int
    directory: Path
    user: str
    metrics_listen: Server | None = None


class Daemon:
    """The parts of the daemon, in the thread of the event loop.

    Args:
        settings: Its settings.
        records: The records of containers.
        sockets: Where containers ask.
        status: Where the daemon tells about itself.
        refusals: Where refusals are written.
    """

    def __init__(
        self, settings: Settings, records: Records, sockets: Sockets, status: socket.socket, refusals: RefusalLog
    ) -> None:
        self._settings = settings
        self._records = records
        self._sockets = sockets
        self._status = status
        self._refusals = refusals
        self._containers: Counter[str] = Counter()
        self._repairs = 0
        self._names = NamesInUse()
        self._removal = asyncio.Event()
        self._log_failed = False

    async def serve(self, metrics: socket.socket | None) -> None:
        """Work until SIGTERM or SIGINT.

        Args:
            metrics: Where metrics are served; None: nowhere.

        Raises:
            OSError: It cannot work on.
        """
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        servers = self._settings.upstream
        conf = ResolvConf(self._settings.resolv_conf, besides=frozenset({RESPONDER4, RESPONDER6}))
        upstream = Upstream((lambda: servers) if servers else conf, questions=_QUESTIONS)
        cache = Cache(upstream.ask, size=self._settings.cache)
        grace_s = self._settings.grace_s
        with (
            OpeningThread(self._records) as opening,
            closing(Nflog(LOG_GROUP)) as nflog,
            TableWatch(ignored=opening.port) as watch,
        ):
            renewal = Renewal(self._records, cache, opening, self._names, grace_s=grace_s)
            responder = Responder(self._records, cache, renewal, self._refuse)
            loop.add_reader(nflog, self._read_packets, nflog)
            loop.add_reader(watch, self._read_changes, watch)
            async with asyncio.TaskGroup() as tasks:
                works: dict[str, Callable[[], Awaitable[None]]] = {
                    "responder": partial(responder.serve, self._sockets),
                    "renewal": renewal.run,
                    "repair": partial(self._repair, renewal),
                    "check": self._check,
                    "status": partial(self._tell_status, responder),
                }
                if metrics is not None:
                    works["metrics"] = partial(self._serve_metrics, metrics, responder, upstream)
                running = [tasks.create_task(_supervised(name, work)) for name, work in works.items()]
                running.append(tasks.create_task(self._watch_link(stop)))
                log.info("cni-egress %s answers at %s and %s", __version__, RESPONDER4, RESPONDER6)
                notify("READY=1")
                await stop.wait()
                notify("STOPPING=1")
                for task in running:
                    task.cancel()
            loop.remove_reader(nflog)
            loop.remove_reader(watch)
        if not has_link():
            raise OSError("the link to the responder's namespace is gone; a new start makes it again")

    async def _watch_link(self, stop: asyncio.Event) -> None:
        """Stop when the link to the responder's namespace is gone: only a new start, as root, can make it again."""
        while has_link():  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(_LINK_INTERVAL_S)
        stop.set()

    async def _tell_status(self, responder: Responder) -> None:
        """Send the status to each client that connects."""
        self._status.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._status)
            with connection, suppress(OSError):
                async with asyncio.timeout(_STATUS_S):
                    await loop.sock_sendall(connection, render_json(self._describe_status(responder)))

    async def _serve_metrics(self, listening: socket.socket, responder: Responder, upstream: Upstream) -> None:
        # Loaded by `_listen`: without an address for metrics, their library is not.
        from cni_egress.metrics import Figures, serve_metrics  # noqa: PLC0415

        def read() -> Figures:
            names, addresses = self._names.count()
            refusals = self._refusals.counts
            return Figures(
                queries={**responder.counts},
                refused={key[:3]: count for key, count in refusals.items() if not key[3]},
                noticed={key[:3]: count for key, count in refusals.items() if key[3]},
                answers=responder.durations.cumulative,
                answers_s=responder.durations.sum_s,
                containers={(network,): count for network, count in self._containers.items()},
                names={(network,): count for network, count in names.items()},
                addresses={(network,): count for network, count in addresses.items()},
                repairs=self._repairs,
                upstream_is_up=upstream.is_up,
            )

        await serve_metrics(listening, read)

    def _describe_status(self, responder: Responder) -> JsonObject:
        queries: Counter[str] = Counter()
        for (_, outcome), count in responder.counts.items():
            queries[outcome] += count
        names: list[JsonValue] = [
            {"containerId": container, "ifName": ifname, "name": name, "addresses": [str(one) for one in addresses]}
            for (container, ifname), name, addresses in self._names.names()
        ]
        return {"version": 1, "refusals": self._refusals.counts.total(), "queries": {**queries}, "names": names}

    async def _repair(self, renewal: Renewal) -> None:
        """Repair the tables at the start, and when something is missing."""
        while True:
            self._removal.clear()
            try:
                missing = await asyncio.to_thread(self._repair_now)
                if missing:
                    self._repairs += 1
                    log.warning("put in force again: %s", "; ".join(missing[:_NAMED]))
                    renewal.renew_all_soon()
            except (BadRecord, NftFailed, OSError) as exc:
                log.error("the tables are not repaired yet: %s", exc)  # noqa: TRY400
                await asyncio.sleep(_RETRY_S)
                continue
            await self._removal.wait()

    async def _check(self) -> None:
        """Look for what is missing without a message of the kernel: elements of sets, and routing rules.

        A few records at a time, without their lock: no ADD waits for it. What is missing twice is no ADD that is still
        at work. Before each round, guards of links that do not exist any more are removed.
        """
        rest: list[Record] = []
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            try:
                if not rest:
                    rest = list(await asyncio.to_thread(self._records.all))
                    self._containers = Counter(record.network for record in rest)
                    await asyncio.to_thread(self._remove_stale_guards)
                checked, rest = rest[:_CHECKED], rest[_CHECKED:]
                missing = await asyncio.to_thread(self._find_missing, checked)
                if missing:
                    await asyncio.sleep(_CHECK_INTERVAL_S)
                    if await asyncio.to_thread(self._find_missing, missing):
                        self._removal.set()
            except (BadRecord, OSError) as exc:
                log.error("the tables are not compared: %s", exc)  # noqa: TRY400
                await asyncio.sleep(_RETRY_S)

    def _find_missing(self, records: Sequence[Record]) -> list[Record]:
        with Enforcement(self._records) as enforcement:
            found = [record for record in records if enforcement.missing(record)]
            return [record for record in found if self._records.find(record.container_id, record.ifname) == record]

    def _remove_stale_guards(self) -> None:
        with Enforcement(self._records) as enforcement:
            if enforcement.stale_guards():
                with self._records.locked():
                    enforcement.remove_stale_guards()

    def _repair_now(self) -> tuple[str, ...]:
        with self._records.locked(), Enforcement(self._records) as enforcement:
            return enforcement.repair()

    def _read_changes(self, watch: TableWatch) -> None:
        if watch.has_removal():
            self._removal.set()

    def _read_packets(self, nflog: Nflog) -> None:
        try:
            packets = nflog.receive()
        except OSError as exc:  # the kernel had to drop some
            log.warning("refusals are missing in the log: %s", exc)
            return
        for packet in packets:
            self._refuse(self._describe(packet))

    def _describe(self, packet: Packet) -> Refusal:
        try:
            record = self._records.by_source(packet.source)
        except BadRecord:  # logged when it asks
            record = None
        name = ""
        if record is not None:
            name = self._names.name_of(record, packet.destination)
        return Refusal(
            kind=Kind.CONNECTION,
            why=_REASONS.get(packet.prefix, Why.PORT if name else Why.DESTINATION),
            source=str(packet.source),
            container="" if record is None else record.container_id,
            network="" if record is None else record.network,
            name=name,
            address=str(packet.destination),
            port=packet.port,
            protocol=packet.protocol,
            audit=packet.prefix == "audit",
        )

    def _refuse(self, refusal: Refusal) -> None:
        try:
            self._refusals.add(refusal)
        except OSError as exc:
            if not self._log_failed:
                log.error("the log of refusals cannot be written: %s", exc)  # noqa: TRY400
            self._log_failed = True
        else:
            self._log_failed = False


async def _supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run work, and begin it again after a bug: it must not end the rest."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("%s has failed, and begins again", name)
        await asyncio.sleep(_PAUSE_S)


def run(settings: Settings) -> None:
    """Run the daemon until it is stopped.

    Raises:
        OSError: It cannot start. BlockingIOError: another one runs.
    """
    records = Records(settings.directory)
    path = settings.directory / LOG_FILE
    with ExitStack() as stack:
        stack.enter_context(records.responding())
        with records.locked():  # the file exists from now on: another user could not make it
            pass
        sockets = stack.enter_context(open_sockets())
        owner = pwd.getpwnam(settings.user).pw_uid if settings.user else os.getuid()
        status = stack.enter_context(open_status_socket(settings.directory, owner))
        metrics = None if settings.metrics_listen is None else stack.enter_context(_listen(settings.metrics_listen))
        path.parent.mkdir(mode=0o755, exist_ok=True)
        if settings.user:
            # Other users must not read the records: who can read a file can lock it, and keep ADD and DEL waiting.
            os.chown(settings.directory, -1, pwd.getpwnam(settings.user).pw_gid)
            settings.directory.chmod(0o750)
            for owned in (path.parent, *path.parent.iterdir()):
                shutil.chown(owned, settings.user)
            become(settings.user)
        refusals = stack.enter_context(closing(RefusalLog(path)))
        asyncio.run(Daemon(settings, records, sockets, status, refusals).serve(metrics))


def _listen(address: Server) -> socket.socket:
    """Return a socket for scrapes of metrics; load what answers them, as long as this process may read everything.

    Raises:
        OSError: The address cannot be had.
    """
    import cni_egress.metrics  # noqa: F401, PLC0415

    try:
        return socket.create_server(
            (address.host, address.port), family=socket.AF_INET6 if ":" in address.host else socket.AF_INET
        )
    except OSError as exc:
        raise OSError(f"cannot listen at {address}: {os.strerror(exc.errno or 0)}; set --metrics-listen") from exc
