# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Messages of the kernel about changes of tables."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_egress.table_watch import tells_removal


def message(number: int, table: bytes) -> bytes:
    """Return a message of nf_tables about a table."""
    value = table + b"\0"
    body = bytes(4) + struct.pack("=HH", 4 + len(value), 1) + value + bytes(-len(value) % 4)
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


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no message tell nothing, or something; nothing else happens."""
    tells_removal(data)
