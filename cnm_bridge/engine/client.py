# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The Docker Engine API, as far as it is asked: networks and the endpoints on them, and whether the engine is up.

While dockerd boots its socket accepts and does not answer, and it starts containers in that time: nothing that a plugin
call needs may come from here. What a call asks all the same it can do without, and does not wait for long: calls have
an `Engine` of their own, with less time.

What answers need not be an engine: a proxy in front of one may answer anything. Shapes are checked here.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer
from aiodocker.networks import DockerNetwork

from cnm_bridge.engine.container import has_name, has_other_network
from cnm_bridge.engine.network import EngineNetwork
from cnm_bridge.errors import EngineUnavailable
from spec import JsonError, JsonObject, get_str

__all__ = ["Engine"]

_NOT_FOUND: Final = 404
_NOT_CONNECTED: Final = 900
"""What aiodocker has for a status where it has got none."""
_NO_ANSWER: Final = (DockerError, aiohttp.ClientError, TimeoutError, OSError)
_MISSHAPEN: Final = (ValueError, LookupError, TypeError, AttributeError)
"""What aiodocker raises at answers of another shape than it expects."""
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
            answer: object = await docker.system.info()
        with self._read():
            return get_str(_json_object(answer, "the answer to GET /info"), "ID")

    async def network_ids(self, driver: str) -> tuple[str, ...]:
        """Return the IDs of the networks made by the driver of this name."""
        async with self._asked() as docker:
            answer: object = await docker.networks.list(filters={"driver": driver})
        with self._read():
            return tuple(get_str(network, "Id") for network in _json_objects(answer, "the answer to GET /networks"))

    async def find_network(self, network_id: str) -> EngineNetwork | None:
        """Return a network with its endpoints, None if the engine does not know it.

        A network that is being made is unknown until CreateNetwork has been answered, and one that is being removed is
        unknown from then on.
        """
        async with self._asked() as docker:
            try:
                answer: object = await DockerNetwork(docker, network_id).show()  # type: ignore[no-untyped-call]
            except DockerError as exc:
                if exc.status == _NOT_FOUND:
                    return None
                raise
        with self._read():
            found = _json_object(answer, "the answer to GET /networks/ID")
            return await asyncio.to_thread(EngineNetwork.from_json, found)  # of thousands of endpoints, maybe

    async def network_name(self, network_id: str) -> str | None:
        """Return the name of a network, None if the engine does not know it; see `find_network`."""
        network = await self.find_network(network_id)
        return None if network is None else network.name

    async def is_only_network(self, network_id: str, endpoint_id: str) -> bool:
        """Return whether the container with an endpoint on a network has no other one; False if that is not certain.

        The engine answers both questions without a lock, so that a call may ask them.
        """
        network = await self.find_network(network_id)
        endpoint = network.endpoints.get(endpoint_id) if network else None
        if network is None or endpoint is None or not endpoint.name:
            return False
        filters = json.dumps({"name": [f"^/{re.escape(endpoint.name)}$"]})
        async with self._asked() as docker:
            answer: object = [
                _shown(container) for container in await docker.containers.list(all="true", filters=filters)
            ]
        with self._read():
            shown = _json_objects(answer, "the answer to GET /containers/json")
            return [has_other_network(one, network) for one in shown if has_name(one, endpoint.name)] == [False]

    async def follow(self, on_up: Callable[[], None]) -> None:
        """Call `on_up` when the engine answers, however long it boots; return when it has gone away, or is not there.

        Its event stream tells: dockerd closes it when it stops, and the kernel does when dockerd is killed.
        """

        async def announce(docker: Docker) -> None:
            with suppress(*_NO_ANSWER, *_MISSHAPEN):
                await docker.system.info()
                on_up()

        with self._answered():
            async with Docker(url=self._host) as docker, asyncio.TaskGroup() as tasks:
                # asked at the same time: what ends the stream later is the end of the engine that answers now
                up = tasks.create_task(announce(docker))
                with suppress(*_NO_ANSWER, *_MISSHAPEN):
                    await docker.events.run(filters=_NETWORKS_ONLY)
                up.cancel()

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Docker]:
        """Give a connection for one question."""
        with self._answered():
            async with asyncio.timeout(self._timeout_s), Docker(url=self._host) as docker:
                yield docker

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Make one kind of error of all that can go wrong on the way to an answer."""
        try:
            yield
        except TimeoutError as exc:
            raise EngineUnavailable(f"{self._name} did not answer within {self._timeout_s:g} s") from exc
        except _NO_ANSWER as exc:
            raise EngineUnavailable(f"{self._name} {_describe(exc)}") from exc
        except _MISSHAPEN as exc:
            raise EngineUnavailable(f"{self._name}: {exc}") from exc

    @contextmanager
    def _read(self) -> Iterator[None]:
        """Make the same of an answer that is none."""
        try:
            yield
        except ValueError as exc:
            raise EngineUnavailable(f"{self._name} answered what no engine does: {exc}") from exc

    @property
    def _name(self) -> str:
        return f"Docker Engine at {self._host}"


def _shown(container: DockerContainer) -> dict[str, object]:
    """Return what is read of a container that aiodocker has listed."""
    return {key: container[key] for key in ("Names", "NetworkSettings")}


def _json_object(value: object, what: str) -> JsonObject:
    """Return an object of JSON, which the standard library has parsed.

    Raises:
        JsonError: It is none; `what` names it.
    """
    if isinstance(value, dict):
        return value
    raise JsonError(f"{what} must be an object")


def _json_objects(value: object, what: str) -> tuple[JsonObject, ...]:
    """Return the objects of an array of JSON; as `_json_object`."""
    if isinstance(value, list):
        return tuple(_json_object(item, f"each item of {what}") for item in value)
    raise JsonError(f"{what} must be an array")


def _describe(exc: BaseException) -> str:
    """Return what kept an engine from answering; the kernel's own words where there are any."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            why = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror  # those of names are negative
            return f"cannot be reached: {why}"
        cause = cause.__cause__ or cause.__context__
    if not isinstance(exc, DockerError):
        return f"did not answer: {str(exc) or type(exc).__name__}"
    if exc.status == _NOT_CONNECTED:
        return "broke the connection without an answer"
    return f"answered with status {exc.status}: {exc.message}"
