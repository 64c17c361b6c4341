# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Notices changed CNI configurations, and counts the endpoints that were made from an older content.

The directories are listed every few seconds. inotify would report each write of an unfinished file, nothing on network
file systems, and nothing when a directory above is replaced; listing them takes some hundred microseconds.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from cni_bridge_state import EndpointRecord, NetworkId
from cni_bridge_state.store import Store
from cni_invoker import (
    CniError,
    ConfigurationDirectories,
    ConfigurationIndex,
    NetworkConfigurationList,
    Runtime,
    run_preflight,
)
from cnm_bridge.core.planning.plan import configuration_digest
from cnm_bridge.system.scheduling import TimeSlice

log = structlog.get_logger()

_EVERY_S: Final = 5.0
_Key = TypeVar("_Key")


@dataclass(slots=True)
class ConfigurationWatch:
    """Looks for changes of the lists on disk while the daemon runs, and validates what has changed."""

    store: Store
    directories: ConfigurationDirectories
    runtime: Runtime
    _index: ConfigurationIndex | None = field(default=None, init=False)
    _digests: Mapping[str, str] = field(default_factory=dict, init=False)
    _seen: frozenset[str] = field(default=frozenset(), init=False)

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # a bug is logged, and must not end the daemon
                log.exception("configuration.bug")
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Log each list in use that has changed since the last look, and why it cannot be used, if it cannot."""
        index = await asyncio.to_thread(self.directories.index)
        if index is self._index:
            return
        digests = await self._read(index)
        is_first, self._index = self._index is None, index
        before, self._digests = self._digests, digests
        seen, self._seen = self._seen, self._seen | digests.keys()
        changed = sorted(name for name in {*before, *digests} if before.get(name) != digests.get(name))
        if is_first or not changed:
            return
        endpoints = await self._count(lambda one: (one.attachment.network, _is_outdated(one, digests)))
        in_use = {*(name for name, _ in endpoints), *(one.configuration or one.name for one in self.store.networks())}
        for name in changed:
            if name in in_use:
                outdated = endpoints[name, True]
                has_changed = name in seen or outdated > 0  # a list may be used before the first look at it
                await self._report(name, index, endpoints[name, False] + outdated, has_changed=has_changed)

    async def outdated(self) -> Mapping[NetworkId, int]:
        """Return how many endpoints of each network were made before their list changed, or was removed.

        Endpoints without a digest do not count: they were rebuilt, or made from an inline list.
        The lists are those that are on disk now.
        """
        index = await asyncio.to_thread(self.directories.index)
        digests = await self._read(index)
        return await self._count(lambda one: one.network_id if _is_outdated(one, digests) else None)

    async def names(self) -> Sequence[str]:
        """Return the names of the lists that are on disk now."""
        return tuple((await asyncio.to_thread(self.directories.index)).names)

    async def _read(self, index: ConfigurationIndex) -> Mapping[str, str]:
        """Return the digests of all lists by name; those of the last look are not made again."""
        return self._digests if index is self._index else await asyncio.to_thread(_digests, index)

    async def _count(self, key: Callable[[EndpointRecord], _Key | None]) -> Counter[_Key]:
        """Return how many endpoints have each key, without those that have none."""
        found: Counter[_Key] = Counter()
        time_slice = TimeSlice()
        for one in self.store.endpoints():
            value = key(one)
            if value is not None:
                found[value] += 1
            await time_slice.pause()
        return found

    async def _report(self, name: str, index: ConfigurationIndex, endpoints: int, *, has_changed: bool) -> None:
        problem = await self._find_problem(name, index)
        if problem is None and has_changed:
            log.info("configuration.changed", name=name, file=str(index.find(name).source), endpoints=endpoints)
        elif problem is not None:
            log.warning("configuration.invalid", name=name, error=problem, endpoints=endpoints)

    async def _find_problem(self, name: str, index: ConfigurationIndex) -> str | None:
        """Return why new containers cannot be attached by a list now; None if they can."""
        try:
            found: NetworkConfigurationList = index.find(name)
            preflight = await run_preflight(self.runtime, found)
        except CniError as exc:
            return str(exc)
        return None if preflight.is_good else "; ".join(preflight.all_problems)


def _is_outdated(one: EndpointRecord, digests: Mapping[str, str]) -> bool:
    """Return whether an endpoint was made from another content than its list has."""
    made_from = one.configuration_digest
    return made_from is not None and digests.get(one.attachment.network) != made_from


def _digests(index: ConfigurationIndex) -> Mapping[str, str]:
    """Return the digests of all lists by name."""
    return {name: configuration_digest(index.find(name).document) for name in index.names}
