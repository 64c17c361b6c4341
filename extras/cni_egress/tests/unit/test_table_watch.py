# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Messages of the kernel about changes of tables."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_egress.table_watch import tells_removal


def message(number: int, table: bytes, name: bytes = b"guard") -> bytes:
    """Return a message of nf_tables about a table, or a chain, a rule's chain or a set in it."""
    body = bytes(4)
    for kind, text in ((1, table), (2, name), (3, name)):
        value = text + b"\0"
        body += struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
    return struct.pack("=LHHLL", 16 + len(body), 10 << 8 | number, 0, 0, 0) + body


@pytest.mark.parametrize(
    ("number", "table", "expected"),
    [
        (2, b"cni-egress", True),
        (5, b"cni-egress", True),
        (8, b"cni-egress", True),
        (11, b"cni-egress", True),
        (14, b"cni-egress", False),  # an element: they expire all the time
        (6, b"cni-egress", False),  # a new rule
        (2, b"filter", False),
        (2, b"cni-egress2", False),
    ],
)
def test_messages(number: int, table: bytes, expected: bool) -> None:
    """The removal of a table, chain, rule or set of ours tells, also behind other messages."""
    assert tells_removal(message(number, table)) is expected
    assert tells_removal(message(0, b"filter") + message(number, table)) is expected


@pytest.mark.parametrize("name", [b"policy-0123456789ab", b"any-4", b"tcp-8000-8100-6"])
def test_the_end_of_a_policy(name: bytes) -> None:
    """DEL removes the chain and the sets of a policy that no container has any more."""
    for number in (5, 8, 11):
        assert not tells_removal(message(number, b"cni-egress", name))
    assert tells_removal(message(2, b"cni-egress", name))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no message tell nothing, or something; nothing else happens."""
    tells_removal(data)
