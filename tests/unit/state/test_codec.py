# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records are unchanged by storing and reading them; any other value is damaged."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, get_object
from cni_bridge_state import (
    AttachmentRecord,
    EndpointRecord,
    NetworkRecord,
    Phase,
    ProcessRecord,
    RecordDamaged,
    RequestedInterface,
)
from cni_bridge_state.codec import (
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
    """Return the record of an endpoint whose plugins have completed ADD."""
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


def test_a_network_record_is_read_unchanged(network: NetworkRecord) -> None:
    """A network record is equal to the one that was stored."""
    assert parse_network(NETWORK, render_network(network)) == network


def test_a_network_with_a_known_engine_is_read_unchanged(network: NetworkRecord) -> None:
    """Its engine is known once that has listed it, its caller from the beginning."""
    known = replace(network, engine="AAAA /var/lib/docker", caller=ProcessRecord(pid=7, started=9))
    assert parse_network(NETWORK, render_network(known)) == known


def test_a_network_without_a_known_name_is_read_unchanged(network: NetworkRecord) -> None:
    """Its configuration is null until its name is known."""
    unbound = replace(network, configuration=None, options={})
    assert parse_network(NETWORK, render_network(unbound)) == unbound


def test_an_endpoint_record_is_read_unchanged(endpoint: EndpointRecord) -> None:
    """An endpoint record is equal to the one stored, including an empty CNI argument and numbers."""
    assert parse_endpoint(ENDPOINT, render_endpoint(endpoint)) == endpoint


def test_the_record_in_memory_equals_the_stored_one(endpoint: EndpointRecord) -> None:
    """It has the same documents as a record that is read, and equal configurations are one object."""
    full = with_documents(endpoint)
    value = render_endpoint(full)
    kept, read = as_stored(full, value), parse_endpoint(ENDPOINT, value)
    assert kept == read == full
    assert vars(kept) == vars(read)  # the documents as text
    assert kept.attachment.configuration is read.attachment.configuration


def test_an_endpoint_without_requested_values_is_read_unchanged(endpoint: EndpointRecord) -> None:
    """Docker may request no address and no MAC."""
    free = replace(endpoint, requested=RequestedInterface(), phase=Phase.DELETING, sandbox_key="/var/run/x")
    assert parse_endpoint(ENDPOINT, render_endpoint(free)) == free


_LATER = ("pools", "ifnamePrefix", "caller", "engine")


def test_records_without_later_fields_are_read(network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """Missing fields have defaults: no pools, the prefix `eth`, an unknown caller."""
    old = {
        key: value_of(key, {name: document[name] for name in document if name not in _LATER})
        for key, value in {NETWORK: render_network(network), ENDPOINT: render_endpoint(endpoint)}.items()
        if (document := document_of(key, value))
    }
    assert parse_network(NETWORK, old[NETWORK]) == replace(network, pools=())
    assert parse_endpoint(ENDPOINT, old[ENDPOINT]) == replace(endpoint, ifname_prefix="eth", caller=None)


def test_attachments_without_later_fields_are_read(endpoint: EndpointRecord) -> None:
    """Missing fields have defaults: nothing is requested, and the reason of the mode is unknown."""
    document = document_of(ENDPOINT, render_endpoint(endpoint))
    attachment = get_object(document, "attachment")
    later = {"identity", "dns", "modeReason", "reservationInput"}
    old = {name: attachment[name] for name in attachment if name not in later}
    read = parse_endpoint(ENDPOINT, value_of(ENDPOINT, {**document, "attachment": old}))
    assert read.attachment == replace(
        endpoint.attachment, identity=None, dns=None, mode_reason="", reservation_input=None
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"phase": "sleeping"}, "phase: a string is not one of"),
        ({"surprise": 1}, "surprise"),
        ({"bootId": None}, "bootId"),
        ({"requested": {"address": "10.0.0.0/99", "addressIPv6": None, "mac": None}}, "not a valid netmask"),
        ({"snapshot": {}}, "snapshot: an object is not valid"),
        ({"id": "f" * 64}, "it is the record of f"),
    ],
)
def test_an_invalid_document_is_rejected(endpoint: EndpointRecord, change: JsonObject, what: str) -> None:
    """The error names the key and the fault; the schema is closed, and the ID must be that of the key."""
    document = {**document_of(ENDPOINT, render_endpoint(endpoint)), **change}
    with pytest.raises(RecordDamaged, match=what) as caught:
        value_of(ENDPOINT, document)
    assert caught.value.key == ENDPOINT


@given(position=st.integers(min_value=0), bits=st.integers(min_value=1, max_value=255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_is_damage(endpoint: EndpointRecord, position: int, bits: int) -> None:
    """The checksum also covers documents that are not parsed when the daemon starts."""
    value = bytearray(render_endpoint(with_documents(endpoint)))
    value[position % len(value)] ^= bits
    with pytest.raises(RecordDamaged):
        parse_endpoint(ENDPOINT, bytes(value))


def test_a_truncated_record_is_damage(network: NetworkRecord) -> None:
    """A value that is cut short is rejected."""
    with pytest.raises(RecordDamaged):
        parse_network(NETWORK, render_network(network)[:-5])


def test_a_stored_endpoint_can_be_exported_and_imported(endpoint: EndpointRecord) -> None:
    """The document of a stored record passes the schema for imports, and gives the same value."""
    for record in (endpoint, with_documents(endpoint)):
        value = render_endpoint(record)
        assert value_of(ENDPOINT, document_of(ENDPOINT, value)) == value


def test_a_stored_network_can_be_exported_and_imported(network: NetworkRecord) -> None:
    """The same holds for networks."""
    value = render_network(network)
    assert value_of(NETWORK, document_of(NETWORK, value)) == value


def test_equal_documents_are_parsed_once(endpoint: EndpointRecord) -> None:
    """The records of an endpoint's phases have the same documents: equal texts give the same object."""
    value = render_endpoint(with_documents(endpoint))
    record, later = parse_endpoint(ENDPOINT, value), parse_endpoint(ENDPOINT, bytes(bytearray(value)))
    assert record.result is later.result
    assert record.snapshot is later.snapshot
    assert record == with_documents(endpoint)


def test_the_attachment_is_parsed_on_first_use(endpoint: EndpointRecord) -> None:
    """Without it, reading ten thousand records at start takes half the time; the parsed attachment is kept."""
    record = parse_endpoint(ENDPOINT, render_endpoint(endpoint))
    assert (record.attachment_id, record.has_capability_args) == (endpoint.attachment.id, True)
    assert (record.cni_network, record.configuration) == ("blue", endpoint.attachment.configuration)
    assert not isinstance(vars(record)["_attachment"], AttachmentRecord)
    assert record.attachment == endpoint.attachment
    assert record.attachment is record.attachment


@pytest.mark.parametrize("args", [{}, {"portMappings": []}])
def test_has_capability_args(endpoint: EndpointRecord, args: JsonObject) -> None:
    """A record before it is stored, and one that is read, agree."""
    changed = replace(endpoint, attachment=replace(endpoint.attachment, capability_args=args))
    read = parse_endpoint(ENDPOINT, render_endpoint(changed))
    assert read.has_capability_args is changed.has_capability_args is bool(args)


def test_the_network_name_of_a_list_without_one_is_empty(endpoint: EndpointRecord) -> None:
    """It is empty in a record before it is stored, and in one that is read."""
    changed = replace(endpoint, attachment=replace(endpoint.attachment, configuration={"plugins": []}))
    value = render_endpoint(changed)
    assert parse_endpoint(ENDPOINT, value).cni_network == changed.cni_network == ""
    assert value_of(ENDPOINT, document_of(ENDPOINT, value)) == value


def test_an_invalid_attachment_of_an_earlier_version(endpoint: EndpointRecord) -> None:
    """It is damage when the record is migrated, not when the attachment is first used."""
    document = document_of(ENDPOINT, render_endpoint(endpoint))
    attachment = {name: value for name, value in get_object(document, "attachment").items() if name != "netns"}
    with pytest.raises(RecordDamaged, match="netns"):
        value_of_stored(ENDPOINT, {**document, "attachment": attachment})


def test_equal_configurations_are_one_object(endpoint: EndpointRecord) -> None:
    """Ten thousand endpoints of one list share its configuration; 1 and true are different."""
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
