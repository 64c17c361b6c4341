# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What should exist: containers and networks, and what each operation changes; pure.

An operation that ran while something was killed may have completed or not. What it was to change is then read from
Docker (`World.with_container`, `with_network`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tests.soak.lists import CANDIDATES, HUNG, families
from tests.soak.operations import Kind, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as it should be.

    Attributes:
        home: The network that it was created on, which Docker needs at every start; empty with a partner.
        networks: The networks that it is connected to; while it runs it has an endpoint on each.
        running: Whether it runs.
        restarts: Whether Docker restarts it when it ends by itself, and whenever dockerd starts.
        port: The host port that it publishes, if any.
        address: The address that it was created with, on its first network, if any.
        mac: The MAC address that it was created with, on its first network, if any; None after it has left that.
        partner: The container whose network namespace it shares, if any. It keeps that namespace when the other ends.
    """

    home: str
    networks: frozenset[str]
    running: bool
    restarts: bool = False
    port: int | None = None
    address: str | None = None
    mac: str | None = None
    partner: str | None = None

    def on(self, networks: frozenset[str], *, running: bool) -> "Container":
        """Return the container with other networks, running or not."""
        return replace(self, running=running, networks=networks, mac=self.mac if self.home in networks else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that should exist.

    Attributes:
        containers: By name.
        networks: The network configuration list of each, by the network's name.
    """

    containers: Mapping[str, Container] = field(default_factory=dict)
    networks: Mapping[str, str] = field(default_factory=dict)

    def is_refused(self, operation: Operation) -> bool:
        """Return whether Docker must refuse: a network cannot be removed while running containers are on it."""
        return operation.kind is Kind.REMOVE_NETWORK and bool(self.running_on(operation.writes))

    def hangs(self, operation: Operation) -> bool:
        """Return whether an operation must fail, because a plugin hangs until it is killed."""
        match operation.kind:
            case Kind.RUN if operation.network:
                return self.networks[operation.network] == HUNG
            case Kind.START | Kind.RESTART:
                return HUNG in self.lists_of(operation.writes)
        return False

    def has_own_network(self, container: str) -> bool:
        """Return whether this is a container, and has a network namespace of its own."""
        found = self.containers.get(container)
        return found is not None and not found.partner

    def lists_for(self, operation: Operation) -> frozenset[str]:
        """Return the lists of all networks that an operation names, or that its container is on."""
        networks = {name for name in (operation.network, *operation.others) if name}
        for name in (operation.container, operation.partner):
            if name and name in self.containers:
                networks |= self.containers[name].networks
        return frozenset(self.networks[name] for name in networks if name in self.networks)

    def on_list(self, *lists: str) -> frozenset[str]:
        """Return the containers that are connected to a network of one of these lists."""
        return frozenset(name for name in self.containers if self.lists_of(name) & set(lists))

    @property
    def running(self) -> frozenset[str]:
        """The running containers with a network namespace of their own."""
        return frozenset(name for name, found in self.containers.items() if found.running and not found.partner)

    def running_on(self, network: str) -> frozenset[str]:
        """Return the containers that have an endpoint on a network."""
        return frozenset(name for name, found in self.containers.items() if found.running and network in found.networks)

    def lists_of(self, container: str) -> frozenset[str]:
        """Return the lists of the networks that a container is connected to."""
        return frozenset(self.networks[network] for network in self.containers[container].networks)

    def wants(self, operation: Operation) -> Mapping[str, frozenset[str]]:
        """Return, for each list with few addresses of which an operation needs one, the acceptable addresses."""
        found = self.containers.get(operation.writes)
        lists: frozenset[str] = frozenset()
        match operation.kind:
            case Kind.RUN | Kind.UPDATE:
                lists = frozenset(self.networks[name] for name in (operation.network, *operation.others) if name)
            case Kind.START | Kind.RESTART:
                lists = self.lists_of(operation.writes)
            case Kind.CONNECT if found and found.running and operation.network:
                lists = frozenset({self.networks[operation.network]})
        address = operation.address or (found.address if found else None)
        few = {name: frozenset(CANDIDATES[name]) for name in lists if name in CANDIDATES}
        return {name: all_ & {address} or all_ for name, all_ in few.items()}

    def gateway_of(self, container: str) -> str | None:
        """Return the network that is a container's gateway, on which its ports are published.

        libnetwork chooses it (`Endpoint.Less`): a network with gateways of both families first, then by name.
        """
        networks = self.containers[container].networks
        return min(networks, key=lambda name: (-families(self.networks[name]), name), default=None)

    def after(self, operation: Operation) -> "World":
        """Return the world after a completed operation; a refused one changes nothing."""
        if self.is_refused(operation):
            return self
        match operation.kind:
            case Kind.CREATE_NETWORK:
                assert operation.list is not None
                return self.with_network(operation.writes, operation.list)
            case Kind.REMOVE_NETWORK:
                return self.with_network(operation.writes, None)
        return self.with_container(operation.writes, self._container_after(operation))

    def why_impossible(self, operation: Operation, shape: frozenset[str] | None) -> str | None:
        """Return why what Docker has is not a possible outcome of an operation; None if it is possible.

        An interrupted operation may have completed or not, and nothing else may have happened: what it was to change is
        as before or as after it, except for whether a container runs.

        Args:
            operation: The operation, begun in this world.
            shape: The networks of its container, or its network itself; None if Docker does not have it.
        """
        possible = [world._shape(operation.writes) for world in (self, self.after(operation))]
        if operation.kind is Kind.UPDATE:
            possible.append(None)  # between the old one and the new one
        if operation.kind in (Kind.RUN, Kind.CREATE, Kind.UPDATE):  # connected one by one
            *fewer, _ = accumulate(({name} for name in (operation.network or "", *operation.others)), set[str].union)
            possible += map(frozenset, fewer)
            possible.append(frozenset())  # dockerd stores a new container first without networks
        if shape in possible:
            return None
        wanted = " or ".join("nothing" if one is None else f"{sorted(one)}" for one in possible)
        return f"Docker has {'nothing' if shape is None else sorted(shape)} instead of {wanted}"

    def after_restart_of_docker(self) -> "World":
        """Return the world after dockerd was killed and started: containers end, those with a restart policy start.

        With the policy `always` even stopped containers start.
        """
        containers = {name: replace(found, running=found.restarts) for name, found in self._items()}
        return replace(self, containers=containers)

    def with_container(self, name: str, container: Container | None) -> "World":
        """Return the world with this container under a name, or without it if `container` is None."""
        containers = {other: found for other, found in self._items() if other != name}
        return replace(self, containers=containers if container is None else {**containers, name: container})

    def with_network(self, name: str, list_name: str | None) -> "World":
        """Return the world with a network of a list, or without the network if `list_name` is None."""
        networks = {other: found for other, found in self.networks.items() if other != name}
        return replace(self, networks=networks if list_name is None else {**networks, name: list_name})

    def _shape(self, name: str) -> frozenset[str] | None:
        if name in self.containers:
            return self.containers[name].networks
        return frozenset({name}) if name in self.networks else None

    def _container_after(self, operation: Operation) -> Container | None:
        network = operation.network
        if operation.kind in (Kind.RUN, Kind.CREATE):
            assert network is not None
            return Container(
                home=network,
                networks=frozenset({network, *operation.others}),
                running=operation.kind is Kind.RUN and not self.hangs(operation),
                restarts=operation.restarts,
                port=operation.port,
                address=operation.address,
                mac=operation.mac,
            )
        if operation.kind is Kind.PARTNER:
            return Container(home="", networks=frozenset(), running=True, partner=operation.partner)
        found = self.containers[operation.writes]
        running, networks = found.running, found.networks
        match operation.kind:
            case Kind.REMOVE:
                return None
            case Kind.START | Kind.RESTART | Kind.UPDATE:
                running = not self.hangs(operation)
            case Kind.STOP | Kind.KILL:
                running = False
            case Kind.CRASH:
                running = found.restarts
            case Kind.CONNECT if network is not None:
                networks |= {network}
            case Kind.DISCONNECT:
                networks -= {network}
        return found.on(networks, running=running)

    def _items(self) -> tuple[tuple[str, Container], ...]:
        return tuple(self.containers.items())
