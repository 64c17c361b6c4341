# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Keys and values in etcd."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_bridge_spec import JsonError
from cni_ipam_etcd.ranges import IpAddress
from cni_ipam_etcd.reservation import Keys, Reservation, last_key

KEYS = Keys("/cni")
FAMILIES = (st.ip_addresses(v=4), st.ip_addresses(v=6))


@given(st.one_of(*(st.tuples(one, one) for one in FAMILIES)))
def test_the_order_of_keys_is_that_of_addresses(pair: tuple[IpAddress, IpAddress]) -> None:
    """So a range of keys is a range of addresses; and each key is read again."""
    one, other = (KEYS.address("lan", address) for address in pair)
    assert (one < other) == (int(pair[0]) < int(pair[1]))
    assert KEYS.parse_address(one) == int(pair[0])
    assert KEYS.addresses("lan", pair[0].version) <= one < last_key(KEYS.addresses("lan", pair[0].version))


@pytest.mark.parametrize(
    "key", ["/cni/addresses/lan/4/x", "/cni/addresses/lan/4/1.2.3", "/cni/addresses/lan/4/999.0.0.1"]
)
def test_a_key_of_another_program(key: str) -> None:
    """It is not an address."""
    with pytest.raises(ValueError, match=r".+"):
        KEYS.parse_address(key)


def test_a_reservation_is_read_again() -> None:
    """Anything else is refused."""
    made = Reservation(
        network="lan",
        node="one",
        container_id="c1",
        ifname="eth0",
        addresses=(IPv4Address("10.1.0.7"), IPv6Address("fd00::7")),
        time="2026-11-25T10:00:00.000000+00:00",
    )
    assert Reservation.parse(made.render()) == made
    assert str(made) == "eth0 of container c1 on node one since 2026-11-25T10:00:00.000000+00:00"
    for value in (b"", b"[]", b"{}", made.render().replace(b"10.1.0.7", b"10.1.0.x")):
        with pytest.raises(JsonError):
            Reservation.parse(value)
