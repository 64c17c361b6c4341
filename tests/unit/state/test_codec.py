# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records are unchanged by storing and reading them; any other value is damaged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, JsonValue, as_object, get_object, parse_json, render_json
from cni_bridge_state import (
    EndpointRecord,
    NetworkRecord,
    Phase,
    ProcessRecord,
    RecordDamaged,
    RequestedInterface,
)
from cni_bridge_state.codec import join_checksum, parse_value, render_value, value_of

NETWORK: Final = f"network/{'a' * 64}"
ENDPOINT: Final = f"endpoint/{'e' * 64}"
VERSION_1: Final = Path(__file__).with_name("version_1.json")
"""A network and an endpoint as schema version 1 has them."""


def document_of(value: bytes) -> JsonObject:
    """Return the document of a stored value."""
    return as_object(parse_json(value.partition(b"\n")[2]), "the record")


def with_documents(endpoint: EndpointRecord) -> EndpointRecord:
    """Return the record of an endpoint whose plugins have completed ADD."""
    snapshot: JsonObject = {
        "link": {"name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:01", "mtu": 1500, "noarp": False},
        "addresses": [],
        "routes": [],
        "rules": [],
        "neighbours": [],
        "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "a\nb"}],
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


def test_records_are_read_unchanged(network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """Each is equal to the one that was stored, and its document passes the schema for imports."""
    networks = (
        network,
        replace(network, engine="AAAA /var/lib/docker", caller=ProcessRecord(pid=7, started=9)),
        replace(network, configuration=None, options={}),
    )
    without_name = replace(endpoint, attachment=replace(endpoint.attachment, configuration={"plugins": []}))
    endpoints = (
        endpoint,
        with_documents(endpoint),
        replace(endpoint, requested=RequestedInterface(), phase=Phase.DELETING, sandbox_key="/var/run/x"),
        without_name,
    )
    cases = [*((NETWORK, record) for record in networks), *((ENDPOINT, record) for record in endpoints)]
    for key, record in cases:
        value = render_value(record)
        assert parse_value(type(record), key, value) == record
        assert value_of(key, document_of(value)) == value
    assert without_name.attachment.network == ""


def test_the_stored_form_of_version_1(network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """Another form of these documents is another schema version."""
    documents = as_object(parse_json(VERSION_1.read_bytes()), "the file")
    known = replace(network, name="shop", engine="AAAA", caller=ProcessRecord(pid=7, started=9))
    records = known, with_documents(endpoint)
    assert document_of(render_value(records[0])) == documents["network"]
    assert document_of(render_value(records[1])) == documents["endpoint"]
    assert parse_value(NetworkRecord, NETWORK, value_of(NETWORK, documents["network"])) == records[0]
    assert parse_value(EndpointRecord, ENDPOINT, value_of(ENDPOINT, documents["endpoint"])) == records[1]


def test_each_field_of_version_1_has_a_value() -> None:
    """Two fields that are null could be exchanged, and the form would seem unchanged."""
    documents = as_object(parse_json(VERSION_1.read_bytes()), "the file")
    empty = [way for way in fields_of(documents) if find_in(documents, way) is None]
    assert empty == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"phase": "sleeping"}, "phase: a string is not one of"),
        ({"surprise": 1}, "surprise"),
        ({"bootId": None}, "bootId"),
        ({"requested": {"address": "10.0.0.0/99", "addressIpv6": None, "mac": None}}, "not a valid netmask"),
        ({"snapshot": {}}, "snapshot: an object is not valid"),
        ({"id": "f" * 64}, "it is the record of f"),
    ],
)
def test_an_invalid_document_is_rejected(endpoint: EndpointRecord, change: JsonObject, what: str) -> None:
    """The error names the key and the fault; the schema is closed, and the ID must be that of the key."""
    document = {**document_of(render_value(endpoint)), **change}
    with pytest.raises(RecordDamaged, match=what) as caught:
        value_of(ENDPOINT, document)
    assert caught.value.key == ENDPOINT


_FOREIGN: Final = frozenset({"configuration", "capabilityArgs", "plugin", "reservation", "result", "snapshot"})


def fields_of(document: JsonObject, way: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the way to each field of a document and of the records in it."""
    for name, value in document.items():
        yield (*way, name)
        if isinstance(value, dict) and name not in _FOREIGN:
            yield from fields_of(value, (*way, name))


def find_in(document: JsonObject, way: tuple[str, ...]) -> JsonValue:
    """Return one field of a document."""
    *outer, last = way
    for name in outer:
        document = get_object(document, name)
    return document[last]


def changed(document: JsonObject, way: tuple[str, ...], value: JsonValue) -> JsonObject:
    """Return a document with another value of one field."""
    name, *rest = way
    return {**document, name: changed(get_object(document, name), tuple(rest), value) if rest else value}


def without(document: JsonObject, way: tuple[str, ...]) -> JsonObject:
    """Return a document without one field."""
    *outer, last = way
    if outer:
        around = as_object(find_in(document, tuple(outer)), "the field")
        return changed(document, tuple(outer), without(around, (last,)))
    return {name: value for name, value in document.items() if name != last}


def test_a_damaged_field_is_named(network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """A stored field of another type, a missing one and an unknown one are errors with the key and the field."""
    known = replace(network, engine="AAAA", caller=ProcessRecord(pid=7, started=9))
    stored = {NETWORK: render_value(known), ENDPOINT: render_value(with_documents(endpoint))}
    count = 0
    for key, value in stored.items():
        document = document_of(value)
        kind = NetworkRecord if key == NETWORK else EndpointRecord
        for way in fields_of(document):
            cases = {"must be": changed(document, way, [[]]), "is missing": without(document, way)}
            if way[0] == "options" and len(way) > 1:
                del cases["is missing"]  # all options are the user's
            else:
                cases["is not a field of the record"] = changed(document, (*way[:-1], "surprise"), 1)
            for what, damaged in cases.items():
                named = (*way[:-1], "surprise" if "not a field" in what else way[-1])
                with pytest.raises(RecordDamaged) as caught:
                    parse_value(kind, key, join_checksum(render_json(damaged)))
                assert caught.value.key == key
                assert ": ".join(named) in caught.value.reason
                assert what in caught.value.reason
                count += 1
    assert count > 100


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bootId": None}, "bootId is null"),
        ({"phase": "sleeping"}, "phase is not one of pending, ready, joining, joined, deleting"),
        ({"addedPlugins": True}, "addedPlugins must be a number, not a boolean"),
        ({"internal": None}, "internal is null"),
        ({"requested": {"address": "10.0.0.0/99", "addressIpv6": None, "mac": None}}, "requested: address: "),
        ({"id": "f" * 64}, f"it is the record of {'f' * 64}"),
    ],
)
def test_a_damaged_value_is_named(endpoint: EndpointRecord, change: JsonObject, reason: str) -> None:
    """The error says what is wrong with it."""
    document = {**document_of(render_value(endpoint)), **change}
    with pytest.raises(RecordDamaged) as caught:
        parse_value(EndpointRecord, ENDPOINT, join_checksum(render_json(document)))
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize("place", [("args",), ("reservationInput", "args")])
@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ({"key": "K", "value": "1", "surprise": 1}, "surprise is not a field of the record"),
        ({"key": "K"}, "value is missing"),
        ({"key": 5, "value": "1"}, "key must be a string, not a number"),
    ],
)
def test_a_damaged_argument_is_named(
    endpoint: EndpointRecord, place: tuple[str, ...], argument: JsonObject, reason: str
) -> None:
    """An argument of plugins is closed like any other document."""
    document = changed(document_of(render_value(endpoint)), ("attachment", *place), [argument])
    with pytest.raises(RecordDamaged) as caught:
        parse_value(EndpointRecord, ENDPOINT, join_checksum(render_json(document)))
    assert caught.value.reason == ": ".join(("attachment", *place, reason))


@given(position=st.integers(min_value=0), bits=st.integers(min_value=1, max_value=255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_is_damage(endpoint: EndpointRecord, position: int, bits: int) -> None:
    """The checksum also covers what could be read as another value, and a value that is cut short."""
    value = bytearray(render_value(with_documents(endpoint)))
    value[position % len(value)] ^= bits
    for damaged in (bytes(value), bytes(value)[: position % len(value)]):
        with pytest.raises(RecordDamaged):
            parse_value(EndpointRecord, ENDPOINT, damaged)
