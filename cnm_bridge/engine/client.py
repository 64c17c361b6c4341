# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The Docker Engine API, as far as it is asked: the names of networks.

Background only. While dockerd boots its socket accepts and does not answer, and it starts containers in that time:
nothing that a plugin call needs may come from here.
"""

import asyncio

import aiohttp
from aiodocker import Docker, DockerError

from cnm_bridge.errors import EngineUnavailable

__all__ = ["Engine"]

_NOT_FOUND = 404


class Engine:
    """Questions to one Docker Engine.

    Args:
        host: Where it listens: `unix:///path` or `tcp://host:port`.
        timeout_s: How long one question may take.
    """

    def __init__(self, host: str, timeout_s: float) -> None:
        self._host = host
        self._timeout_s = timeout_s

    async def network_name(self, network_id: str) -> str | None:
        """Return the name of a network, None if the engine does not know it (yet).

        A network that is being made is unknown to the engine until CreateNetwork has been answered.

        Raises:
            EngineUnavailable: The engine does not answer.
        """
        try:
            async with asyncio.timeout(self._timeout_s), Docker(url=self._host) as docker:
                network = await docker.networks.get(network_id)
                name: str = (await network.show())["Name"]
        except DockerError as exc:
            if exc.status == _NOT_FOUND:
                return None
            raise EngineUnavailable(f"Docker Engine at {self._host}: {exc}") from exc
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as exc:
            raise EngineUnavailable(f"Docker Engine at {self._host}: {str(exc) or type(exc).__name__}") from exc
        return name
