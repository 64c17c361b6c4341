# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Has plugins clean up what belongs to no endpoint (CNI SPEC "Garbage collection"); only if the operator wants it.

It does not replace the teardown: an endpoint whose teardown is pending is valid until that completes. GC is for what no
record knows any more. Plugins cannot know the owner of an address, so only the daemon may use these network names;
see docs/decisions/0008-plugin-gc-is-asked-for.md.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

import structlog

from cni_invoker import AttachmentReader, CniError, NetworkConfigurationList, Runtime, collect_garbage
from cnm_bridge.scheduling.time_slice import TimeSlice
from spec import render_json

__all__ = ["PluginGc"]

log = structlog.get_logger()

_WAIT_S: Final = 1.0
"""Containers that come to the network wait as long; what is not free by then is collected another time."""

_SOON_S: Final = 10.0
"""When it is tried again if it could not be."""


class PluginGc:
    """Runs GC.

    Args:
        runtime: Runs the plugins; the one that adds and deletes.
        own: The daemon's endpoints.
        others: The readable caches of other runtimes on this host: their attachments are valid too.
    """

    def __init__(self, runtime: Runtime, own: AttachmentReader, others: Sequence[AttachmentReader]) -> None:
        self._runtime = runtime
        self._own = own
        self._others = tuple(others)

    async def collect(self, configurations: Iterable[NetworkConfigurationList]) -> None:
        """Run GC once for each of these lists, and for each list that an endpoint was added with.

        Every attachment to a network of the same name is valid, whichever list it was added with. What goes wrong is
        logged; it is tried again the next time.

        Args:
            configurations: The lists that networks are bound to now, in the version their plugins are spoken to in.
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
        """Collect now and then for as long as it is not cancelled.

        Args:
            find_configurations: Gives the lists that networks are bound to.
            find_gap: Returns the reason if it is not certain that every endpoint in use has a record, else None. In
                doubt GC does not run, because the container of an endpoint without a record would lose its address.
                Starting or stopping containers may be the reason, so it is called again soon.
            every_s: How often, in seconds.
        """
        said: str | None = None
        while True:
            doubt: str | None = None
            try:
                doubt = await find_gap()
                if doubt is None:
                    await self.collect(await find_configurations())
                elif doubt != said:
                    log.warning("gc.put_off", reason=doubt)
                said = doubt
            except Exception:  # a bug in background work must neither end the daemon nor go unseen
                log.exception("gc.bug")
            await asyncio.sleep(every_s if doubt is None else min(every_s, _SOON_S))

    async def _stored(self) -> AsyncIterator[NetworkConfigurationList]:
        time_slice = TimeSlice()
        for cached in await self._own.list():
            await time_slice.pause()
            if cached.configuration is not None:
                yield NetworkConfigurationList.from_document(cached.configuration)
