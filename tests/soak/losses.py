# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What running containers lack of what their plugins made; pure. Each loss is a line that a person can read."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.soak.artifacts import Artifacts, Attachment
from tests.soak.comparison import Reservation, attachments_of
from tests.soak.docker_view import DockerContainer
from tests.soak.holdings import Holdings
from tests.soak.model import World

__all__ = ["Survey", "find_changes", "find_gaps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found after a round.

    Attributes:
        holdings: What each running container has.
        rules: Of iptables, all.
        host_links: The names of the links on the host.
        reservations: host-local's.
        answers: Which container answers at the port that a container publishes, by its name; "": none.
    """

    holdings: Mapping[str, Holdings]
    rules: Counter[str]
    host_links: frozenset[str]
    reservations: tuple[Reservation, ...]
    answers: Mapping[str, str]


def find_changes(before: Holdings, now: Holdings) -> tuple[str, ...]:
    """Give what is no longer there, in a namespace and at its links, and what is new."""
    lost = (f"lost: {line}" for line in sorted(before.lines - now.lines))
    new = (f"has come: {line}" for line in sorted(now.lines - before.lines))
    return (*lost, *new)


def find_gaps(
    world: World, name: str, container: DockerContainer, survey: Survey, artifacts: Mapping[str, Artifacts]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give what a running container lacks of what its lists give, and whom it does not reach.

    Returns:
        What it lacks: rules, reservations, devices, and what is there for its links. Who does not answer: gateways and
        neighbours to it, and it at the port that it publishes.
    """
    holdings = survey.holdings.get(name)
    if holdings is None:
        return (("no namespace that could be looked at",), ())
    attachments = tuple(attachments_of(world, name, container, survey.reservations))
    lacking = [line for found in attachments for line in _lacking(found, holdings, survey, artifacts[found.list])]
    silent = [f"no answer from {address}" for address in sorted(holdings.silent)]
    port = world.containers[name].port
    if port is not None and survey.answers.get(name) != name:
        silent.append(f"at its port {port} answers {survey.answers.get(name) or 'nobody'}")
    return tuple(lacking), tuple(silent)


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
    for line in sorted(artifacts.link - link.general):
        if len(holdings.links) == 1 or not _is_default_route(line):
            yield f"{attachment.list}: {line}"


def _is_default_route(line: str) -> bool:
    """Tell whether a line is a route that a container has of one of its networks only."""
    return line.startswith("unicast default ") and " table main " in line
