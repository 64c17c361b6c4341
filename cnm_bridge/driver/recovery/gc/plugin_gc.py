# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins' GC (CNI SPEC "Garbage collection"), if the operator has enabled it.

GC does not replace the teardown: an endpoint whose teardown is pending stays valid until that completes. GC removes
what has no record. Plugins cannot know who owns an address, so no other program may use CNI networks of the same names;
see docs/decisions/0008-plugin-gc-is-asked-for.md.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

import structlog

from cni_bridge_spec import render_json
from cni_invoker import CniError, NetworkConfigurationList, Runtime
from cni_invoker.advanced import AttachmentReader, collect_garbage
from cnm_bridge.system.scheduling.time_slice import TimeSlice

__all__ = ["PluginGc"]

log = structlog.get_logger()

_WAIT_S: Final = 1.0
"""Limit for the locks of a network. New containers on the network wait meanwhile, so GC gives up and tries later."""

_RETRY_S: Final = 10.0
"""Pause before the next attempt if GC was deferred."""


class PluginGc:
    """Runs GC.

    Args:
        runtime: Runs the plugins; the same runtime that runs ADD and DEL.
        own: The daemon's attachments.
        others: The caches of other runtimes on this host. Their attachments are valid too.
    """

    def __init__(self, runtime: Runtime, own: AttachmentReader, others: Sequence[AttachmentReader]) -> None:
        self._runtime = runtime
        self._own = own
        self._others = tuple(others)

    async def collect(self, configurations: Iterable[NetworkConfigurationList]) -> None:
        """Run GC once for each of these lists, and for each list that an endpoint was added with.

        All attachments to a network of the same name are valid, whichever list they were added with. Errors are logged;
        the next round tries again.

        Args:
            configurations: The lists of the networks now, each in the CNI version that its plugins receive.
        """
        lists: dict[tuple[str, bytes], NetworkConfigurationList] = {}
        try:
            for network in configurations:
                lists.setdefault((network.name, render_json(network.document)), network)
            async for network in self._stored():
                lists.setdefault((network.name, render_json(network.document)), network)
        except CniError as exc:
            log.warning("gc.failed", error=str(exc))
            return
        for network in lists.values():
            try:
                await collect_garbage(self._runtime, network, (self._own, *self._others), wait_s=_WAIT_S)
            except CniError as exc:
                log.warning("gc.failed", configuration=network.name, error=str(exc))

    async def run(
        self,
        find_configurations: Callable[[], Awaitable[Iterable[NetworkConfigurationList]]],
        find_gap: Callable[[], Awaitable[str | None]],
        *,
        every_s: float,
    ) -> None:
        """Run GC periodically until cancelled.

        Args:
            find_configurations: Returns the lists of the networks now.
            find_gap: Returns None if every endpoint in use has a record, else the reason why that is not certain. Then
                GC is deferred, because the container of an endpoint without a record would lose its address. A
                container that is starting or stopping can be the reason, so the next attempt is soon.
            every_s: The interval in seconds.
        """
        logged: str | None = None
        while True:
            gap: str | None = None
            try:
                gap = await find_gap()
                if gap is None:
                    await self.collect(await find_configurations())
                elif gap != logged:
                    log.warning("gc.deferred", reason=gap)
                logged = gap
            except Exception:  # a bug in background work is logged, and must not end the daemon
                log.exception("gc.bug")
            await asyncio.sleep(every_s if gap is None else min(every_s, _RETRY_S))

    async def _stored(self) -> AsyncIterator[NetworkConfigurationList]:
        time_slice = TimeSlice()
        for cached in await self._own.list():
            await time_slice.pause()
            if cached.configuration is not None:
                yield NetworkConfigurationList.from_document(cached.configuration)
