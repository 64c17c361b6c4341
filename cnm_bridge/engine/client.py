# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The Docker Engine API, as far as it is asked: networks and the endpoints on them, and whether the engine is up.

While dockerd boots its socket accepts and does not answer, and it starts containers in that time: nothing that a plugin
call needs may come from here. What a call asks all the same it can do without, and does not wait for long.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.networks import DockerNetwork

from cnm_bridge.engine.container import has_name, has_other_network
from cnm_bridge.engine.network import EngineNetwork
from cnm_bridge.errors import EngineUnavailable

__all__ = ["Engine"]

_NOT_FOUND: Final = 404
_NO_ANSWER: Final = (DockerError, aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError)
_NETWORKS_ONLY: Final = '{"type": ["network"]}'


class Engine:
    """Questions to one Docker Engine. Every one of them raises `EngineUnavailable` where it gets no answer.

    Args:
        host: Where it listens: `unix:///path` or `tcp://host:port`.
        timeout_s: How long one question may take.
    """

    def __init__(self, host: str, timeout_s: float) -> None:
        self._host = host
        self._timeout_s = timeout_s

    async def identity(self) -> str:
        """Return the engine's own ID, which it keeps as long as its data directory."""
        async with self._asked() as docker:
            return str((await docker.system.info())["ID"])

    async def network_ids(self, driver: str) -> tuple[str, ...]:
        """Return the IDs of the networks made by the driver of this name."""
        async with self._asked() as docker:
            networks: list[dict[str, Any]] = await docker.networks.list(filters={"driver": driver})
            return tuple(str(network["Id"]) for network in networks)

    async def find_network(self, network_id: str) -> EngineNetwork | None:
        """Return a network with its endpoints, None if the engine does not know it.

        A network that is being made is unknown until CreateNetwork has been answered, and one that is being removed is
        unknown from then on.
        """
        async with self._asked() as docker:
            try:
                found = await DockerNetwork(docker, network_id).show()  # type: ignore[no-untyped-call]
                return await asyncio.to_thread(EngineNetwork.from_json, found)  # of thousands of endpoints, maybe
            except DockerError as exc:
                if exc.status == _NOT_FOUND:
                    return None
                raise

    async def network_name(self, network_id: str) -> str | None:
        """Return the name of a network, None if the engine does not know it; see `find_network`."""
        network = await self.find_network(network_id)
        return None if network is None else network.name

    async def is_only_network(self, network_id: str, endpoint_id: str) -> bool:
        """Tell whether the container with an endpoint on a network has no other one; False if that is not certain.

        The engine answers both questions without a lock, so that a call may ask them.
        """
        network = await self.find_network(network_id)
        endpoint = network.endpoints.get(endpoint_id) if network else None
        if network is None or endpoint is None or not endpoint.name:
            return False
        filters = json.dumps({"name": [f"^/{re.escape(endpoint.name)}$"]})
        async with self._asked() as docker:
            found = await docker.containers.list(all="true", filters=filters)
            shown = [{key: one[key] for key in ("Names", "NetworkSettings")} for one in found]
            return [has_other_network(one, network) for one in shown if has_name(one, endpoint.name)] == [False]

    async def follow(self, on_up: Callable[[], None]) -> None:
        """Call `on_up` when the engine answers, however long it boots; return when it has gone away, or is not there.

        Its event stream tells: dockerd closes it when it stops, and the kernel does when dockerd is killed.
        """

        async def announce(docker: Docker) -> None:
            with suppress(*_NO_ANSWER):
                await docker.system.info()
                on_up()

        with self._translated():
            async with Docker(url=self._host) as docker, asyncio.TaskGroup() as tasks:
                # asked at the same time: what ends the stream later is the end of the engine that answers now
                up = tasks.create_task(announce(docker))
                with suppress(*_NO_ANSWER):
                    await docker.events.run(filters=_NETWORKS_ONLY)
                up.cancel()

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Docker]:
        """Give a connection for one question."""
        with self._translated():
            async with asyncio.timeout(self._timeout_s), Docker(url=self._host) as docker:
                yield docker

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Make one kind of error of all that can go wrong with a question."""
        try:
            yield
        except _NO_ANSWER as exc:
            raise EngineUnavailable(f"Docker Engine at {self._host}: {str(exc) or type(exc).__name__}") from exc
