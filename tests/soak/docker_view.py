# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's containers and our networks, read from the documents of its API."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from cni_bridge_spec import JsonObject, find_str, get_int, get_object, get_str
from tests.soak.docker_calls import DRIVER

_DEFAULT: Final = "bridge"
"""The name of the network that Docker makes itself."""
_HALF_MADE: Final = ("removing", "dead", "restarting", "paused")


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerContainer:
    """A container as Docker has it.

    Attributes:
        state: `created`, `running`, `exited`, …
        endpoints: The endpoint's ID on each network that it is connected to, empty without an endpoint. A stopped
            container may still show those of its previous run.
        addresses_on: Those that Docker shows, by network.
        process: Its first process, 0 if it does not run.
        error: Why its last start failed, "" if it did not.
    """

    state: str
    endpoints: Mapping[str, str]
    addresses_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    process: int = 0
    error: str = ""

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self.state == "running"

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses that Docker shows, on all networks."""
        return frozenset(address for addresses in self.addresses_on.values() for address in addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerNetwork:
    """A network as Docker has it.

    Attributes:
        id: Its ID.
        endpoints: The container's name for each endpoint's ID.
        is_ours: Whether its driver is ours; otherwise only its addresses are.
    """

    id: str
    endpoints: Mapping[str, str]
    is_ours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerView:
    """What Docker has.

    Attributes:
        containers: All containers, by name.
        networks: The networks of our driver, and those that the soak has made with Docker's own, by name.
    """

    containers: Mapping[str, DockerContainer]
    networks: Mapping[str, DockerNetwork]

    @property
    def endpoints(self) -> frozenset[str]:
        """The IDs of the endpoints of all running containers."""
        running = (found for found in self.containers.values() if found.runs)
        return frozenset(endpoint for found in running for endpoint in found.endpoints.values() if endpoint)

    @property
    def our_endpoints(self) -> frozenset[str]:
        """Those of them that are on networks of our driver."""
        others = {endpoint for found in self.networks.values() if not found.is_ours for endpoint in found.endpoints}
        return self.endpoints - others

    def shape(self, name: str) -> frozenset[str] | None:
        """Return a container's networks, or a network itself; None if neither of that name exists."""
        if name in self.containers:
            return frozenset(self.containers[name].endpoints)
        return frozenset({name}) if name in self.networks else None

    def is_half_of_something(self, container: str, *, restarts: bool) -> bool:
        """Return whether an interrupted operation has left a container in a state that Docker does not repair itself.

        A running one shows an endpoint that its network does not list: a failed `docker network connect`, visible until
        dockerd ends. Whether Docker restarts a stopped one with a restart policy at its next start depends on how far
        its last operation came.
        """
        found = self.containers.get(container)
        if found is None:
            return False
        if not found.runs:
            return found.state in _HALF_MADE or restarts
        listed = {endpoint for network in self.networks.values() for endpoint in network.endpoints}
        return not set(found.endpoints.values()) <= listed

    @classmethod
    def from_documents(cls, containers: Iterable[JsonObject], networks: Iterable[JsonObject]) -> Self:
        """Parse the answers of `GET /containers/{id}/json` and `GET /networks/{id}`."""
        return cls(
            containers={get_str(item, "Name").removeprefix("/"): _container(item) for item in containers},
            networks={name: _network(item) for item in networks if (name := get_str(item, "Name")) != _DEFAULT},
        )


def _container(document: JsonObject) -> DockerContainer:
    networks = get_object(get_object(document, "NetworkSettings"), "Networks")
    found = {name: get_object(networks, name) for name in networks}
    state = get_object(document, "State")
    return DockerContainer(
        state=get_str(state, "Status"),
        endpoints={name: get_str(settings, "EndpointID") for name, settings in found.items()},
        addresses_on={
            name: tuple(shown for key in ("IPAddress", "GlobalIPv6Address") if (shown := get_str(settings, key)))
            for name, settings in found.items()
        },
        process=get_int(state, "Pid"),
        error=find_str(state, "Error") or "",
    )


def _network(document: JsonObject) -> DockerNetwork:
    containers = get_object(document, "Containers")
    found = [get_object(containers, key) for key in containers]
    endpoints = {get_str(item, "EndpointID"): get_str(item, "Name") for item in found}
    return DockerNetwork(id=get_str(document, "Id"), endpoints=endpoints, is_ours=get_str(document, "Driver") == DRIVER)
