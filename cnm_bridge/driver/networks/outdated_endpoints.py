# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Counts the endpoints that were made from another content than their list has on disk now."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cni_bridge_state import NetworkId
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.planning.plan import configuration_digest
from cnm_bridge.system.scheduling import TimeSlice


@dataclass(frozen=True, slots=True)
class OutdatedEndpoints:
    """Compares the records with the lists that are on disk now."""

    store: Store
    directories: ConfigurationDirectories

    async def count(self) -> Mapping[NetworkId, int]:
        """Return how many endpoints of each network were made before their list changed, or was removed.

        Endpoints without a digest do not count: they were rebuilt, or made from an inline list.
        """
        digests = await asyncio.to_thread(self._digests)
        found: Counter[NetworkId] = Counter()
        time_slice = TimeSlice()
        for one in self.store.endpoints():
            made_from = one.configuration_digest
            if made_from is not None and digests.get(one.attachment.network) != made_from:
                found[one.network_id] += 1
            await time_slice.pause()
        return found

    async def names(self) -> Sequence[str]:
        """Return the names of the lists that are on disk now."""
        return tuple((await asyncio.to_thread(self.directories.index)).names)

    def _digests(self) -> Mapping[str, str]:
        """Return the digests of all lists by name."""
        index = self.directories.index()
        return {name: configuration_digest(index.find(name).document) for name in index.names}
