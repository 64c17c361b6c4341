# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What running containers have lost of what their plugins made; pure. Each loss is a readable line."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.artifacts import Artifacts, Attachment
from tests.soak.comparison import Reservation, attachments_of
from tests.soak.docker_view import DockerContainer
from tests.soak.holdings import Holdings
from tests.soak.model import World

_MAC: Final = re.compile(r"link \S+: .* mac (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found after a round.

    Attributes:
        holdings: What each running container has.
        rules: All iptables rules.
        host_links: The names of the links on the host.
        reservations: host-local's.
        answers: The container that answers at a container's published port, by that container's name; "" for none.
    """

    holdings: Mapping[str, Holdings]
    rules: Counter[str]
    host_links: frozenset[str]
    reservations: tuple[Reservation, ...]
    answers: Mapping[str, str]


def find_changes(before: Holdings, now: Holdings) -> tuple[str, ...]:
    """Return what a namespace and its links have lost, and what is new."""
    lost = (f"lost: {line}" for line in sorted(before.lines - now.lines))
    new = (f"has come: {line}" for line in sorted(now.lines - before.lines))
    return (*lost, *new)


def find_gaps(
    world: World, name: str, container: DockerContainer, survey: Survey, artifacts: Mapping[str, Artifacts]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a running container lacks of what its lists give, and which peers it does not reach.

    Returns:
        The missing rules, reservations, ifb links, and properties of its links. The missing answers: of gateways and
        neighbours, and of the container itself at its published port.
    """
    holdings = survey.holdings.get(name)
    if holdings is None:
        return (("no namespace that could be read",), ())
    attachments = tuple(attachments_of(world, name, container, survey.reservations))
    lacking = [line for found in attachments for line in _lacking(found, holdings, survey, artifacts[found.list])]
    mac = world.containers[name].mac
    if mac and not any(line.endswith(f" mac {mac}") for line in holdings.lines):
        lacking.append(f"the MAC address {mac}")
    silent = [f"no answer from {address}" for address in sorted(holdings.silent)]
    port = world.containers[name].port
    if port is not None and survey.answers.get(name) != name:
        silent.append(f"at its port {port} answers {survey.answers.get(name) or 'no container'}")
    return tuple(lacking), tuple(silent)


def find_shared(holdings: Mapping[str, Holdings]) -> tuple[str, ...]:
    """Return the MACs and addresses that several running containers have."""
    having: dict[str, list[str]] = {}
    for name, found in holdings.items():
        macs = {match[1] for line in found.lines if (match := _MAC.match(line))}
        for one in macs.union(*(link.addresses for link in found.links.values())):
            having.setdefault(one, []).append(name)
    return tuple(f"{one} is that of containers {', '.join(names)}" for one, names in having.items() if names[1:])


def _lacking(attachment: Attachment, holdings: Holdings, survey: Survey, artifacts: Artifacts) -> Iterator[str]:
    if len(attachment.addresses) != artifacts.families:
        yield f"{attachment.list}: reserved addresses are {[*map(str, attachment.addresses)]}"
        return
    wanted = artifacts.rules_of(attachment)
    yield from (f"{attachment.list}: rule {rule}" for rule in sorted((wanted - survey.rules).elements()))
    if any(kind.startswith("ifb") for kind in artifacts.links) and attachment.ifb not in survey.host_links:
        yield f"{attachment.list}: device {attachment.ifb}"
    addresses = frozenset(map(str, attachment.addresses))
    link = next((link for link in holdings.links.values() if link.addresses == addresses), None)
    if link is None:
        yield f"{attachment.list}: a link with the addresses {sorted(addresses)}"
        return
    forms = (form for form in (artifacts.link, artifacts.moved) if form is not None)
    fewest: frozenset[str] = min((form - link.general for form in forms), key=len)
    for line in sorted(fewest):
        if len(holdings.links) == 1 or not _is_default_route(line):
            yield f"{attachment.list}: {line}"


def _is_default_route(line: str) -> bool:
    """Return whether a line is a route that only one of a container's networks gives it."""
    return line.startswith("unicast default ") and " table main " in line
