# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lists of the soak, those with most artifacts, and IPAM sections for Docker's own drivers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue
from tests.plugins.unreliable import Fault, goes_wrong

_UPLINK: Final = "uplink0"
DEVICE: Final = "device0"
DEVICE_MAC: Final = "02:82:00:00:00:13"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The pool of Docker's own IPAM for a network."""

    subnet: str
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerDriver:
    """A driver of Docker's own, for networks whose addresses come from an IPAM section."""

    name: str
    options: Mapping[str, str]


def _ipam(number: int, *, ipv6: bool = False, addresses: Sequence[str] = ()) -> JsonObject:
    ipv4: dict[str, JsonValue] = {"subnet": f"10.82.{number}.0/24"}
    if addresses:
        ipv4 |= {"rangeStart": addresses[0], "rangeEnd": addresses[-1]}
    ranges: list[JsonValue] = [[ipv4], *([[{"subnet": f"fd82:{number}::/64"}]] if ipv6 else [])]
    routes: list[JsonValue] = [{"dst": "0.0.0.0/0"}, *([{"dst": "::/0"}] if ipv6 else [])]
    return {"type": "host-local", "ranges": ranges, "routes": routes}


def _few(number: int) -> tuple[str, ...]:
    """Return the addresses of a small range, or those that containers may choose."""
    return tuple(f"10.82.{number}.{host}" for host in (10, 11, 12))


def _ten(number: int) -> tuple[str, ...]:
    """Return the addresses of a range that can be filled."""
    return tuple(f"10.82.{number}.{host}" for host in range(10, 20))


def _bridge(number: int, *, ipv6: bool = False, addresses: Sequence[str] = ()) -> JsonObject:
    return {
        "type": "bridge",
        "bridge": f"cni-soak{number}",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": _ipam(number, ipv6=ipv6, addresses=addresses),
    }


def _ptp(number: int, *, ipv6: bool = False) -> JsonObject:
    return {"type": "ptp", "ipMasq": True, "ipam": _ipam(number, ipv6=ipv6)}


_PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
_FIREWALL: Final[JsonObject] = {"type": "firewall"}
_TUNING: Final[JsonObject] = {
    "type": "tuning",
    "mtu": 1400,
    "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"},
}
_BANDWIDTH: Final[JsonObject] = {
    "type": "bandwidth",
    "ingressRate": 100_000_000,
    "ingressBurst": 8_000_000,
    "egressRate": 100_000_000,
    "egressBurst": 8_000_000,
}

SLOW: Final = "slow"
HUNG: Final = "hung"
POOL: Final = "pool"
OF_DEVICE: Final = "device"
POOL_MOST: Final = 9
"""How many containers are on the list POOL: nine of ten addresses."""

LISTS: Final[Mapping[str, Sequence[JsonObject]]] = {
    "lan": (_bridge(1), _PORTMAP, _FIREWALL),
    "lan6": (_bridge(2, ipv6=True), _PORTMAP, _FIREWALL, _BANDWIDTH),
    "wire": (_ptp(3), _TUNING, _PORTMAP, _FIREWALL),
    "wire6": (_ptp(4, ipv6=True), _FIREWALL),
    "air6": ({"type": "macvlan", "master": _UPLINK, "mode": "bridge", "ipam": _ipam(5, ipv6=True)},),
    "again": ({**_bridge(6, addresses=_few(6)), **goes_wrong("bridge", Fault.FAILS_AFTER)}, _PORTMAP, _FIREWALL),
    "stuck": (_bridge(7, addresses=_few(7)), {**_FIREWALL, **goes_wrong("firewall", Fault.HANGS)}),
    "static": ({**_bridge(8), **goes_wrong("host-local", Fault.FAILS_BEFORE)}, {"type": "sbr"}, _FIREWALL),
    "docker": (_bridge(9), _PORTMAP, {**_FIREWALL, **goes_wrong("firewall", Fault.FAILS_BEFORE)}),
    SLOW: ({**_bridge(10), **goes_wrong("bridge", Fault.SLOW_ADD)}, _PORTMAP, _FIREWALL),
    HUNG: ({**_bridge(11), **goes_wrong("bridge", Fault.HANGS_IN_ADD)}, _FIREWALL),
    POOL: ({**_bridge(12, addresses=_ten(12)), **goes_wrong("bridge", Fault.SLOW_DEL)}, _PORTMAP, _FIREWALL),
    OF_DEVICE: ({"type": "host-device", "device": DEVICE, "ipam": _ipam(13, addresses=_few(13)[:1])}, _FIREWALL),
}
"""By name: bridges and point-to-point links with masquerading and firewall rules, sysctls, a bandwidth limit with its
ifb link, and macvlan. Then lists whose first DEL of each container fails or hangs and whose addresses are soon reused:
small ranges, and addresses that containers choose, by `cni.ips` (`static`) or by Docker's IPAM (`docker`). Then the
lists of some kinds of trouble (`tests/soak/trouble.py`), and a device of the host, for one container at a time."""

DOCKERS_BRIDGE: Final = "br-000000000082"
"""Of the form that Docker chooses, so that the bridge's rules are known to be Docker's (`tests/lab/leftovers.py`)."""

OF_DOCKER: Final[Mapping[str, DockerDriver]] = {
    "house": DockerDriver(name="bridge", options={"com.docker.network.bridge.name": DOCKERS_BRIDGE}),
    "street": DockerDriver(name="macvlan", options={"parent": _UPLINK}),
}
"""The networks of Docker's own drivers, by the name of their IPAM section."""

NAMES: Final = (*LISTS, *OF_DOCKER)
"""The names of all lists and sections. Those of sections count as lists wherever a network is made of one."""

WRAPPED: Final = ("bridge", "firewall", "host-local")
"""The plugins that may fail or hang."""

PUBLISHING: Final = frozenset(name for name, plugins in LISTS.items() if _PORTMAP in plugins)
"""The lists that can publish ports; a container that publishes ports must use only these."""

CANDIDATES: Final[Mapping[str, tuple[str, ...]]] = {
    name: _few(NAMES.index(name) + 1)[:most]
    for name, most in (("again", 3), ("stuck", 3), ("static", 3), ("docker", 3), (OF_DEVICE, 1))
}
"""All addresses of the lists with few addresses."""

CHOSEN: Final = frozenset({"static", "docker"})
"""The lists of these on which each container chooses its address when it is created."""

SINGLE: Final = frozenset({"docker", *OF_DOCKER})
"""The lists of which there is one network at a time, because Docker's pools may not overlap."""

TROUBLED: Final = frozenset({*CANDIDATES, SLOW, HUNG, POOL})
"""The lists on which a start may have to wait for plugins or for an address."""

DEVICE_SETUP: Final = f"""set -e
ip link add {DEVICE} address {DEVICE_MAC} type veth peer name {DEVICE}-end
ip addr add 10.82.13.1/24 dev {DEVICE}-end
ip link set {DEVICE}-end up
"""
"""Makes the device for `host-device`; its other end has the gateway's address."""

SETUP: Final = f"""set -e
ip link add {_UPLINK} type veth peer name {_UPLINK}-end
ip addr add 10.82.5.1/24 dev {_UPLINK}-end
ip addr add fd82:5::1/64 dev {_UPLINK}-end nodad
ip addr add 10.82.{NAMES.index("street") + 1}.1/24 dev {_UPLINK}-end
ip link set {_UPLINK} up
ip link set {_UPLINK}-end up
"""
"""Makes the parent link for macvlan, in the host namespace of a lab; its other end has the gateway's addresses."""


def _number(name: str) -> int:
    """Return the number of a list, which its subnets have."""
    return NAMES.index(name) + 1


def families(name: str) -> int:
    """Return the number of addresses, and of gateways, that a list gives a container: 2 if it is dual stack."""
    return 2 if name.endswith("6") else 1


def gateways(name: str) -> tuple[str, ...]:
    """Return the gateways of a list, which every container on it must reach."""
    number = _number(name)
    return (f"10.82.{number}.1", f"fd82:{number}::1")[: families(name)]


def docker_pool(name: str) -> Pool | None:
    """Return the pool of a network of this list; None if it has none."""
    number = _number(name)
    return Pool(subnet=f"10.82.{number}.0/24", gateway=f"10.82.{number}.1") if name in SINGLE else None


def section(name: str) -> JsonObject:
    """Return the file of an IPAM section; the first DEL of each address fails, after its work."""
    ipam = _ipam(_number(name))
    return {"cniVersion": "1.0.0", "name": name, "ipam": {**ipam, **goes_wrong("host-local", Fault.FAILS_AFTER)}}


def is_docker_choice(address: str) -> bool:
    """Return whether an address is one of Docker's IPAM."""
    pool = docker_pool("docker")
    return pool is not None and ip_address(address) in ip_network(pool.subnet)
