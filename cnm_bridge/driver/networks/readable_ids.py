# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names for the IDs in errors that Docker's user reads: of networks, and of the containers of endpoints.

Plugins know an endpoint by the ID of its attachment, which CNI calls container ID, and may have it in their messages.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cni_bridge_spec import JsonError
from cni_bridge_state import AttachmentId, EndpointId, NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.system.engine import Engine

_ID: Final = re.compile(r"(?<![\w/.-])(?:(network|endpoint|container) )?([0-9a-f]{64})(?![\w/-])")
"""Not in a path, or in a name that has more than the ID: that must stay as it is."""
_NETWORK: Final = "network"
_ENDPOINT: Final = "endpoint"
_SHORT: Final = 12
_PATIENCE_S: Final = 1.0
"""Time limit of the queries to the engine. A booting dockerd does not answer."""


@dataclass(frozen=True, slots=True)
class ReadableIds:
    """Replaces IDs by names. The engine knows the names of containers, which are not stored."""

    store: Store
    engine: Engine

    async def __call__(self, error: str, own: str | None = None) -> str:
        """Return an error whose networks have names, whose endpoints have containers, and whose IDs are short.

        Without an answer of the engine, the IDs are shortened as `docker` and `cni-bridge` show them. Other IDs, such
        as those of Docker's containers, stay as they are. `own` is the endpoint of the call, whose record may be gone.
        """
        found = {(self._kind(kind, docker_id, own), docker_id) for kind, docker_id in _ID.findall(error)}
        names: dict[str, str] = {}
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for kind, docker_id in sorted(found, reverse=True):  # names of networks are stored
                    if kind:
                        names |= await (self._network(docker_id) if kind == _NETWORK else self._endpoint(docker_id))
        except (EngineUnavailable, JsonError, TimeoutError):
            pass

        def replace(match: re.Match[str]) -> str:
            kind = self._kind(match[1], match[2], own)
            short = match[2][:_SHORT]
            if not kind:
                return match[0]
            return names.get(match[2], f"{kind} {short}") if match[1] else short

        return _ID.sub(replace, error)

    def _kind(self, word: str | None, docker_id: str, own: str | None) -> str:
        """Return of what an ID is, "" if that is not known."""
        if word is not None and word in {_NETWORK, _ENDPOINT}:
            return word
        return _ENDPOINT if docker_id == own or self.store.find_attachment(AttachmentId(docker_id)) is not None else ""

    async def _network(self, network_id: str) -> Mapping[str, str]:
        record = self.store.find_network(NetworkId(network_id))
        name = record.name if record is not None and record.name else await self.engine.network_name(network_id)
        return {network_id: f"network {name}"} if name else {}

    async def _endpoint(self, docker_id: str) -> Mapping[str, str]:
        record = self.store.find_endpoint(EndpointId(docker_id)) or self.store.find_attachment(AttachmentId(docker_id))
        network = None if record is None else await self.engine.find_network(record.network_id)
        endpoint = None if record is None or network is None else network.endpoints.get(record.id)
        if record is None or endpoint is None or not endpoint.name:
            return {}
        return {docker_id: f"container {endpoint.name} (endpoint {record.id[:_SHORT]})"}
