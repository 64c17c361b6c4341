# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Queries to the Docker Engine API, for what Docker's calls do not contain. No call of Docker depends on it.

A booting dockerd accepts connections and does not answer, while it already starts containers. So no plugin call may
depend on an answer. Calls that ask anyway use an `Engine` of their own with a shorter time limit, and continue without
an answer.

A proxy in front of the engine may answer anything, so the shape of every answer is checked here.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.networks import DockerNetwork

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, find_str, get_object, get_str
from cnm_bridge.core.engine_facts.container import EngineContainer, find_sandbox, has_name
from cnm_bridge.core.engine_facts.engine import EngineDescription, EngineVersion
from cnm_bridge.core.engine_facts.network import (
    EngineIpamNetwork,
    EngineNetwork,
    find_pools,
    has_ipam_driver,
    is_on_this_host,
)
from cnm_bridge.core.errors import EngineRefused, EngineSilent, EngineUnavailable
from cnm_bridge.core.link_state import IpNetwork

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_NOT_CONNECTED: Final = 900
"""The status that aiodocker reports if there was no response."""
_NO_ANSWER: Final = (DockerError, aiohttp.ClientError, TimeoutError, OSError)
_UNEXPECTED_SHAPE: Final = (ValueError, LookupError, TypeError, AttributeError)
"""The errors that aiodocker raises if an answer has an unexpected shape."""
_NETWORK_EVENTS: Final = '{"type": ["network"], "event": ["create", "connect"]}'


class Engine:
    """A client of one Docker Engine.

    Every query raises `EngineRefused` if the engine refuses, and `EngineUnavailable` if there is no valid answer: then
    the engine may still do what was asked for.

    Args:
        host: The address of its API: `unix:///path` or `tcp://host:port`.
        timeout_s: Time limit of one query.
        stays_open: Whether connections and the version of the API stay for later queries, which saves 10 ms each.
            `close` must be called then.
    """

    def __init__(self, host: str, timeout_s: float, *, stays_open: bool = False) -> None:
        self._host = host
        self._timeout_s = timeout_s
        self._stays_open = stays_open
        self._open: Docker | None = None
        self._queries = 0

    async def close(self) -> None:
        """Close the connection that stays open."""
        docker, self._open = self._open, None
        if docker is not None:
            await docker.close()

    async def identity(self) -> str:
        """Return the engine's ID, with its data directory, where it stores its networks.

        Before Engine 24 the ID comes from `/etc/docker`, so that two engines of a host may have the same.
        """
        async with self._asked() as docker:
            info = await _info(docker)
            return " ".join(filter(None, (get_str(info, "ID"), find_str(info, "DockerRootDir"))))

    async def version(self) -> EngineVersion | None:
        """Return the engine's version, None if it has no number."""
        async with self._asked() as docker:
            return _version(await _info(docker))

    async def describe(self) -> EngineDescription:
        """Return what `docker info` shows of the engine."""
        async with self._asked() as docker:
            return EngineDescription.from_json(await _info(docker))

    async def network_ids(self, driver: str) -> tuple[str, ...]:
        """Return the IDs of the networks of the driver with this name."""
        async with self._asked() as docker:
            found = await _networks(docker, driver)
            return tuple(get_str(network, "Id") for network in found)

    async def find_network(self, network_id: str) -> EngineNetwork | None:
        """Return a network with its endpoints, None if the engine's host does not have it.

        It does not have a network before the reply to CreateNetwork, or after the reply to DeleteNetwork. A network of
        a swarm is created when the host's first task on it starts, and deleted when the last one ends.
        """
        async with self._asked() as docker:
            found = await _network(docker, network_id)
            if found is None or not is_on_this_host(found):
                return None
            return await asyncio.to_thread(EngineNetwork.from_json, found)  # it may have thousands of endpoints

    async def ipam_networks(self, driver: str) -> tuple[EngineIpamNetwork, ...]:
        """Return the networks, of any driver, whose IPAM driver has this name, with the addresses that they have."""
        async with self._asked() as docker:
            listed = await _networks(docker)
            ids = [get_str(one, "Id") for one in listed if has_ipam_driver(one, driver)]
            shown = [await _network(docker, network_id) for network_id in ids]
            known = [one for one in shown if one is not None]
            return tuple([await asyncio.to_thread(EngineIpamNetwork.from_json, one) for one in known])  # as above

    async def find_network_named(self, name: str) -> EngineNetwork | None:
        """Return the network with a name, None if there is none."""
        network = await self.find_network(name)  # the engine also finds a network by the beginning of its ID
        return network if network is not None and network.name == name else None

    async def create_network(self, body: Mapping[str, object]) -> None:
        """Create a network; the body is that of `POST /networks/create`. The engine calls its driver meanwhile."""
        async with self._asked() as docker:
            await docker.networks.create(dict(body))

    async def remove_network(self, network_id: str) -> None:
        """Remove a network, as `docker network rm`. The engine calls its driver meanwhile."""
        async with self._asked() as docker:
            await DockerNetwork(docker, network_id).delete()  # type: ignore[no-untyped-call]

    async def disconnect(self, network_id: str, container_id: str) -> None:
        """Take a container off a network, as `docker network disconnect`. The engine calls its driver meanwhile."""
        async with self._asked() as docker:
            await DockerNetwork(docker, network_id).disconnect({"Container": container_id})  # type: ignore[no-untyped-call]

    async def subnets(self) -> tuple[tuple[str, IpNetwork], ...]:
        """Return the subnets that Docker's own IPAM uses, of all drivers, each with the name of its network."""
        async with self._asked() as docker:
            found = await _networks(docker)
            return tuple((get_str(network, "Name"), pool.subnet) for network in found for pool in find_pools(network))

    async def network_name(self, network_id: str) -> str | None:
        """Return the name of a network, None if the engine does not know it; see `find_network`."""
        network = await self.find_network(network_id)
        return None if network is None else network.name

    async def network_names(self) -> Mapping[str, str]:
        """Return the name of each network, by ID."""
        async with self._asked() as docker:
            found = await _networks(docker)
            return {get_str(network, "Id"): get_str(network, "Name") for network in found}

    async def containers(self) -> tuple[EngineContainer, ...]:
        """Return all containers, including those that do not run.

        Not for the daemon: the answer for thousands of containers is parsed in one turn of the event loop.
        """
        async with self._asked() as docker:
            shown = await _containers(docker, "Id", "Names", "Image", "State", "NetworkSettings")
            return tuple(map(EngineContainer.from_json, shown))

    async def find_starting(self, container_ids: Sequence[str]) -> tuple[EngineContainer, ...]:
        """Return the containers with these IDs that the engine lists. One of them is being started or connected.

        A call of Docker may use it: the engine answers without a lock that a running driver call holds.
        """
        filters = json.dumps({"id": list(container_ids)})
        keys = ("Id", "Names", "Image", "Labels", "State", "HostConfig", "NetworkSettings")
        async with self._asked() as docker:
            shown = await _containers(docker, *keys, filters=filters)
            return tuple(map(EngineContainer.from_json, shown))

    async def find_container_named(self, name: str) -> EngineContainer | None:
        """Return the container with a name, None if there is none. A call of Docker may use it, as `find_starting`."""
        filters = json.dumps({"name": [f"^/{re.escape(name)}$"]})
        async with self._asked() as docker:
            shown = await _containers(docker, "Id", "Names", "Image", "State", "NetworkSettings", filters=filters)
            return next((EngineContainer.from_json(one) for one in shown if has_name(one, name)), None)

    async def find_sandbox(self, container_id: str, endpoint_id: str) -> str | None:
        """Return the path of the sandbox of a container, None if it does not exist or does not have the endpoint.

        Not for calls: the engine answers only when it does not start or stop the container.
        """
        async with self._asked() as docker:
            query = docker.containers.container(container_id).show()
            shown = await _unless_missing(query, "the answer to GET /containers/ID/json")
            return None if shown is None else find_sandbox(shown, endpoint_id)

    async def follow(
        self,
        on_up: Callable[[EngineVersion | None], None],
        on_network: Callable[[], None],
        on_connected: Callable[[str], None],
    ) -> None:
        """Call `on_up` when the engine answers, however long it boots; return when it has stopped or is not running.

        Uses the event stream, which ends when dockerd stops or is killed.

        Args:
            on_up: Receives the engine's version, None if it is not readable.
            on_network: Is called when a network has been made, of whichever driver.
            on_connected: Receives the ID of a container when it has been connected to a network: while it runs, or
                because it is being started.
        """

        async def announce(docker: Docker) -> None:
            with suppress(*_NO_ANSWER, *_UNEXPECTED_SHAPE):
                on_up(_version(await _info(docker)))

        async def watch(docker: Docker) -> None:
            events = docker.events.subscribe(create_task=False)  # type: ignore[no-untyped-call]
            while (event := await events.get()) is not None:
                with suppress(*_UNEXPECTED_SHAPE):
                    if get_str(event, "Action") == "connect":
                        on_connected(get_str(get_object(get_object(event, "Actor"), "Attributes"), "container"))
                    else:
                        on_network()

        with self._answered():
            async with Docker(url=self._host) as docker, asyncio.TaskGroup() as tasks:
                # asked while the stream is open, so that the end of the stream is the end of the engine that answered
                up, watching = tasks.create_task(announce(docker)), tasks.create_task(watch(docker))
                with suppress(*_NO_ANSWER, *_UNEXPECTED_SHAPE):
                    await docker.events.run(filters=_NETWORK_EVENTS)
                up.cancel()
                watching.cancel()

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Docker]:
        """Yield a connection for one query, with the time limit."""
        with self._answered():
            async with asyncio.timeout(self._timeout_s):
                if self._stays_open:
                    async with self._kept() as docker:
                        yield docker
                else:
                    async with Docker(url=self._host) as docker:
                        yield docker

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[Docker]:
        """Yield the connection that stays open; it is closed after a query without an answer."""
        docker = self._open = self._open or Docker(url=self._host)
        self._queries += 1
        is_answered = False
        try:
            yield docker
            is_answered = True
        except DockerError as exc:
            is_answered = exc.status != _NOT_CONNECTED
            if exc.status == _BAD_REQUEST:
                docker.api_version = "auto"  # an older engine may have come in its place
            raise
        finally:
            self._queries -= 1
            if not is_answered and not self._queries:
                await self.close()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Turn all errors of a query into `EngineUnavailable`."""
        try:
            yield
        except TimeoutError as exc:
            raise EngineSilent(f"{self._name} did not answer within {self._timeout_s:g} s") from exc
        except _NO_ANSWER as exc:
            is_refused = isinstance(exc, DockerError) and exc.status != _NOT_CONNECTED
            kind = EngineRefused if is_refused else EngineUnavailable
            raise kind(f"{self._name} {_describe(exc)}") from exc
        except _UNEXPECTED_SHAPE as exc:
            raise EngineUnavailable(f"{self._name} sent an invalid answer: {exc}") from exc

    @property
    def _name(self) -> str:
        return f"Docker Engine at {self._host}"


async def _info(docker: Docker) -> JsonObject:
    return as_object(await docker.system.info(), "the answer to GET /info")


async def _networks(docker: Docker, driver: str | None = None) -> tuple[JsonObject, ...]:
    """Return all networks as they are listed, or those of a driver."""
    answer = await docker.networks.list(filters={"driver": driver} if driver else None)
    return _objects(answer, "the answer to GET /networks")


async def _network(docker: Docker, network_id: str) -> JsonObject | None:
    query = DockerNetwork(docker, network_id).show()  # type: ignore[no-untyped-call]
    return await _unless_missing(query, "the answer to GET /networks/ID")


async def _containers(docker: Docker, *keys: str, **filters: str) -> tuple[JsonObject, ...]:
    """Return these keys of all containers, also of those that do not run."""
    listed = await docker.containers.list(all="true", **filters)
    return _objects([{key: one[key] for key in keys} for one in listed], "the answer to GET /containers/json")


def _version(info: JsonObject) -> EngineVersion | None:
    return EngineVersion.parse(find_str(info, "ServerVersion") or "")


def _objects(answer: JsonValue, what: str) -> tuple[JsonObject, ...]:
    """Return an answer that must be an array of objects; `what` names it in the error."""
    if not isinstance(answer, list):
        raise JsonError(f"{what} must be an array")
    return tuple(as_object(item, f"each item of {what}") for item in answer)


async def _unless_missing(query: Awaitable[JsonValue], what: str) -> JsonObject | None:
    """Return the answer to a query, None if the engine does not have what is asked for; errors as in `_objects`."""
    try:
        return as_object(await query, what)
    except DockerError as exc:
        if exc.status == _NOT_FOUND:
            return None
        raise


def _describe(exc: BaseException) -> str:
    """Return why the engine did not answer, in the kernel's words if there are any."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            why = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror  # negative: DNS
            return f"cannot be reached: {why}"
        cause = cause.__cause__ or cause.__context__
    if not isinstance(exc, DockerError):
        return f"did not answer: {str(exc) or type(exc).__name__}"
    if exc.status == _NOT_CONNECTED:
        return "closed the connection without an answer"
    return f"answered with status {exc.status}: {exc.message}"
