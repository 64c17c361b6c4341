# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Joins the daemon's endpoints with the engine's containers, and finds what an operator names.

The engine is asked by the command, not by the daemon. Without an answer only names are missing.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    find_object,
    find_str,
    get_object,
    get_objects,
    get_str,
    get_strings,
    parse_json,
)
from cnm_bridge.core.errors import EngineUnavailable, UnknownName, did_you_mean
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.http_client import ask_server
from cnm_bridge.operator.cli.output import SHORT

ENGINE_LIMIT_S: Final = 10.0
"""How long a command waits for an answer of the engine."""
_CANDIDATES: Final = 10
_FAMILIES: Final = ("IPAddress", "GlobalIPv6Address")
RUNNING: Final = frozenset({"running", "paused", "restarting"})
"""States in which a container may have endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerNetwork:
    """A network of a container, as Docker shows it.

    Attributes:
        id: The network's ID; "" before the container is started first.
        endpoint_id: "" while the container does not run.
        addresses: The addresses, without prefix length.
    """

    key: str
    id: str = ""
    endpoint_id: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as Docker lists it; `core.engine_facts` has more, and takes longer to import.

    Attributes:
        state: E.g. `created`, `exited`, `running`.
    """

    id: str
    name: str
    image: str
    state: str
    networks: tuple[ContainerNetwork, ...] = ()

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read one element of `GET /containers/json`.

        Raises:
            JsonError: A key is missing or its value has another type.
        """
        shown = find_object(find_object(document, "NetworkSettings") or {}, "Networks") or {}
        networks = {key: get_object(shown, key) for key in shown}
        return cls(
            id=get_str(document, "Id"),
            name=next((name[1:] for name in get_strings(document, "Names") if name.count("/") == 1), ""),  # no link
            image=find_str(document, "Image") or "",
            state=find_str(document, "State") or "",
            networks=tuple(
                ContainerNetwork(
                    key=key,
                    id=find_str(one, "NetworkID") or "",
                    endpoint_id=find_str(one, "EndpointID") or "",
                    addresses=tuple(filter(None, (find_str(one, family) for family in _FAMILIES))),
                )
                for key, one in networks.items()
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The endpoints of the daemon, and their containers.

    Attributes:
        document: The daemon's list, `spec/admin/endpoints.json`.
        containers: The container of each endpoint that has one, as far as the engine answers.
        all_containers: All of the engine, also those that do not run and those on other networks.
        network_names: The name of each network, as far as the engine answers.
    """

    document: JsonObject
    containers: Mapping[str, Container]
    all_containers: Sequence[Container] = ()
    network_names: Mapping[str, str]
    notes: Sequence[str]

    @property
    def networks(self) -> Mapping[str, str]:
        """The name of each network, or its short ID."""
        known = {get_str(one, "id"): find_str(one, "name") for one in get_objects(self.document, "networks")}
        return {key: self.network_names.get(key) or name or key[:SHORT] for key, name in known.items()}

    @property
    def network_documents(self) -> tuple[JsonObject, ...]:
        """The documents of the networks; the engine knows the name of a new one before the daemon does."""
        documents = get_objects(self.document, "networks")
        return tuple(
            {**document, "name": self.network_names.get(get_str(document, "id")) or document["name"]}
            for document in documents
        )

    def find_network(self, name: str) -> str:
        """Return the ID of the network that a name, or the beginning of an ID, stands for.

        Raises:
            UnknownName: There is none, or there are several.
        """
        networks = self.networks
        found = [one for one, known in networks.items() if known == name]
        found = found or [network for network in networks if network.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownName(f"network {name} is ambiguous: {', '.join(found)}")
        hint = did_you_mean(name, networks.values(), "`cni-bridge ls --networks` shows all")
        raise UnknownName(f"no network {name} of cni-bridge; {hint}")

    def with_container(self, endpoint: JsonObject) -> JsonObject:
        """Return a document of an endpoint with its network's name and its container.

        The container is null if there is none, or if the engine does not answer.
        """
        container = self.containers.get(get_str(endpoint, "id"))
        shown: JsonValue = None
        if container is not None:
            shown = {"id": container.id, "name": container.name, "image": container.image, "state": container.state}
        named = {"networkName": self.networks.get(get_str(endpoint, "networkId"))}
        return {**endpoint, **named, "container": shown}

    def find(self, name: str) -> tuple[str, ...]:
        """Return the IDs of the endpoints that a name stands for.

        Args:
            name: The name of a container, an address, or the beginning of the ID of an endpoint or a container.

        Raises:
            UnknownName: There are none, or it stands for several things.
        """
        endpoints = get_objects(self.document, "endpoints")
        ids = [get_str(endpoint, "id") for endpoint in endpoints]
        named = [found for found in ids if found in self.containers and self.containers[found].name == name]
        if named:
            return tuple(named)
        plain = name.partition("/")[0]
        addressed = [
            get_str(endpoint, "id")
            for endpoint in endpoints
            if any(address.partition("/")[0] == plain for address in all_addresses(endpoint))
        ]
        if addressed:
            return tuple(addressed)
        return self._find_by_id(name, ids)

    def _find_by_id(self, name: str, ids: Sequence[str]) -> tuple[str, ...]:
        """Return the endpoints whose ID, or whose container's ID, begins with `name`."""
        found: dict[tuple[str, str], list[str]] = {}
        for endpoint_id in ids:
            container = self.containers.get(endpoint_id)
            if endpoint_id.startswith(name):
                label = f" ({container.name})" if container else ""
                found.setdefault((f"endpoint {endpoint_id[:SHORT]}{label}", endpoint_id), []).append(endpoint_id)
            if container is not None and container.id.startswith(name):
                key = f"container {container.id[:SHORT]} ({container.name})", container.id
                found.setdefault(key, []).append(endpoint_id)
        if len(found) == 1:
            ((_, only),) = found.items()
            return tuple(only)
        if found:
            labels = [label for label, _ in found]
            more = f" and {len(labels) - _CANDIDATES} more" if len(labels) > _CANDIDATES else ""
            raise UnknownName(f"{name} is ambiguous: {', '.join(labels[:_CANDIDATES])}{more}; give more digits")
        raise UnknownName(self._unknown(name))

    def _unknown(self, name: str) -> str:
        there = [one for one in self.all_containers if one.name == name or one.id.startswith(name)]
        if len(there) == 1:
            known = there[0].name
            if there[0].state in RUNNING:
                return f"container {known} is on no network of cni-bridge; `cni-bridge ls` shows those that are"
            state = f"exists and is not running ({there[0].state}), so it has no endpoint"
            return f"container {known} {state}; docker start {known}"
        if name in self.networks.values():
            return f"{name} is a network, not a container; `cni-bridge ls {name}` shows the containers on it"
        names = {container.name for container in self.containers.values()}
        others = "`cni-bridge ls` shows all endpoints"
        if self.notes:
            others = "names are not known, because the engine does not answer; an ID or an address is found"
        return f"no container, address or ID {name} on a network of cni-bridge; {did_you_mean(name, names, others)}"


def all_addresses(endpoint: JsonObject) -> tuple[str, ...]:
    """Return the addresses of an endpoint, with the dynamic ones if the daemon was asked for them."""
    return (*get_strings(endpoint, "addresses"), *dynamic_addresses(endpoint))


def dynamic_addresses(endpoint: JsonObject) -> tuple[str, ...]:
    """Return the addresses that the kernel has learnt; none if the daemon was not asked for them."""
    return get_strings(endpoint, "dynamicAddresses")


def take_inventory(
    client: AdminClient, docker_host: str, *, limit_s: float = ENGINE_LIMIT_S, dynamic: bool = False
) -> Inventory:
    """Ask the daemon for its endpoints, with dynamic addresses or without, and the engine for their containers.

    Raises:
        DaemonError: The daemon does not answer.
    """
    document = client.get("endpoints", **({"dynamic": "1"} if dynamic else {}))
    notes: list[str] = []
    containers: tuple[Container, ...] = ()
    names: Mapping[str, str] = {}
    try:
        containers, names = ask_engine(docker_host, limit_s)
    except EngineUnavailable as exc:
        notes.append(f"names of containers are not known: {exc}")
    by_endpoint = {
        network.endpoint_id: container
        for container in containers
        for network in container.networks
        if network.endpoint_id  # a container that does not run has none
    }
    return Inventory(
        document=document, containers=by_endpoint, all_containers=containers, network_names=names, notes=notes
    )


def ask_engine(host: str, limit_s: float = ENGINE_LIMIT_S) -> tuple[tuple[Container, ...], Mapping[str, str]]:
    """Ask the engine for all containers and the names of networks, without what only the daemon's client needs.

    That client's imports take a tenth of a second.

    Raises:
        EngineUnavailable: There is no valid answer.
    """
    with _of_engine(host, limit_s):
        containers = tuple(map(Container.from_json, _list(host, "/containers/json?all=true", limit_s)))
        networks = _list(host, "/networks", limit_s)
        return containers, {get_str(network, "Id"): get_str(network, "Name") for network in networks}


@contextmanager
def _of_engine(host: str, limit_s: float) -> Iterator[None]:
    """Turn failures of a request into `EngineUnavailable`."""
    try:
        yield
    except TimeoutError as exc:
        raise EngineUnavailable(f"Docker Engine at {host} did not answer within {limit_s:g} s") from exc
    except OSError as exc:
        why = os.strerror(exc.errno) if exc.errno is not None and exc.errno > 0 else str(exc)
        raise EngineUnavailable(f"Docker Engine at {host} cannot be reached: {why}") from exc
    except JsonError as exc:
        raise EngineUnavailable(f"Docker Engine at {host} sent an invalid answer: {exc!r}") from exc


def _list(host: str, target: str, limit_s: float) -> tuple[JsonObject, ...]:
    with ask_server(host, "GET", target, limit_s) as (status, body):
        answer = parse_json(body.read())
    if status != HTTPStatus.OK or not isinstance(answer, list):
        raise JsonError(f"the answer to GET {target} has the status {status}, and must be an array")
    return tuple(as_object(item, f"each item of the answer to GET {target}") for item in answer)
