# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Snapshots of the links that common plugins make, as the kernel shows them."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

from cnm_bridge.core.link_state import MAIN_TABLE, SCOPE_LINK, UNICAST, Address, LinkState, Route, Snapshot

PERMANENT = 0x80
LINK = LinkState(name="eth0", kind="veth", mac="02:00:00:00:00:01", mtu=1500, noarp=False)


def address(text: str, *, scope: int = 0, flags: int = PERMANENT) -> Address:
    """Return an address as the kernel shows it."""
    return Address(address=ip_interface(text), peer=None, scope=scope, flags=flags)


def route(
    destination: str, gateway: str | None = None, *, source: str | None = None, **changes: int | bool | None
) -> Route:
    """Return a unicast route of the main table."""
    plain = Route(
        destination=ip_network(destination),
        gateway=ip_address(gateway) if gateway else None,
        table=MAIN_TABLE,
        metric=0,
        type=UNICAST,
        scope=0 if gateway else SCOPE_LINK,
        protocol=3,
        source=ip_address(source) if source else None,
        onlink=False,
        mtu=None,
        advmss=None,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # only fields of those types are changed


def snapshot(*parts: Address | Route, link: LinkState = LINK) -> Snapshot:
    """Return a snapshot of these addresses and routes."""
    return Snapshot(
        link=link,
        addresses=tuple(part for part in parts if isinstance(part, Address)),
        routes=tuple(part for part in parts if isinstance(part, Route)),
    )


BRIDGE = (
    address("10.22.0.2/16"),
    address("fe80::ff:fe00:1/64", scope=SCOPE_LINK),
    route("10.22.0.0/16", protocol=2, source="10.22.0.2"),
    route("0.0.0.0/0", "10.22.0.1"),
    route("fe80::/64", protocol=2, metric=256, scope=0),
)
BRIDGE_IPV6 = (
    address("fd00:22::2/64"),
    route("fd00:22::/64", protocol=2, metric=256, scope=0),
    route("::/0", "fd00:22::1", metric=1024),
)
PTP = (
    address("10.23.0.2/24"),
    route("10.23.0.1/32"),
    route("10.23.0.0/24", "10.23.0.1"),
    route("0.0.0.0/0", "10.23.0.1"),
)
CALICO = (address("10.24.0.2/32"), route("169.254.1.1/32"), route("0.0.0.0/0", "169.254.1.1"))
