# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records survive their stored form; anything else is damage."""

from dataclasses import replace
from typing import Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec import JsonObject, get_object
from state import AttachmentRecord, EndpointRecord, NetworkRecord, Phase, RecordDamaged, RequestedInterface
from state.codec import (
    as_stored,
    document_of,
    parse_endpoint,
    parse_network,
    render_endpoint,
    render_network,
    value_of,
    value_of_stored,
)

NETWORK: Final = f"network/{'a' * 64}"
ENDPOINT: Final = f"endpoint/{'e' * 64}"


def with_documents(endpoint: EndpointRecord) -> EndpointRecord:
    """Give the record of an endpoint whose plugins have run."""
    snapshot: JsonObject = {
        "link": {"name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:01", "mtu": 1500, "noarp": False},
        "addresses": [],
        "routes": [],
        "rules": [],
        "neighbours": [],
        "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "a\nb"}],
        "qdisc": None,
    }
    result: JsonObject = {"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}]}
    return replace(
        endpoint,
        phase=Phase.READY,
        added_plugins=1,
        result=result,
        snapshot=snapshot,
        addresses=("10.1.2.3", "fd00::3"),
    )


def test_network_survives(network: NetworkRecord) -> None:
    """A network record comes back as it went."""
    assert parse_network(NETWORK, render_network(network)) == network


def test_unbound_network_survives(network: NetworkRecord) -> None:
    """A network whose name is not known yet comes back so."""
    unbound = replace(network, configuration=None, options={})
    assert parse_network(NETWORK, render_network(unbound)) == unbound


def test_endpoint_survives(endpoint: EndpointRecord) -> None:
    """An endpoint record comes back as it went, empty CNI argument and numbers included."""
    assert parse_endpoint(ENDPOINT, render_endpoint(endpoint)) == endpoint


def test_what_is_kept_of_a_record_that_is_stored(endpoint: EndpointRecord) -> None:
    """It is what a reader of the stored value gets, documents included, and equal configurations are one object."""
    full = with_documents(endpoint)
    value = render_endpoint(full)
    kept, read = as_stored(full, value), parse_endpoint(ENDPOINT, value)
    assert kept == read == full
    assert vars(kept) == vars(read)  # the documents as text
    assert kept.attachment.configuration is read.attachment.configuration


def test_endpoint_without_wishes_survives(endpoint: EndpointRecord) -> None:
    """An endpoint for which Docker chose nothing comes back so."""
    free = replace(endpoint, requested=RequestedInterface(), phase=Phase.DELETING, sandbox_key="/var/run/x")
    assert parse_endpoint(ENDPOINT, render_endpoint(free)) == free


_LATER = ("pools", "ifnamePrefix", "caller")


def test_records_of_before(network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """Without pools Docker's IPAM has none, without a prefix the link is called as ever, the caller is not known."""
    old = {
        key: value_of(key, {name: document[name] for name in document if name not in _LATER})
        for key, value in {NETWORK: render_network(network), ENDPOINT: render_endpoint(endpoint)}.items()
        if (document := document_of(key, value))
    }
    assert parse_network(NETWORK, old[NETWORK]) == replace(network, pools=())
    assert parse_endpoint(ENDPOINT, old[ENDPOINT]) == replace(endpoint, ifname_prefix="eth", caller=None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"phase": "sleeping"}, "sleeping"),
        ({"surprise": 1}, "surprise"),
        ({"bootId": None}, "bootId"),
        ({"requested": {"address": "10.0.0.0/99", "addressIPv6": None, "mac": None}}, "not a valid netmask"),
        ({"snapshot": {}}, "snapshot: {} is not valid"),
        ({"id": "f" * 64}, "it is the record of f"),
    ],
)
def test_a_document_that_is_none_is_refused(endpoint: EndpointRecord, change: JsonObject, what: str) -> None:
    """What does not fit the closed schema, or is of another endpoint, is named with its key and the fault."""
    document = {**document_of(ENDPOINT, render_endpoint(endpoint)), **change}
    with pytest.raises(RecordDamaged, match=what) as caught:
        value_of(ENDPOINT, document)
    assert caught.value.key == ENDPOINT


@given(place=st.integers(min_value=0), bits=st.integers(min_value=1, max_value=255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_value_that_was_changed_is_damage(endpoint: EndpointRecord, place: int, bits: int) -> None:
    """Whatever byte of a value is another one, be it in a document that the start does not parse, is noticed."""
    value = bytearray(render_endpoint(with_documents(endpoint)))
    value[place % len(value)] ^= bits
    with pytest.raises(RecordDamaged):
        parse_endpoint(ENDPOINT, bytes(value))


def test_half_a_record_is_damage(network: NetworkRecord) -> None:
    """A value cut short is refused."""
    with pytest.raises(RecordDamaged):
        parse_network(NETWORK, render_network(network)[:-5])


def test_what_is_written_fits_the_schema(endpoint: EndpointRecord) -> None:
    """Records are written in the form that an import demands, and come out of it as they were."""
    for record in (endpoint, with_documents(endpoint)):
        value = render_endpoint(record)
        assert value_of(ENDPOINT, document_of(ENDPOINT, value)) == value


def test_networks_are_written_in_the_form_that_an_import_demands(network: NetworkRecord) -> None:
    """Network records too."""
    value = render_network(network)
    assert value_of(NETWORK, document_of(NETWORK, value)) == value


def test_a_stored_document_is_another_for_each_reader(endpoint: EndpointRecord) -> None:
    """Who changes what was read changes nothing of the record."""
    record = parse_endpoint(ENDPOINT, render_endpoint(with_documents(endpoint)))
    cast("dict[str, object]", record.snapshot).clear()
    cast("dict[str, object]", record.result).clear()
    assert record == with_documents(endpoint)


def test_what_a_start_needs_is_known_without_parsing_the_attachment(endpoint: EndpointRecord) -> None:
    """That takes half of the time of ten thousand records; once parsed it is kept."""
    record = parse_endpoint(ENDPOINT, render_endpoint(endpoint))
    assert (record.attachment_id, record.has_capability_args) == (endpoint.attachment.id, True)
    assert (record.cni_network, record.configuration) == ("blue", endpoint.attachment.configuration)
    assert not isinstance(vars(record)["_attachment"], AttachmentRecord)
    assert record.attachment == endpoint.attachment
    assert record.attachment is record.attachment


@pytest.mark.parametrize("args", [{}, {"portMappings": []}])
def test_whether_there_are_capability_args(endpoint: EndpointRecord, args: JsonObject) -> None:
    """A record that is written and one that is read give the same answer."""
    changed = replace(endpoint, attachment=replace(endpoint.attachment, capability_args=args))
    read = parse_endpoint(ENDPOINT, render_endpoint(changed))
    assert read.has_capability_args is changed.has_capability_args is bool(args)


def test_a_list_without_a_name(endpoint: EndpointRecord) -> None:
    """The CNI network's name is empty, in a record that is written and in one that is read."""
    changed = replace(endpoint, attachment=replace(endpoint.attachment, configuration={"plugins": []}))
    value = render_endpoint(changed)
    assert parse_endpoint(ENDPOINT, value).cni_network == changed.cni_network == ""
    assert value_of(ENDPOINT, document_of(ENDPOINT, value)) == value


def test_an_attachment_of_an_earlier_version_that_is_none(endpoint: EndpointRecord) -> None:
    """It is damage when the record is migrated, not when the attachment is needed."""
    document = document_of(ENDPOINT, render_endpoint(endpoint))
    attachment = {name: value for name, value in get_object(document, "attachment").items() if name != "netns"}
    with pytest.raises(RecordDamaged, match="netns"):
        value_of_stored(ENDPOINT, {**document, "attachment": attachment})


def test_equal_configurations_are_held_once(endpoint: EndpointRecord) -> None:
    """Ten thousand endpoints of one list hold it once; one that is only written differently stays as it is."""
    one, two = (parse_endpoint(ENDPOINT, render_endpoint(endpoint)) for _ in range(2))
    assert one.attachment.configuration is two.attachment.configuration
    plain: JsonObject = {"name": "blue", "x": 1}
    other: JsonObject = {"name": "blue", "x": True}
    stored = [
        parse_endpoint(
            ENDPOINT,
            render_endpoint(replace(endpoint, attachment=replace(endpoint.attachment, configuration=configuration))),
        )
        for configuration in (plain, other)
    ]
    assert [record.attachment.configuration["x"] for record in stored] == [1, True]
    assert stored[1].attachment.configuration["x"] is True
