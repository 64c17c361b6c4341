# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Notices changed CNI configurations, and counts the endpoints that were made from an older content.

The directories are listed every few seconds. inotify would report each write of an unfinished file, nothing on network
file systems, and nothing when a directory above is replaced; listing them takes some hundred microseconds.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

import structlog

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state import EndpointRecord, NetworkId, Store
from cni_invoker import CniError, ConfigurationDirectories, NetworkConfigurationList, Runtime, run_preflight
from cni_invoker.advanced import ConfigurationIndex

__all__ = ["ConfigurationWatch", "configuration_digest", "count_outdated"]

log = structlog.get_logger()

_EVERY_S: Final = 5.0
_DIGITS: Final = 16


def configuration_digest(document: JsonObject) -> str:
    """Return what an endpoint's record keeps of the content of its list: equal for equal content."""
    return sha256(render_json(document)).hexdigest()[:_DIGITS]


def count_outdated(endpoints: Iterable[EndpointRecord], configurations: Mapping[str, str]) -> Mapping[NetworkId, int]:
    """Return how many endpoints of each network were made from a list that has another content now, or is gone.

    Endpoints without a digest do not count: they were made by an earlier version, rebuilt, or from an inline list.

    Args:
        endpoints: The endpoints.
        configurations: The digests of the lists that are on disk now, by name.
    """
    return Counter(
        one.network_id
        for one in endpoints
        if one.configuration_digest is not None and configurations.get(one.cni_network) != one.configuration_digest
    )


class ConfigurationWatch:
    """Looks for changes of the lists on disk while the daemon runs, and validates what has changed.

    Args:
        store: The networks and endpoints.
        directories: The lists on disk.
        runtime: Checks whether plugins can be run.
    """

    def __init__(self, store: Store, directories: ConfigurationDirectories, runtime: Runtime) -> None:
        self._store = store
        self._directories = directories
        self._runtime = runtime
        self._index: ConfigurationIndex | None = None
        self._digests: Mapping[str, str] = {}

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
        index = await asyncio.to_thread(self._directories.index)
        if index is self._index:
            return
        is_first, self._index = self._index is None, index
        before, self._digests = (
            self._digests,
            {name: configuration_digest(index.find(name).document) for name in index.names},
        )
        if is_first:
            return
        for name in sorted({*before, *self._digests}):
            if before.get(name) != self._digests.get(name):
                await self._report(name, index)

    def outdated(self) -> Mapping[NetworkId, int]:
        """Return how many endpoints of each network were made before their list changed, as of the last look."""
        return {} if self._index is None else count_outdated(self._store.endpoints(), self._digests)

    async def _report(self, name: str, index: ConfigurationIndex) -> None:
        endpoints = [one for one in self._store.endpoints() if one.cni_network == name]
        if not endpoints and name not in self._names():
            return
        problem = await self._find_problem(name, index)
        if problem is None:
            log.info("configuration.changed", name=name, file=str(index.find(name).source), endpoints=len(endpoints))
        else:
            log.warning("configuration.invalid", name=name, error=problem, endpoints=len(endpoints))

    async def _find_problem(self, name: str, index: ConfigurationIndex) -> str | None:
        """Return why new containers cannot be attached by a list now; None if they can."""
        try:
            found: NetworkConfigurationList = index.find(name)
            preflight = await run_preflight(self._runtime, found)
        except CniError as exc:
            return str(exc)
        return None if preflight.is_good else "; ".join(preflight.all_problems)

    def _names(self) -> frozenset[str | None]:
        return frozenset(one.configuration or one.name for one in self._store.networks())
