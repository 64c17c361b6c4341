# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugin lists of every kind that the project supports, with addresses that are the same in every run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cni_bridge_spec import JsonObject
from tests.system.scene import Scene, Subnet

Plugins = Sequence[JsonObject]


def static(*addresses: str, gateway: bool = True, routes: Sequence[JsonObject] = ()) -> JsonObject:
    """An IPAM part with these addresses; the first host of each network is the gateway."""
    given: list[JsonObject] = []
    for address in addresses:
        hop = address.rpartition(":" if ":" in address else ".")[0] + (":1" if ":" in address else ".1")
        given.append({"address": address, "gateway": hop} if gateway else {"address": address})
    return {"type": "static", "addresses": given, "routes": list(routes)}


def defaults(*families: int) -> Sequence[JsonObject]:
    """Default routes."""
    return [{"dst": "0.0.0.0/0" if family == 4 else "::/0"} for family in families]


def v4(subnet: Subnet, host: int = 5) -> str:
    """An IPv4 address of the test, with prefix."""
    return subnet.ipv4.replace(".0/", f".{host}/")


def v6(subnet: Subnet, host: int = 5) -> str:
    """An IPv6 address of the test, with prefix."""
    return subnet.ipv6.replace("::/", f"::{host}/")


def main(kind: str, subnet: Subnet, ipam: JsonObject, **further: str | bool | int) -> JsonObject:
    """A plugin that makes the link."""
    own: Mapping[str, JsonObject] = {
        "bridge": {"bridge": subnet.bridge, "isGateway": True},
        "ptp": {},
        "macvlan": {"master": Scene.UPLINK},
        "wrapper": {"bridge": subnet.bridge, "isGateway": True},
    }
    return {"type": kind, **own[kind], **further, "ipam": ipam}


def simple(subnet: Subnet, *, kind: str = "bridge", **further: str | bool | int) -> JsonObject:
    """The same with one IPv4 address and a default route."""
    return main(kind, subnet, static(v4(subnet), routes=defaults(4)), **further)


def ipv6_only(subnet: Subnet, *, kind: str = "bridge", **further: str | bool | int) -> JsonObject:
    """The same with one IPv6 address."""
    return main(kind, subnet, static(v6(subnet), routes=defaults(6)), **further)


def dual(subnet: Subnet, *, kind: str = "bridge") -> JsonObject:
    """The same with both families."""
    return main(kind, subnet, static(v4(subnet), v6(subnet), routes=defaults(4, 6)))


TUNING: Final[JsonObject] = {
    "type": "tuning",
    "sysctl": {
        "net.core.somaxconn": "512",
        "net.ipv4.conf.eth0.rp_filter": "2",
        "net.ipv4.conf.eth0.arp_filter": "1",
        "net.ipv4.ip_local_port_range": "20000 30000",
        "net.ipv6.conf.eth0.hop_limit": "17",
        "net.ipv4.neigh.eth0.gc_stale_time": "99",
    },
    "mtu": 1400,
    "promisc": True,
    "allmulti": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginList:
    """A list, and how to run it.

    Attributes:
        plugins: Makes the list for a subnet.
        cni_version: The list's CNI version.
        since: The first version of the plugins that can run it.
        options: Further options of `docker run`.
        capability_args: The same, as CNI's capability args.
    """

    plugins: Callable[[Subnet], Plugins]
    cni_version: str = "1.0.0"
    since: tuple[int, ...] = ()
    options: Sequence[str] = ()
    capability_args: JsonObject = field(default_factory=dict)


def route_fields(subnet: Subnet) -> Sequence[JsonObject]:
    """Return routes with every field of CNI 1.1.0 except the scope."""
    return [
        *defaults(4, 6),
        {"dst": "10.90.0.0/16", "gw": subnet.gateway, "mtu": 1300, "advmss": 1200, "priority": 77},
        {"dst": "10.91.0.0/16", "gw": subnet.gateway, "table": 500},
        {"dst": "10.90.0.0/16", "gw": subnet.gateway, "priority": 78},
        {"dst": "fd90::/64", "gw": subnet.gateway_ipv6, "mtu": 1300, "priority": 77},
        {"dst": "fd91::/64", "gw": subnet.gateway_ipv6, "table": 500, "advmss": 1200},
    ]


NEWER: Final = (1, 9)
"""The first plugins that support CNI 1.1.0."""

PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}}
BANDWIDTH: Final[JsonObject] = {"type": "bandwidth", "capabilities": {"bandwidth": True}}

_PORT: Final[JsonObject] = {"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}

LISTS: Final[Mapping[str, PluginList]] = {
    "bridge": PluginList(plugins=lambda s: [simple(s)]),
    "bridge with ports and firewall": PluginList(
        plugins=lambda s: [simple(s, ipMasq=True), PORTMAP, {"type": "firewall"}],
        options=("-p", "18080:80"),
        capability_args={"portMappings": [_PORT]},
    ),
    "bridge hairpin": PluginList(plugins=lambda s: [simple(s, hairpinMode=True)]),
    "bridge isolated ports": PluginList(
        plugins=lambda s: [simple(s, hairpinMode=True, portIsolation=True)], since=NEWER
    ),
    "bridge dual stack": PluginList(plugins=lambda s: [dual(s)]),
    "bridge IPv6-only": PluginList(plugins=lambda s: [ipv6_only(s)]),
    "bridge IPv6-only masquerading": PluginList(plugins=lambda s: [ipv6_only(s, ipMasq=True), {"type": "firewall"}]),
    "bridge second addresses": PluginList(
        plugins=lambda s: [main("bridge", s, static(v4(s), v4(s, 6), v6(s), v6(s, 6), routes=defaults(4, 6)))]
    ),
    "bridge tuning": PluginList(plugins=lambda s: [dual(s), TUNING]),
    "bridge sbr": PluginList(plugins=lambda s: [dual(s), {"type": "sbr"}]),
    "bridge bandwidth": PluginList(
        plugins=lambda s: [
            simple(s),
            {
                "type": "bandwidth",
                "ingressRate": 1000000,
                "ingressBurst": 100000,
                "egressRate": 1000000,
                "egressBurst": 100000,
            },
        ]
    ),
    "bridge route fields": PluginList(
        plugins=lambda s: [main("bridge", s, static(v4(s), v6(s), routes=route_fields(s)))],
        cni_version="1.1.0",
        since=NEWER,
    ),
    "bridge all chained": PluginList(
        plugins=lambda s: [
            dual(s),
            TUNING,
            {"type": "sbr"},
            {"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 100000},
            {"type": "firewall"},
            PORTMAP,
        ],
        options=("-p", "18080:80"),
        capability_args={"portMappings": [_PORT]},
    ),
    "ptp": PluginList(plugins=lambda s: [simple(s, kind="ptp", ipMasq=True)]),
    "ptp dual stack": PluginList(plugins=lambda s: [dual(s, kind="ptp")]),
    "ptp IPv6-only": PluginList(plugins=lambda s: [ipv6_only(s, kind="ptp")]),
    "macvlan": PluginList(plugins=lambda s: [simple(s, kind="macvlan")]),
    "macvlan dual stack": PluginList(plugins=lambda s: [dual(s, kind="macvlan")]),
    "macvlan route scope": PluginList(
        plugins=lambda s: [
            main("macvlan", s, static(v4(s), gateway=False, routes=[{"dst": "10.92.0.0/16", "scope": 253}]))
        ],
        cni_version="1.1.0",
        since=NEWER,
    ),
    "wrapper": PluginList(plugins=lambda s: [dual(s, kind="wrapper")]),
}

WRAPPER: Final = """
input=$(cat)
IFS=:
for directory in $CNI_PATH; do
    [ -x "$directory/bridge" ] && bridge=$directory/bridge
done
result=$(printf '%s' "$input" | "$bridge") || { code=$?; printf '%s' "$result"; exit $code; }
if [ "$CNI_COMMAND" = ADD ]; then
    nsenter --net="$CNI_NETNS" sh -eu >&2 <<'COMMANDS'
@
COMMANDS
fi
printf '%s' "$result"
"""
"""A wrapper of `bridge` that runs shell commands in the namespace after ADD."""


def commands(subnet: Subnet) -> str:
    """Return commands that make everything that Docker's protocol cannot express."""
    net, net6 = subnet.ipv4.removesuffix(".0/24"), subnet.ipv6.removesuffix("::/64")
    return f"""
ip address add {net}.7/24 dev eth0
ip address add 10.99.{subnet.number}.1 peer 10.99.{subnet.number}.2/32 dev eth0
ip address add {net6}::7/64 dev eth0 nodad
ip route replace default via {net}.1 mtu 1300 advmss 1200 src {net}.7
ip route add 10.70.0.0/16 via {net}.1 metric 50 proto static
ip route add 10.71.0.0/16 via {net}.1 table 500 metric 5
ip route add 10.72.0.0/16 dev eth0 scope link mtu 1280
ip route add 10.73.0.0/16 via 192.0.2.1 dev eth0 onlink
ip route add 10.70.0.0/16 via {net}.9 metric 60
ip -6 route add fd70::/64 via {net6}::1 metric 77 mtu 1280
ip -6 route add fd71::/64 via {net6}::1 table 500
ip rule add from {net}.7 lookup 500 priority 100
ip rule add iif eth0 fwmark 0x10/0xf0 lookup 500 priority 110
ip -6 rule add to fd71::/64 lookup 500 priority 100
ip neighbour add {net}.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent
ip neighbour add {net6}::9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent
ip neighbour add proxy {net}.10 dev eth0
ip link set eth0 promisc on
echo 1 >/proc/sys/net/ipv4/conf/eth0/proxy_arp
echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_notify
echo 300 >/proc/sys/net/core/somaxconn
echo 7 >/proc/sys/net/ipv4/tcp_syn_retries
"""


def write_wrapper(scene: Scene, script: str, name: str = "wrapper") -> None:
    """Put the wrapper plugin on the host."""
    scene.plugin(name, WRAPPER.replace("@", script))


CHAINED: Final = """
set -e
if [ "$CNI_COMMAND" = ADD ]; then
    nsenter --net="$CNI_NETNS" sh -eu >&2 <<'COMMANDS'
@
COMMANDS
fi
python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin).get("prevResult")))'
"""
"""A plugin in the middle of a list that runs shell commands in the namespace."""


def commands_beside_link(subnet: Subnet) -> str:
    """Return commands whose effects do not belong to the link, so that they cannot be moved with it."""
    net = subnet.ipv4.removesuffix(".0/24")
    return f"""
iptables -A INPUT -p tcp --dport 9999 -j DROP
ip6tables -A OUTPUT -d fd99::/64 -j REJECT
nft add table inet fidelity
nft add chain inet fidelity input "{{ type filter hook input priority 10; }}"
nft add rule inet fidelity input udp dport 9998 counter drop
ip link add second0 type veth peer name second1
ip address add 10.98.{subnet.number}.1/24 dev second0
ip link set second0 up
ip link set second1 up
ip route add unreachable 10.97.0.0/16
ip -6 route add unreachable fd97::/64
ip route add blackhole 10.96.0.0/16 table 502
ip route add 10.95.0.0/16 table 501 nexthop via {net}.1 dev eth0 weight 1 nexthop via 10.98.{subnet.number}.9 dev second0 weight 2
tc qdisc add dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:10 htb rate 10mbit
tc class add dev eth0 parent 1: classid 1:20 htb rate 1mbit ceil 2mbit
tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dport 80 0xffff flowid 1:20
"""  # noqa: E501 - a command of ip


def write_chained(scene: Scene, script: str, name: str) -> None:
    """Put a plugin that runs shell commands in the namespace on the host."""
    scene.plugin(name, CHAINED.replace("@", script))
