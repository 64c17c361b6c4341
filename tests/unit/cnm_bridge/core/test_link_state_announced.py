# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the kernel has learnt from router advertisements, beside what plugins made."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

from cnm_bridge.core.link_state import Address, Route, find_dynamic, without_announced

PERMANENT, ANNOUNCED, LEASED = 0x80, 0x100, 0
OF_PLUGIN = Address(address=ip_interface("fd00::3/64"), peer=None, scope=0, flags=PERMANENT)
OF_ROUTER = Address(address=ip_interface("fdaa::3/64"), peer=None, scope=0, flags=ANNOUNCED)
LINK_LOCAL = Address(address=ip_interface("fe80::3/64"), peer=None, scope=253, flags=PERMANENT)
OF_SERVER = Address(address=ip_interface("10.1.2.3/24"), peer=None, scope=0, flags=LEASED)
TO_PLUGINS = Route(
    destination=ip_network("fd00::/64"),
    gateway=None,
    table=254,
    metric=256,
    type=1,
    scope=0,
    protocol=2,
    source=None,
    onlink=False,
    mtu=None,
    advmss=None,
)
TO_ROUTERS = replace(TO_PLUGINS, destination=ip_network("fdaa::/64"))


def test_the_route_of_an_announced_prefix_is_left_out() -> None:
    """With and without an address in it."""
    assert without_announced([TO_PLUGINS, TO_ROUTERS], [OF_PLUGIN, OF_ROUTER]) == (TO_PLUGINS,)
    assert without_announced([TO_PLUGINS, TO_ROUTERS], [OF_PLUGIN]) == (TO_PLUGINS,)


def test_a_prefix_that_is_also_a_plugins_stays() -> None:
    """The kernel has one route for both."""
    also = replace(OF_ROUTER, address=ip_interface("fd00::9/64"))
    assert without_announced([TO_PLUGINS], [OF_PLUGIN, also]) == (TO_PLUGINS,)


def test_other_routes_stay() -> None:
    """Those of plugins, of IPv4, of another table, to a peer, and the link-local one."""
    to_peer = replace(TO_PLUGINS, destination=ip_network("fd09::9/128"))
    peer = replace(OF_PLUGIN, address=ip_interface("fd09::3/128"), peer=ip_address("fd09::9"))
    kept = (
        replace(TO_ROUTERS, protocol=3),
        replace(TO_ROUTERS, table=100),
        replace(TO_ROUTERS, gateway=ip_address("fe80::1")),
        replace(TO_ROUTERS, destination=ip_network("10.1.2.0/24"), scope=253),
        replace(TO_ROUTERS, destination=ip_network("fe80::/64")),
        to_peer,
    )
    assert without_announced(kept, [peer, OF_ROUTER]) == kept


def test_addresses_with_a_lifetime_are_dynamic() -> None:
    """Those of routers and of a DHCP client in the container; not the link-local one, which every link has."""
    found = find_dynamic([OF_SERVER, OF_PLUGIN, OF_ROUTER, replace(LINK_LOCAL, flags=0), LINK_LOCAL])
    assert found == (OF_SERVER.address, OF_ROUTER.address)
