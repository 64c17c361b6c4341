# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The network configuration lists of the soak: what leaves most behind, each with its own subnets."""

from collections.abc import Mapping, Sequence
from typing import Final

from spec import JsonObject

__all__ = ["LISTS", "PUBLISHING", "SETUP", "families", "gateways"]

_UPLINK: Final = "uplink0"


def _ipam(number: int, *, ipv6: bool) -> JsonObject:
    ranges = [[{"subnet": f"10.82.{number}.0/24"}], *([[{"subnet": f"fd82:{number}::/64"}]] if ipv6 else [])]
    routes = [{"dst": "0.0.0.0/0"}, *([{"dst": "::/0"}] if ipv6 else [])]
    return {"type": "host-local", "ranges": ranges, "routes": routes}


def _bridge(number: int, *, ipv6: bool) -> JsonObject:
    return {
        "type": "bridge",
        "bridge": f"cni-soak{number}",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": _ipam(number, ipv6=ipv6),
    }


def _ptp(number: int, *, ipv6: bool) -> JsonObject:
    return {"type": "ptp", "ipMasq": True, "ipam": _ipam(number, ipv6=ipv6)}


_PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
_FIREWALL: Final[JsonObject] = {"type": "firewall"}
_BANDWIDTH: Final[JsonObject] = {
    "type": "bandwidth",
    "ingressRate": 100_000_000,
    "ingressBurst": 8_000_000,
    "egressRate": 100_000_000,
    "egressBurst": 8_000_000,
}

LISTS: Final[Mapping[str, Sequence[JsonObject]]] = {
    "lan": (_bridge(1, ipv6=False), _PORTMAP, _FIREWALL),
    "lan6": (_bridge(2, ipv6=True), _PORTMAP, _FIREWALL, _BANDWIDTH),
    "wire": (_ptp(3, ipv6=False), _PORTMAP, _FIREWALL),
    "wire6": (_ptp(4, ipv6=True), _FIREWALL),
    "air6": ({"type": "macvlan", "master": _UPLINK, "mode": "bridge", "ipam": _ipam(5, ipv6=True)},),
}
"""Bridges and point to point links with masquerading and firewall rules, a bandwidth limit with its ifb device, and
macvlan, by name."""

PUBLISHING: Final = frozenset(name for name, plugins in LISTS.items() if _PORTMAP in plugins)
"""The lists that can publish ports; a container that publishes some must have none but these."""

SETUP: Final = f"""set -e
ip link add {_UPLINK} type veth peer name {_UPLINK}-end
ip addr add 10.82.5.1/24 dev {_UPLINK}-end
ip addr add fd82:5::1/64 dev {_UPLINK}-end nodad
ip link set {_UPLINK} up
ip link set {_UPLINK}-end up
"""
"""Makes the link that macvlan works on, in the host namespace of a lab; at its other end is the gateway."""


def families(name: str) -> int:
    """Give how many addresses a container gets of a list, and how many gateways: 2 where it is dual stack."""
    return 2 if name.endswith("6") else 1


def gateways(name: str) -> tuple[str, ...]:
    """Give the gateways of a list, which every container on it must reach."""
    number = list(LISTS).index(name) + 1
    return (f"10.82.{number}.1", f"fd82:{number}::1")[: families(name)]
