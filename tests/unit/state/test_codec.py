# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records survive their stored form; anything else is damage."""

import json
from dataclasses import replace

import pytest

from spec import JsonObject
from state import EndpointRecord, NetworkRecord, Phase, RecordDamaged, RequestedInterface
from state.codec import check_value, parse_endpoint, parse_network, render_endpoint, render_network


def test_network_survives(network: NetworkRecord) -> None:
    """A network record comes back as it went."""
    assert parse_network("k", render_network(network)) == network


def test_unbound_network_survives(network: NetworkRecord) -> None:
    """A network whose name is not known yet comes back so."""
    unbound = replace(network, configuration=None, options={})
    assert parse_network("k", render_network(unbound)) == unbound


def test_endpoint_survives(endpoint: EndpointRecord) -> None:
    """An endpoint record comes back as it went, empty CNI argument and numbers included."""
    assert parse_endpoint("k", render_endpoint(endpoint)) == endpoint


def test_endpoint_without_wishes_survives(endpoint: EndpointRecord) -> None:
    """An endpoint for which Docker chose nothing comes back so."""
    free = replace(endpoint, requested=RequestedInterface(), phase=Phase.DELETING, sandbox_key="/var/run/x")
    assert parse_endpoint("k", render_endpoint(free)) == free


_LATER = ("pools", "ifnamePrefix", "caller")


def test_records_of_before(network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """Without pools Docker's IPAM has none, without a prefix the link is called as ever, the caller is not known."""
    stored: dict[str, JsonObject] = {
        "state/network": json.loads(render_network(network)),
        "state/endpoint": json.loads(render_endpoint(endpoint)),
    }
    old = {
        schema: json.dumps({key: document[key] for key in document if key not in _LATER}).encode()
        for schema, document in stored.items()
    }
    for schema, value in old.items():
        check_value(schema, "k", value)
    assert parse_network("k", old["state/network"]) == replace(network, pools=())
    assert parse_endpoint("k", old["state/endpoint"]) == replace(endpoint, ifname_prefix="eth", caller=None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"phase": "sleeping"}, "sleeping"),
        ({"surprise": 1}, "surprise"),
        ({"bootId": None}, "bootId"),
    ],
)
def test_damage_is_named(endpoint: EndpointRecord, change: JsonObject, what: str) -> None:
    """What does not fit the closed schema is refused, naming the key and the fault."""
    document = {**json.loads(render_endpoint(endpoint)), **change}
    with pytest.raises(RecordDamaged, match=what) as caught:
        check_value("state/endpoint", "endpoint/e", json.dumps(document).encode())
    assert caught.value.key == "endpoint/e"


def test_an_address_that_is_none_is_damage(endpoint: EndpointRecord) -> None:
    """What an address is, the schema leaves to the parser."""
    requested = {"address": "10.0.0.0/99", "addressIPv6": None, "mac": None}
    document = {**json.loads(render_endpoint(endpoint)), "requested": requested}
    with pytest.raises(RecordDamaged, match="not a valid netmask"):
        parse_endpoint("endpoint/e", json.dumps(document).encode())


def test_half_a_record_is_damage(network: NetworkRecord) -> None:
    """A value cut short is refused."""
    with pytest.raises(RecordDamaged):
        parse_network("k", render_network(network)[:-5])


def test_what_is_written_fits_the_schema(endpoint: EndpointRecord) -> None:
    """Records are written in the form that reading demands."""
    check_value("state/endpoint", "e", render_endpoint(endpoint))


def test_networks_are_written_in_the_form_that_reading_demands(network: NetworkRecord) -> None:
    """Network records too."""
    check_value("state/network", "n", render_network(network))
