# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names for the IDs in errors that Docker's user reads: of networks, and of the containers of endpoints."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cni_bridge_spec import JsonError
from cni_bridge_state import EndpointId, NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.system.engine import Engine

_ID: Final = re.compile(r"\b(network|endpoint) ([0-9a-f]{64})\b")
_SHORT: Final = 12
_PATIENCE_S: Final = 1.0
"""Time limit of the queries to the engine. A booting dockerd does not answer."""


@dataclass(frozen=True, slots=True)
class ReadableIds:
    """Replaces IDs by names.

    Attributes:
        store: The records.
        engine: Knows the names of containers, which are not stored.
    """

    store: Store
    engine: Engine

    async def __call__(self, error: str) -> str:
        """Return an error whose networks have names, whose endpoints have containers, and whose IDs are short.

        Without an answer of the engine, the IDs are shortened as `docker` and `cni-bridge` show them.
        """
        found = set(_ID.findall(error))
        names: dict[str, str] = {}
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for kind, one in sorted(found, reverse=True):  # names of networks are stored
                    names |= await (self._network(one) if kind == "network" else self._endpoint(one))
        except (EngineUnavailable, JsonError, TimeoutError):
            pass
        return _ID.sub(lambda match: names.get(match[2], f"{match[1]} {match[2][:_SHORT]}"), error)

    async def _network(self, network_id: str) -> Mapping[str, str]:
        record = self.store.find_network(NetworkId(network_id))
        name = record.name if record is not None and record.name else await self.engine.network_name(network_id)
        return {network_id: f"network {name}"} if name else {}

    async def _endpoint(self, endpoint_id: str) -> Mapping[str, str]:
        record = self.store.find_endpoint(EndpointId(endpoint_id))
        network = None if record is None else await self.engine.find_network(record.network_id)
        endpoint = None if network is None else network.endpoints.get(endpoint_id)
        if endpoint is None or not endpoint.name:
            return {}
        return {endpoint_id: f"container {endpoint.name} (endpoint {endpoint_id[:_SHORT]})"}
