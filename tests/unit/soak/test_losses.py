# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a running container lacks: each missing resource is reported, and nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.soak.artifacts import Artifacts, Attachment, parse_addresses
from tests.soak.comparison import Reservation
from tests.soak.docker_view import DockerContainer
from tests.soak.holdings import Holdings, Link
from tests.soak.losses import Survey, find_changes, find_gaps, find_shared
from tests.soak.model import Container, World

ENDPOINT = "e" * 64
DEFAULT = "unicast default via 10.82.1.1 dev LINK table main proto static"
ARTIFACTS = {
    "lan": Artifacts(
        rules=("ip filter -A CNI-FORWARD -s ADDRESS-4/32 -j ACCEPT",),
        published=("ip filter -A CNI-FORWARD -s ADDRESS-4/32 -j ACCEPT", "ip nat -A CNI-DN-OF-ENDPOINT --dport PORT "),
        links=("ifb", "veth, master cni1"),
        families=1,
        link=frozenset({"link LINK: UP", DEFAULT, "on the host: veth, master cni1"}),
    )
}
ATTACHMENT = Attachment(endpoint=ENDPOINT, list="lan", addresses=parse_addresses(["10.82.1.2"]), port=20_001)
WORLD = World(
    containers={"c1": Container(home="n1", networks=frozenset({"n1"}), running=True, port=20_001)},
    networks={"n1": "lan"},
)
DOCKER = DockerContainer(state="running", endpoints={"n1": ENDPOINT}, process=7)
ETH0 = Link(addresses=frozenset({"10.82.1.2"}), general=ARTIFACTS["lan"].link | {"another line, which is ignored"})
HOLDINGS = Holdings(lines=frozenset({"link eth0: UP"}), links={"eth0": ETH0}, silent=frozenset())
SURVEY = Survey(
    holdings={"c1": HOLDINGS},
    rules=ARTIFACTS["lan"].rules_of(ATTACHMENT) + Counter(["ip nat -A of another container"]),
    host_links=frozenset({ATTACHMENT.ifb, "cni1"}),
    reservations=(Reservation(list="lan", address="10.82.1.2", endpoint=ENDPOINT),),
    answers={"c1": "c1"},
)


def test_nothing_is_reported_if_nothing_is_missing() -> None:
    """Other resources are ignored: they may belong to an endpoint whose DEL is pending."""
    assert find_gaps(WORLD, "c1", DOCKER, SURVEY, ARTIFACTS) == ((), ())


def with_link(link: Link | None) -> Survey:
    """Return the survey with another link in the container."""
    links = {} if link is None else {"eth0": link}
    return replace(SURVEY, holdings={"c1": replace(HOLDINGS, links=links)})


LOSSES: dict[str, tuple[Callable[[], Survey], str]] = {
    "its firewall rule": (
        lambda: replace(SURVEY, rules=SURVEY.rules - Counter(["ip filter -A CNI-FORWARD -s 10.82.1.2/32 -j ACCEPT"])),
        "lan: rule ip filter -A CNI-FORWARD -s 10.82.1.2/32 -j ACCEPT",
    ),
    "its port's rule": (
        lambda: replace(
            SURVEY, rules=Counter(rule for rule in SURVEY.rules.elements() if not rule.startswith("ip nat -A CNI-DN"))
        ),
        f"lan: rule ip nat -A {ATTACHMENT.ports_chain} --dport 20001 ",
    ),
    "its reservation": (lambda: replace(SURVEY, reservations=()), "lan: reserved addresses are []"),
    "its reservation has another endpoint": (
        lambda: replace(SURVEY, reservations=(replace(SURVEY.reservations[0], endpoint="9" * 64),)),
        "lan: reserved addresses are []",
    ),
    "its ifb device": (lambda: replace(SURVEY, host_links=frozenset()), f"lan: device {ATTACHMENT.ifb}"),
    "its link": (lambda: with_link(None), "lan: a link with the addresses ['10.82.1.2']"),
    "its address": (
        lambda: with_link(replace(ETH0, addresses=frozenset())),
        "lan: a link with the addresses ['10.82.1.2']",
    ),
    "its route": (lambda: with_link(replace(ETH0, general=ETH0.general - {DEFAULT})), f"lan: {DEFAULT}"),
    "its bridge": (
        lambda: with_link(replace(ETH0, general=ETH0.general - {"on the host: veth, master cni1"})),
        "lan: on the host: veth, master cni1",
    ),
    "its namespace": (lambda: replace(SURVEY, holdings={}), "no namespace that could be read"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_each_missing_resource_is_reported(what: str) -> None:
    """The message names it."""
    survey, expected = LOSSES[what]
    assert find_gaps(WORLD, "c1", DOCKER, survey(), ARTIFACTS) == ((expected,), ())


def test_another_mac_than_the_chosen_one_is_reported() -> None:
    """Docker shows the chosen one in any case."""
    chosen = {"c1": replace(WORLD.containers["c1"], mac="02:00:00:00:00:07")}
    for mac, lacking in (("02:00:00:00:00:07", ()), ("02:00:00:00:00:08", ("the MAC address 02:00:00:00:00:07",))):
        holdings = replace(HOLDINGS, lines=frozenset({f"link eth0: UP mtu 1500 mac {mac}"}))
        survey = replace(SURVEY, holdings={"c1": holdings})
        assert find_gaps(replace(WORLD, containers=chosen), "c1", DOCKER, survey, ARTIFACTS) == (lacking, ())


def test_unanswered_probes_are_reported() -> None:
    """The container must reach its gateway, and must answer at its published port."""
    silent = replace(HOLDINGS, silent=frozenset({"10.82.1.1"}))
    _, found = find_gaps(WORLD, "c1", DOCKER, replace(SURVEY, holdings={"c1": silent}, answers={"c1": ""}), ARTIFACTS)
    assert found == ("no answer from 10.82.1.1", "at its port 20001 answers no container")


def test_the_default_route_may_use_another_network() -> None:
    """A container on several networks has the default route of one of them."""
    other = Link(addresses=frozenset({"10.82.9.2"}), general=frozenset())
    holdings = replace(HOLDINGS, links={"eth0": replace(ETH0, general=ETH0.general - {DEFAULT}), "eth1": other})
    assert find_gaps(WORLD, "c1", DOCKER, replace(SURVEY, holdings={"c1": holdings}), ARTIFACTS) == ((), ())


def test_changes_of_a_container_are_reported() -> None:
    """Lost and new lines are reported."""
    before = replace(HOLDINGS, lines=frozenset({"a", "b"}))
    assert find_changes(before, replace(before, lines=frozenset({"b", "c"}))) == ("lost: a", "has come: c")
    assert find_changes(before, before) == ()


def test_what_two_containers_share() -> None:
    """A MAC or an address of two containers is reported; what each of them has alone is not."""
    other = replace(HOLDINGS, links={"eth1": replace(ETH0, addresses=frozenset({"10.82.1.3"}))})
    assert find_shared({"c1": HOLDINGS, "c2": other}) == ()
    assert find_shared({"c1": HOLDINGS, "c2": HOLDINGS}) == ("10.82.1.2 is that of containers c1, c2",)
    line = "link eth0: UP mtu 1500 mac 02:00:00:00:00:07"
    both = {"c1": replace(HOLDINGS, lines=frozenset({line})), "c2": replace(other, lines=frozenset({line}))}
    assert find_shared(both) == ("02:00:00:00:00:07 is that of containers c1, c2",)
