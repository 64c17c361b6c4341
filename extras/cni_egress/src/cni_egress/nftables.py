# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Elements of the sets of nf_tables, changed in transactions; and what else is asked without a process `nft`."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Self

from cni_egress.netlink import ACKNOWLEDGE, CREATE, NESTED, NETFILTER, Socket, attribute, attributes

__all__ = [
    "TABLE",
    "Change",
    "Element",
    "Family",
    "Nftables",
    "Verb",
    "key_address",
    "key_ifname",
    "key_mac",
    "key_service",
]

TABLE: Final = "cni-egress"
"""The name of both tables."""

_SUBSYSTEM: Final = 10 << 8
_BATCH_BEGIN: Final = 0x10
_BATCH_END: Final = 0x11
_GET_CHAIN: Final = _SUBSYSTEM | 4
_DELETE_CHAIN: Final = _SUBSYSTEM | 5
_GET_RULES: Final = _SUBSYSTEM | 7
_GET_SET: Final = _SUBSYSTEM | 10
_DELETE_SET: Final = _SUBSYSTEM | 11
_GET_ELEMENTS: Final = _SUBSYSTEM | 13
_GET_GENERATION: Final = _SUBSYSTEM | 16
_GOTO: Final = -4
_CHUNK: Final = 48_000
"""How many bytes of elements one message has: a nested attribute has less than 64 KiB."""


class Family(IntEnum):
    """The family of a table."""

    INET = 1
    BRIDGE = 7


class Verb(IntEnum):
    """What a change does."""

    ADD = _SUBSYSTEM | 12
    DELETE = _SUBSYSTEM | 14


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a set or a map.

    Attributes:
        key: Its key, from the `key_` functions.
        chain: For a map of verdicts, the chain in which packets go on.
        timeout_ms: How long it stays, in milliseconds, from now on; 0: until it is deleted.
    """

    key: bytes
    chain: str = ""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one set.

    Attributes:
        verb: Add or delete.
        family: The family of the table.
        set_name: The set.
        elements: The elements; to delete one, its key is enough.
    """

    verb: Verb
    family: Family
    set_name: str
    elements: tuple[Element, ...]


def key_ifname(name: str) -> bytes:
    """Return the name of a link as part of a key."""
    return name.encode().ljust(16, b"\0")


def key_address(address: IPv4Address | IPv6Address) -> bytes:
    """Return an address as part of a key."""
    return address.packed


def key_mac(mac: str) -> bytes:
    """Return a hardware address as part of a key."""
    return bytes.fromhex(mac.replace(":", "")) + b"\0\0"


def key_service(protocol: int, port: int) -> bytes:
    """Return a protocol and a port as two parts of a key."""
    return struct.pack(">B3xH2x", protocol, port)


class Nftables:
    """The tables of this network namespace.

    Attributes:
        netlink: The socket, for other parts of netfilter.
    """

    def __init__(self) -> None:
        self.netlink = Socket(NETFILTER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.netlink.close()

    def commit(self, changes: Iterable[Change]) -> None:
        """Carry out changes in their order, all of them or none, and return when they are in force.

        Raises:
            NetlinkError: The kernel has refused one: ENOENT if a table, a set, a chain, or an element to be deleted is
                missing; EBUSY or EEXIST if there is such an element with another chain.
        """
        requests = [
            (change.verb, change.family, CREATE if change.verb is Verb.ADD else 0, body)
            for change in changes
            for body in _element_messages(change)
        ]
        self._batch(requests)

    def find(self, family: Family, set_name: str, key: bytes) -> Element | None:
        """Return an element of a set; None if there is none, or no such set.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        (body,) = _element_messages(Change(Verb.ADD, family, set_name, (Element(key),)))
        answer = self.netlink.ask(_GET_ELEMENTS, _head(family) + body)
        return None if answer is None else next(_elements(answer), None)

    def elements(self, family: Family, set_name: str, part: bytes = b"") -> list[Element]:
        """Return the elements of a set whose keys begin with `part`; empty if there is no such set.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        body = _head(family) + attribute(1, _text(TABLE)) + attribute(2, _text(set_name))
        found = []
        for message in self.netlink.dump(_GET_ELEMENTS, body):
            if part in message:  # a hundred thousand elements would take seconds otherwise
                found += [one for one in _elements(message) if one.key.startswith(part)]
        return found

    def keys(self, family: Family, set_name: str) -> list[bytes]:
        """Return the keys of a set's elements; empty if there is no such set.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        return [one.key for one in self.elements(family, set_name)]

    def chains(self, family: Family) -> list[str]:
        """Return the names of the chains of the table.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        return self._names(_GET_CHAIN, family, 3)

    def sets(self, family: Family) -> list[str]:
        """Return the names of the sets of the table.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        return self._names(_GET_SET, family, 2)

    def _names(self, kind: int, family: Family, attribute_of_name: int) -> list[str]:
        found = []
        for message in self.netlink.dump(kind, _head(family) + attribute(1, _text(TABLE))):
            fields = dict(attributes(message[4:]))
            if fields.get(1) == _text(TABLE):  # chains are listed of all tables
                found.append(fields[attribute_of_name].rstrip(b"\0").decode())
        return found

    def count_rules(self, family: Family, chain: str) -> int:
        """Return the number of rules of a chain; 0 if there is no such chain.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        names = attribute(1, _text(TABLE)) + attribute(2, _text(chain))
        found = 0
        for message in self.netlink.dump(_GET_RULES, _head(family) + names):
            fields = dict(attributes(message[4:]))
            found += (fields.get(1), fields.get(2)) == (_text(TABLE), _text(chain))  # an old kernel lists all
        return found

    def delete_chain(self, family: Family, chain: str) -> None:
        """Delete a chain with its rules.

        Raises:
            NetlinkError: ENOENT if there is none, EBUSY if an element of a map still leads to it.
        """
        self._batch([(_DELETE_CHAIN, family, 0, attribute(1, _text(TABLE)) + attribute(3, _text(chain)))])

    def delete_set(self, family: Family, set_name: str) -> None:
        """Delete a set with its elements.

        Raises:
            NetlinkError: ENOENT if there is none, EBUSY if a rule still uses it.
        """
        self._batch([(_DELETE_SET, family, 0, attribute(1, _text(TABLE)) + attribute(2, _text(set_name)))])

    def generation(self) -> bytes:
        """Return what changes with each transaction of any program.

        Raises:
            NetlinkError: The kernel has no nf_tables, or this process may not use it.
        """
        return self.netlink.ask(_GET_GENERATION, _head(0)) or b""

    def _batch(self, requests: Sequence[tuple[int, int, int, bytes]]) -> None:
        if not requests:
            return
        messages = [self.netlink.message(_BATCH_BEGIN, 0, _head(0, 10))]
        for kind, family, flags, body in requests[:-1]:
            messages.append(self.netlink.message(kind, flags, _head(family) + body))
        kind, family, flags, body = requests[-1]
        # Errors arrive for any message, and before this acknowledgement.
        messages.append(self.netlink.message(kind, flags | ACKNOWLEDGE, _head(family) + body))
        last = self.netlink.sequence
        messages.append(self.netlink.message(_BATCH_END, 0, _head(0, 10)))
        self.netlink.send(messages, last)


def _head(family: int, resource: int = 0) -> bytes:
    return struct.pack(">BBH", family, 0, resource)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _element_messages(change: Change) -> Iterator[bytes]:
    """Return the bodies of the messages for a change, each not too large for an attribute."""
    head = attribute(1, _text(TABLE)) + attribute(2, _text(change.set_name))
    chunk: list[bytes] = []
    size = 0
    for element in change.elements:
        one = _element(element)
        if chunk and size + len(one) > _CHUNK:
            yield head + attribute(3 | NESTED, b"".join(chunk))
            chunk, size = [], 0
        chunk.append(one)
        size += len(one)
    if chunk:
        yield head + attribute(3 | NESTED, b"".join(chunk))


def _element(element: Element) -> bytes:
    body = attribute(1 | NESTED, attribute(1, element.key))
    if element.chain:
        verdict = attribute(1, struct.pack(">i", _GOTO)) + attribute(2, _text(element.chain))
        body += attribute(2 | NESTED, attribute(2 | NESTED, verdict))
    if element.timeout_ms:
        body += attribute(4, struct.pack(">Q", element.timeout_ms))
    return attribute(1 | NESTED, body)


def _elements(message: bytes) -> Iterator[Element]:
    """Return the elements in an answer about a set."""
    for kind, listed in attributes(message[4:]):
        if kind != 3:  # noqa: PLR2004  # NFTA_SET_ELEM_LIST_ELEMENTS
            continue
        for _, element in attributes(listed):
            fields = dict(attributes(element))
            key = dict(attributes(fields.get(1, b""))).get(1)
            if key is None:  # the end of an interval
                continue
            verdict = dict(attributes(dict(attributes(fields.get(2, b""))).get(2, b"")))
            yield Element(
                key,
                chain=verdict.get(2, b"").rstrip(b"\0").decode(),
                timeout_ms=int.from_bytes(fields.get(5, b""), "big"),  # NFTA_SET_ELEM_EXPIRATION
            )
