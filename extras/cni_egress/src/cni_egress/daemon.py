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
    """

    upstream: tuple[Server, ...]
    resolv_conf: Path
    grace_s: float
    cache: int
    directory: Path
    user: str


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
        self._names = NamesInUse()
        self._removal = asyncio.Event()
        self._log_failed = False

    async def serve(self) -> None:
        """Work until SIGTERM or SIGINT.

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
        with OpeningThread(self._records) as opening, closing(Nflog(LOG_GROUP)) as nflog, TableWatch() as watch:
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

    def _describe_status(self, responder: Responder) -> JsonObject:
        names: list[JsonValue] = [
            {"containerId": container, "ifName": ifname, "name": name, "addresses": [str(one) for one in addresses]}
            for (container, ifname), name, addresses in self._names.names()
        ]
        return {"version": 1, "refusals": self._refusals.count, "queries": {**responder.counts}, "names": names}

    async def _repair(self, renewal: Renewal) -> None:
        """Repair the tables at the start, and when something is missing."""
        while True:
            self._removal.clear()
            try:
                missing = await asyncio.to_thread(self._repair_now)
                if missing:
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
        at work.
        """
        rest: list[Record] = []
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            try:
                rest = rest or list(await asyncio.to_thread(self._records.all))
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
        path.parent.mkdir(mode=0o755, exist_ok=True)
        if settings.user:
            # Other users must not read the records: who can read a file can lock it, and keep ADD and DEL waiting.
            os.chown(settings.directory, -1, pwd.getpwnam(settings.user).pw_gid)
            settings.directory.chmod(0o750)
            for owned in (path.parent, *path.parent.iterdir()):
                shutil.chown(owned, settings.user)
            become(settings.user)
        refusals = stack.enter_context(closing(RefusalLog(path)))
        asyncio.run(Daemon(settings, records, sockets, status, refusals).serve())
