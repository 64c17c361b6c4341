# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugins set up is what the container has: the same list, run straight into a namespace, says what."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from spec import JsonObject
from tests.lab import Container, Lab, LabError
from tests.lab.waiting import wait_until
from tests.system.namespace_view import View, view
from tests.system.scene import Scene, Subnet

STRAIGHT: Final = "straight"
"""Name of the namespace that the plugins work in without Docker."""

Plugins = Sequence[JsonObject]


def static(*addresses: str, gateway: bool = True, routes: Sequence[JsonObject] = ()) -> JsonObject:
    """An IPAM part that gives these addresses, the first host of each network being the gateway."""
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

LISTS: Final[Mapping[str, Callable[[Subnet], Plugins]]] = {
    "bridge": lambda s: [simple(s)],
    "bridge masquerading": lambda s: [simple(s, ipMasq=True, hairpinMode=True), {"type": "firewall"}],
    "bridge dual stack": lambda s: [dual(s)],
    "bridge IPv6-only": lambda s: [main("bridge", s, static(v6(s), routes=defaults(6)))],
    "bridge second addresses": lambda s: [
        main("bridge", s, static(v4(s), v4(s, 6), v6(s), v6(s, 6), routes=defaults(4, 6)))
    ],
    "bridge tuning": lambda s: [dual(s), TUNING],
    "bridge sbr": lambda s: [dual(s), {"type": "sbr"}],
    "bridge bandwidth": lambda s: [simple(s), {"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 100000}],
    "ptp dual stack": lambda s: [dual(s, kind="ptp")],
    "macvlan dual stack": lambda s: [main("macvlan", s, static(v4(s), v6(s), routes=defaults(4, 6)))],
    "wrapper": lambda s: [dual(s, kind="wrapper")],
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
"""A plugin that is `bridge`, and then runs shell commands in the namespace."""


def commands(subnet: Subnet) -> str:
    """Give commands for everything that Docker has no words for."""
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
tc qdisc add dev eth0 root tbf rate 10mbit burst 20kb latency 70ms
echo 1 >/proc/sys/net/ipv4/conf/eth0/proxy_arp
echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_notify
echo 300 >/proc/sys/net/core/somaxconn
echo 7 >/proc/sys/net/ipv4/tcp_syn_retries
"""


def write_wrapper(scene: Scene, script: str, name: str = "wrapper") -> None:
    """Put the wrapper plugin on the host."""
    scene.plugin(name, WRAPPER.replace("@", script))


def straight(lab: Lab, name: str) -> View:
    """Run a list into a namespace, look at what is there, and take it away again."""
    env = {"CNI_PATH": "/opt/cni/bin:/usr/lib/cni"}
    netns = f"/run/netns/{STRAIGHT}"
    lab.run("ip", "netns", "add", STRAIGHT)
    try:
        lab.run("ip", "-n", STRAIGHT, "link", "set", "lo", "up")
        lab.run(sys.executable, "-m", "cni_invoker", "add", name, netns, env=env)
        try:
            return view(lambda *argv: lab.run("ip", "netns", "exec", STRAIGHT, *argv).stdout, "eth0")
        finally:
            lab.run(sys.executable, "-m", "cni_invoker", "del", name, netns, env=env)
    finally:
        lab.run("ip", "netns", "delete", STRAIGHT)


def assert_settled(container: Container, wanted: View, ifname: str = "eth0") -> None:
    """Wait until the container has what the list makes straight; before Engine 28 that takes a moment."""
    differences = ["not looked at yet"]

    def is_settled() -> bool:
        found = view(lambda *argv: container.in_network(*argv).stdout, ifname)
        differences[:] = [f"{kind}: {_difference(found[kind], wanted[kind])}" for kind in wanted]
        differences[:] = [text for text in differences if not text.endswith(": ")]
        return not differences

    try:
        wait_until(is_settled, "a settled container")
    except LabError:
        pytest.fail("the container is not what the plugins made:\n" + "\n".join(differences))


def _difference(found: object, wanted: object) -> str:
    if found == wanted:
        return ""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = (key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        return "; ".join(f"{key} is {found.get(key)}, not {wanted.get(key)}" for key in keys)
    if isinstance(found, Sequence) and isinstance(wanted, Sequence) and not isinstance(found, str):
        return f"too much {[x for x in found if x not in wanted]}, too little {[x for x in wanted if x not in found]}"
    return f"{found}, not {wanted}"


@pytest.mark.parametrize("kind", LISTS)
def test_the_container_has_what_the_plugins_made(scene: Scene, kind: str) -> None:
    """Addresses, routes, rules, neighbours, settings, qdiscs and flags."""
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure(LISTS[kind](subnet))
    wanted = straight(scene.lab, name)
    assert_settled(scene.run(scene.network(name)), wanted)


def test_connect_and_disconnect_while_running(scene: Scene) -> None:
    """On a second network the link has another name, and each time everything is there as soon as docker returns."""
    subnet = scene.subnet()
    name = scene.configure([main("bridge", subnet, static(v4(subnet), gateway=False)), TUNING])
    wanted = straight(scene.lab, name)
    network = scene.network(name)
    first, _ = scene.bridge_network()
    container = scene.run(first)
    for _ in range(2):
        scene.lab.docker("network", "connect", network, container.name)
        (added,) = (link.name for link in container.links() if link.name != "eth0")
        assert container.in_network("cat", f"/proc/sys/net/ipv4/conf/{added}/arp_filter").stdout.strip() == "1"
        assert_settled(container, wanted, added)
        scene.lab.docker("network", "disconnect", network, container.name)


def test_the_daemon_settles_again_when_it_starts(private_scene: Scene) -> None:
    """What is lost while it is away is brought back."""
    subnet = private_scene.subnet()
    write_wrapper(private_scene, commands(subnet))
    name = private_scene.configure([dual(subnet, kind="wrapper")])
    wanted = straight(private_scene.lab, name)
    container = private_scene.run(private_scene.network(name))
    assert_settled(container, wanted)
    private_scene.lab.stop_daemon()
    container.in_network("ip", "rule", "del", "priority", "100")
    container.in_network("ip", "address", "del", v6(subnet, 7), "dev", "eth0")
    container.in_network("sysctl", "-w", "net.ipv4.conf.eth0.proxy_arp=0")
    private_scene.lab.start_daemon()
    assert_settled(container, wanted)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("ip link add dummy0 type veth peer name dummy1", "a further link, dummy"),
        ("nft add table inet odd", "packet filter rules (nftables tables)"),
        ("tc qdisc add dev eth0 root handle 1: htb", "qdisc htb"),
    ],
)
def test_what_cannot_be_carried_is_refused(scene: Scene, script: str, words: str) -> None:
    """The error names the plugin and what it made, and nothing is left."""
    write_wrapper(scene, script)
    said = scene.run_refusal(scene.network(scene.configure([simple(scene.subnet(), kind="wrapper")])))
    assert "plugin wrapper made" in said
    assert words in said
