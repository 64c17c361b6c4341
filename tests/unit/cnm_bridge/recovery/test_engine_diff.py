# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker has forgotten, and what we have; by its lists alone."""

from dataclasses import replace

import pytest

from cnm_bridge.engine import EngineEndpoint, EngineNetwork
from cnm_bridge.recovery.engine_diff import (
    EngineView,
    forgotten_endpoints,
    forgotten_networks,
    knows_any,
    unchanged_since,
    unknown_endpoints,
)
from state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    RequestedInterface,
)
from state.lazy_field import StoredDocument

NETWORK = NetworkRecord(id=NetworkId("n1"), configuration="lan", name="blue", internal=False, options={})
ENDPOINT = EndpointRecord(
    id=EndpointId("e1"),
    network_id=NETWORK.id,
    phase=Phase.JOINED,
    boot_id="b",
    internal=False,
    requested=RequestedInterface(),
    attachment=AttachmentRecord(
        id=AttachmentId("e1"),
        ifname="eth0",
        netns="/run/x",
        configuration={},
        cni_version="1.0.0",
        args=(),
        capability_args={},
    ),
)


def view(*endpoints: str, scope: str = "local") -> EngineView:
    """An engine that knows the network, with these endpoints."""
    known = {name: EngineEndpoint(id=name, name="web", address=None, address_ipv6=None, mac=None) for name in endpoints}
    network = EngineNetwork(
        id="n1", name="blue", driver="cni-bridge", scope=scope, internal=False, options={}, pools=(), endpoints=known
    )
    return EngineView(identity="engine", networks={NETWORK.id: network})


NOTHING = EngineView(identity="engine", networks={NETWORK.id: None})


def test_an_endpoint_that_docker_has() -> None:
    """It is nobody's to tear down."""
    assert forgotten_endpoints(view("e1"), [ENDPOINT]) == ()


@pytest.mark.parametrize("phase", [Phase.READY, Phase.JOINED])
@pytest.mark.parametrize("seen", [view(), view("e2"), NOTHING], ids=["empty", "other", "no network"])
def test_an_endpoint_that_docker_has_not(phase: Phase, seen: EngineView) -> None:
    """It is forgotten, with its network or alone."""
    record = replace(ENDPOINT, phase=phase)
    assert forgotten_endpoints(seen, [record]) == (record,)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.DELETING])
def test_an_endpoint_in_the_making_or_given_up(phase: Phase) -> None:
    """Docker cannot have it, and it says nothing."""
    assert forgotten_endpoints(NOTHING, [replace(ENDPOINT, phase=phase)]) == ()


def test_an_endpoint_of_a_network_that_was_not_asked_for() -> None:
    """A network made since the question is not judged, nor is what is on it."""
    seen = EngineView(identity="engine", networks={})
    assert forgotten_endpoints(seen, [ENDPOINT]) == ()
    assert forgotten_networks(seen, [NETWORK], []) == ()


def test_an_endpoint_of_a_swarm_network() -> None:
    """Such a network may be told without its endpoints here."""
    assert forgotten_endpoints(view(scope="swarm"), [ENDPOINT]) == ()
    assert unknown_endpoints(view("e2", scope="swarm"), []) == {}


def test_a_network_is_forgotten_after_its_endpoints() -> None:
    """As long as one of them is here, its record is needed."""
    assert forgotten_networks(NOTHING, [NETWORK], [ENDPOINT]) == ()
    assert forgotten_networks(NOTHING, [NETWORK], []) == (NETWORK,)
    assert forgotten_networks(view(), [NETWORK], []) == ()


def test_endpoints_without_a_record() -> None:
    """They are told with what Docker knows of them."""
    seen = view("e1", "e2")
    network = seen.networks[NETWORK.id]
    assert network is not None
    assert unknown_endpoints(seen, [ENDPOINT.id]) == {EndpointId("e2"): (network, network.endpoints["e2"])}


def test_an_engine_that_knows_one_network() -> None:
    """It is the one that calls us; one that knows none may be any."""
    other = replace(NETWORK, id=NetworkId("n2"))
    assert knows_any(view(), [other, NETWORK])
    assert not knows_any(view(), [other])
    assert not knows_any(NOTHING, [NETWORK])


def test_what_two_looks_agree_in() -> None:
    """A record that both looks found counts; one that was stored again meanwhile, or only one look found, does not."""
    other, stored_again = replace(ENDPOINT, id=EndpointId("e2")), replace(ENDPOINT)
    assert unchanged_since([ENDPOINT, other], [ENDPOINT]) == (ENDPOINT,)
    assert unchanged_since([ENDPOINT], [stored_again]) == ()
    assert unchanged_since([], [ENDPOINT]) == ()


def test_looks_are_compared_without_reading_documents() -> None:
    """Parsing those of ten thousand records would keep all calls waiting; here they cannot even be parsed."""
    record = replace(ENDPOINT, result=StoredDocument(b"no value", 3), snapshot=StoredDocument(b"no value", 4))
    assert len(unchanged_since([record], [record])) == 1
