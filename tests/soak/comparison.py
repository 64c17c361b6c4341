# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the machine with the model; pure. Each difference is a readable line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.artifacts import Artifacts, Attachment, parse_addresses
from tests.soak.docker_view import DockerContainer, DockerView
from tests.soak.lists import OF_DOCKER
from tests.soak.model import Container, World

JOINED: Final = "joined"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Reservation:
    """An address that host-local keeps for an attachment.

    Attributes:
        list: The list, or the IPAM section.
        address: The address.
        endpoint: CNI's container ID: the endpoint's, or that of the daemon's record of an address.
    """

    list: str
    address: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The inside of a running container.

    Attributes:
        links: The addresses of each link, without `lo` and without link-local ones.
    """

    links: Mapping[str, tuple[str, ...]]

    @property
    def addresses(self) -> Counter[str]:
        """The addresses of all links."""
        return Counter(address for addresses in self.links.values() for address in addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """What the machine has.

    Attributes:
        sandboxes: The sandboxes of Docker's running containers, by the container's name.
        reservations: host-local's.
        rules: The iptables rules, without those that plugins share and never remove.
        links: The links that attachments make in the host namespace, by kind.
        staging: The IDs of the endpoints that have a staging namespace.
        files: The files below the plugins' run-time directory.
        leftovers: What must never exist at a checkpoint: other namespaces, running plugins.
        network_records: The IDs of the daemon's networks.
        endpoint_records: The phases of the daemon's endpoints, by ID.
        addresses: The daemon's records of addresses that Docker has requested.
    """

    sandboxes: Mapping[str, Sandbox]
    reservations: tuple[Reservation, ...]
    rules: Counter[str]
    links: Counter[str]
    staging: frozenset[str]
    files: tuple[str, ...]
    leftovers: tuple[str, ...]
    network_records: frozenset[str]
    endpoint_records: Mapping[str, str]
    addresses: tuple[Reservation, ...] = ()


def compare_docker(world: World, docker: DockerView, touched: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return how Docker differs from the model, except in what `touched` names."""
    lines = [
        *_missing("network", set(world.networks) - touched, set(docker.networks) - touched),
        *_missing("container", set(world.containers) - touched, set(docker.containers) - touched),
    ]
    for name, wanted in sorted(world.containers.items()):
        found = docker.containers.get(name)
        if found is not None and name not in touched:
            lines += _compare_container(name, wanted, found)
    return tuple(lines)


def compare(
    world: World, docker: DockerView, machine: MachineView, artifacts: Mapping[str, Artifacts]
) -> tuple[str, ...]:
    """Return how machine and Docker differ from the model, and the machine from Docker."""
    lines = list(compare_docker(world, docker))
    networks = {name: network for name, network in docker.networks.items() if name in world.networks}
    attachments: list[Attachment] = []
    for name, wanted in sorted(world.containers.items()):
        container, sandbox = docker.containers.get(name), machine.sandboxes.get(name)
        if not wanted.running or container is None or wanted.partner:
            continue
        if sandbox is None:
            lines.append(f"container {name}: has no sandbox")
            continue
        found = tuple(attachments_of(world, name, container, machine.reservations))
        lines += _compare_sandbox(name, wanted, container, sandbox, found)
        attachments += found
    wanted_ids = docker.our_endpoints
    listed = {endpoint for network in networks.values() for endpoint in network.endpoints}
    ours = {network.id for network in docker.networks.values() if network.is_ours}
    lines += _missing("endpoint of Docker's network", docker.endpoints, listed)
    lines += _missing("record of network", ours, machine.network_records)
    lines += _missing("staging namespace", wanted_ids, machine.staging)
    lines += _missing("record of endpoint", wanted_ids, set(machine.endpoint_records))
    lines += [
        f"record of endpoint {endpoint}: phase {phase} instead of {JOINED}"
        for endpoint, phase in sorted(machine.endpoint_records.items())
        if endpoint in wanted_ids and phase != JOINED
    ]
    lines += _compare_reservations(attachments, machine, artifacts)
    lines += _compare_requested(attachments, machine)
    rules = sum((artifacts[found.list].rules_of(found) for found in attachments), Counter[str]())
    links = Counter(link for found in attachments for link in artifacts[found.list].links)
    lines += _differing("rule", rules, machine.rules)
    lines += _differing("link", links, machine.links)
    lines += _missing("file", {path for of in attachments for path in artifacts[of.list].files_of(of)}, machine.files)
    lines += [f"left: {line}" for line in machine.leftovers]
    return tuple(lines)


def _compare_container(name: str, wanted: Container, found: DockerContainer) -> Iterator[str]:
    if wanted.running != (found.runs):
        error = f" ({found.error})" if found.error else ""
        yield f"container {name}: should {'' if wanted.running else 'not '}run, and is {found.state}{error}"
    yield from (f"container {name}: {line}" for line in _missing("network", wanted.networks, set(found.endpoints)))
    if wanted.running and found.runs:
        for network, endpoint in sorted(found.endpoints.items()):
            if not endpoint:
                yield f"container {name}: has no endpoint on network {network}"


def _compare_sandbox(
    name: str, wanted: Container, container: DockerContainer, sandbox: Sandbox, attachments: Iterable[Attachment]
) -> Iterator[str]:
    if len(sandbox.links) != len(wanted.networks):
        yield f"container {name}: has links {sorted(sandbox.links)} on networks {sorted(wanted.networks)}"
    reserved = Counter(str(address) for attachment in attachments for address in attachment.addresses)
    yield from _differing(f"container {name}: address in it", reserved, sandbox.addresses)
    yield from _differing(f"container {name}: address at Docker", reserved, Counter(container.addresses))


def attachments_of(
    world: World, name: str, container: DockerContainer, reservations: Iterable[Reservation]
) -> Iterator[Attachment]:
    """Yield the endpoints of a running container, with the addresses that are reserved for them."""
    gateway = world.gateway_of(name)
    for network, endpoint in container.endpoints.items():
        if endpoint and network in world.networks:
            list_name, shown = world.networks[network], container.addresses_on.get(network, ())
            addresses = (
                found.address
                for found in reservations
                if (
                    found.list == list_name and found.address in shown
                    if list_name in OF_DOCKER
                    else found.endpoint == endpoint
                )
            )
            yield Attachment(
                endpoint=endpoint,
                list=list_name,
                addresses=parse_addresses(addresses),
                port=world.containers[name].port if network == gateway else None,
            )


def _compare_reservations(
    attachments: Iterable[Attachment], machine: MachineView, artifacts: Mapping[str, Artifacts]
) -> Iterator[str]:
    known = {}
    for found in attachments:
        known[found.list, found.endpoint] = found
        families = [address.version for address in found.addresses]
        if len(families) != artifacts[found.list].families or len(set(families)) != len(families):
            yield f"endpoint {found.endpoint} on {found.list}: reserved addresses {[*map(str, found.addresses)]}"
    for reservation in sorted(machine.reservations):
        if reservation.list not in OF_DOCKER and (reservation.list, reservation.endpoint) not in known:
            yield f"too much: {reservation}"


def _compare_requested(attachments: Iterable[Attachment], machine: MachineView) -> Iterator[str]:
    """Compare the addresses of networks of Docker's own drivers: Docker's, the daemon's records, the plugin's data."""
    shown = Counter(
        f"{one.list} {address}" for one in attachments if one.list in OF_DOCKER for address in one.addresses
    )
    recorded = Counter(f"{one.list} {one.address}" for one in machine.addresses)
    yield from _differing("record of address", shown, recorded)
    reserved = Counter(str(one) for one in machine.reservations if one.list in OF_DOCKER)
    yield from _differing("for a record,", Counter(map(str, machine.addresses)), reserved)


def _missing(what: str, wanted: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    yield from (f"missing: {what} {name}" for name in sorted(set(wanted) - set(found)))
    yield from (f"too much: {what} {name}" for name in sorted(set(found) - set(wanted)))


def _differing(what: str, wanted: Counter[str], found: Counter[str]) -> Iterator[str]:
    yield from (f"missing: {what} {line}" for line in sorted((wanted - found).elements()))
    yield from (f"too much: {what} {line}" for line in sorted((found - wanted).elements()))
