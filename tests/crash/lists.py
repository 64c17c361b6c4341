# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The network configuration lists of the crash tests: those that leave most artifacts if they are not undone."""

from collections.abc import Mapping, Sequence
from typing import Final

from cni_bridge_spec import JsonObject
from tests.system.scene import Subnet

GATEWAYS: Final = ("10.81.0.1", "fd81::1")

_IPAM: Final[JsonObject] = {
    "type": "host-local",
    "ranges": [[{"subnet": "10.81.0.0/24"}], [{"subnet": "fd81::/64"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
}
_RATES: Final[JsonObject] = {
    "type": "bandwidth",
    "ingressRate": 100_000_000,
    "ingressBurst": 8_000_000,
    "egressRate": 100_000_000,
    "egressBurst": 8_000_000,
}
_BRIDGE: Final[JsonObject] = {"type": "bridge", "bridge": "cni-crash", "isGateway": True, "ipMasq": True, "ipam": _IPAM}

LISTS: Final[Mapping[str, Sequence[JsonObject]]] = {
    "bridge": (_BRIDGE, {"type": "firewall"}, _RATES),
    "ptp": ({"type": "ptp", "ipMasq": True, "ipam": _IPAM}, {"type": "firewall"}),
}
"""Dual stack, with reservations, masquerading, firewall rules, and (`bridge`) an ifb link for each container."""

SINGLE_STACK: Final[Sequence[JsonObject]] = (
    {**_BRIDGE, "ipam": {**_IPAM, "ranges": [[{"subnet": "10.81.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "firewall"},
)

LAN: Final = Subnet(number=82)
"""The addresses of the list with DHCP."""

DHCP: Final[Sequence[JsonObject]] = (
    {"type": "bridge", "bridge": LAN.bridge, "ipMasq": True, "ipam": {"type": "dhcp"}},
    {"type": "firewall"},
)
"""A bridge that exists, with the server's address."""
