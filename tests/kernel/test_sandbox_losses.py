# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Nothing that plugins make in staging is lost silently: it is carried to the sandbox, or it is refused."""

import re
import socket
import struct

import pytest

from cnm_bridge.core.errors import NotCarriable
from cnm_bridge.core.link.plan_sandbox import plan_sandbox
from cnm_bridge.core.link_state import Observation
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace
from tests.kernel.pair import ALTNAME, EVERYTHING, HOST_NAME, place_link, prepare
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left_of_the_pair")

FOR_EVER = 0xFFFFFFFF
"""The lifetime of a prefix that does not expire, in seconds."""

ROUTES = {
    "blackhole 10.50.0.0/16": "blackhole 10.50.0.0/16, which does not lead through eth0",
    "unreachable default metric 4278198272": "unreachable 0.0.0.0/0",
    "prohibit 10.51.0.0/16 table 77": "prohibit 10.51.0.0/16",
    "blackhole fd50::/64": "blackhole fd50::/64",
    "local 10.52.0.0/24 dev lo": "local route 10.52.0.0/24",
    "10.54.0.0/24 dev lo": "route 10.54.0.0/24",
    "10.56.0.0/16 via 10.1.0.1 realm 5": "a realm",
    "fd56::/64 via fd00::1 pref high": "a router preference",
    "fd57::/64 via fd00::1 expires 100": "a lifetime",
    "10.58.0.0/16 nexthop via 10.1.0.1 nexthop via 10.1.0.7": "several next hops",
    "10.60.0.0/16 encap ip id 5 dst 1.2.3.4 dev eth0": "an encapsulation",
    "10.61.0.0/16 via 10.1.0.1 mtu lock 1400": "metrics beyond MTU and MSS",
    "10.62.0.0/16 via 10.1.0.1 tos 0x10": "a type of service",
    "10.63.0.0/16 via 10.1.0.1 initcwnd 20 mtu 1400": "metrics beyond MTU and MSS",
    "fd77::/64 from fd00::/64 dev eth0": "fd77::/64 with a source prefix",
}
REFUSED = {
    **{f"ip route add {route}": words for route, words in ROUTES.items()},
    "sh -c 'ip nexthop add id 5 via 10.1.0.1 dev eth0; ip route add 10.59.0.0/16 nhid 5'": "a next hop object",
    "ip address add 10.55.0.1/32 dev lo": "address 10.55.0.1/32 of lo",
    "ip address add fd55::1/128 dev lo": "address fd55::1/128 of lo",
    "ip address add 10.1.0.4/24 dev eth0 valid_lft 3600 preferred_lft 1800": "10.1.0.4/24 with a lifetime",
    "ip address add fd00::4/64 dev eth0 nodad valid_lft 3600 preferred_lft 1800": "fd00::4/64 with a lifetime",
    "tc qdisc add dev eth0 clsact": "qdisc clsact",
    "tc qdisc add dev eth0 root handle 1: htb": "qdisc htb",
    "tc qdisc add dev eth0 root tbf rate 1mbit burst 10kb latency 70ms": "qdisc tbf",
    "nft add table inet odd": "nftables tables",
    "iptables -A INPUT -j ACCEPT": "tables",
    "ip link add sit0 type veth peer name tunl0": "a further link, (sit0|tunl0)",
}

CARRIED = {
    "a route of the table local": "ip route add local 10.53.0.0/24 dev eth0 table local",
    "an address with a label": "ip address add 10.1.0.4/24 dev eth0 label eth0:1",
    "an address that is not preferred": "ip address add 10.1.0.4/24 dev eth0 preferred_lft 0",
    "an IPv6 address that is not preferred": "ip address add fd00::4/64 dev eth0 nodad preferred_lft 0",
    "an address that others are made of": "ip address add fd00::4/64 dev eth0 nodad mngtmpaddr",
    "an address that groups are joined with": "ip address add 239.1.1.1/32 dev eth0 autojoin",
    "an address whose prefix has a metric": "ip address add 10.99.0.4/24 dev eth0 metric 50",
    "an IPv6 address whose prefix has a metric": "ip address add fd44::4/64 dev eth0 nodad metric 50",
    "a prefix's route with an MTU": "sh -c 'ip address add 10.98.0.4/24 dev eth0; "
    "ip route change 10.98.0.0/24 dev eth0 proto kernel scope link src 10.98.0.4 mtu 1300'",
    "a rule beside the kernel's first": "ip rule add priority 0 from 10.0.0.0/8 lookup local",
    "a rule beside the kernel's last": "ip rule add priority 32767 from 10.0.0.0/8 lookup default",
    "the length of the queue": "ip link set eth0 txqueuelen 77",
    "the group": "ip link set eth0 group 7",
    "no ARP": "ip link set eth0 arp off",
    "no multicast": "ip link set eth0 multicast off",
    "promiscuity": "ip link set eth0 promisc on allmulticast on",
    "the MTU": "ip link set eth0 mtu 1400",
}

LOOKS = (
    "ip address show dev LINK scope global",
    "ip route show table all dev LINK",
    "ip -6 route show table all dev LINK",
    "ip rule",
)


def look(namespace: Namespace, name: str) -> str:
    """Return what iproute2 shows of a link, with the link called `LINK`, without what every move changes.

    The index is left out too: the kernel assigns another one where it is in use.
    """
    lines = (line for command in LOOKS for line in namespace.run(command.replace("LINK", name)).decode().splitlines())
    kept = (line for line in lines if not any(word in line for word in ("altname", "fe80::", "ff00::", "anycast")))
    shown = re.sub(rf"^\d+: (?={name}\b)", "", "\n".join(kept), flags=re.MULTILINE)
    return re.sub(rf"\b{name}\b", "LINK", shown).replace(" noprefixroute", "").replace(" nodad", "")


def wait_for_local_routes(namespace: Namespace, name: str) -> None:
    """Wait until each IPv6 address has its local route, which the kernel adds in a work queue."""

    def are_there() -> bool:
        shown = look(namespace, name)
        return all(f"local {address} " in shown for address in re.findall(r"inet6 ([^/]+)", shown))

    wait_until(are_there, "the local routes")


def properties_of_link(namespace: Namespace, name: str) -> dict[str, object]:
    """Return the properties of a link itself."""
    link = namespace.link(name)
    kept = ("flags", "mtu", "qdisc", "group", "txqlen", "promiscuity", "allmulti", "address")
    return {key: link.get(key) for key in kept}


@pytest.mark.parametrize("command", REFUSED)
async def test_what_cannot_be_carried_is_refused(
    kernel: Kernel, host: Namespace, staging: Namespace, command: str
) -> None:
    """The error names it, and the link stays in staging."""
    with pytest.raises(NotCarriable, match=REFUSED[command]):
        await prepare(kernel, host, staging, command, observation=EVERYTHING)
    assert "eth0" in staging.links()
    host.ip("link delete outside")


@pytest.mark.parametrize("what", CARRIED)
async def test_what_is_carried(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace, what: str
) -> None:
    """iproute2 shows the same in the sandbox as it did in staging."""
    await kernel.create_staging(staging.path)
    host.ip(f"link add outside up type veth peer name eth0 netns {staging.path}")
    staging.ip("link set eth0 up", "address add 10.1.0.2/24 dev eth0", "address add fd00::2/64 dev eth0 nodad")
    staging.run(CARRIED[what])
    wait_for_local_routes(staging, "eth0")
    wanted, wanted_link = look(staging, "eth0"), properties_of_link(staging, "eth0")
    snapshot = await kernel.staged_link(staging.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()
    place_link(host, sandbox)
    sandbox_plan = plan_sandbox(snapshot, internal=False)
    # libnetwork makes the routes that the join response has
    for pair in sandbox_plan.replaced:
        sandbox.ip(f"route add {pair.plain.destination} dev eth7 scope link")
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    wait_for_local_routes(sandbox, "eth7")
    assert look(sandbox, "eth7") == wanted
    assert properties_of_link(sandbox, "eth7") == {**wanted_link, "address": sandbox.link("eth7")["address"]}
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan) == ()


@pytest.mark.parametrize("lifetime_s", [3600, FOR_EVER])
async def test_router_announcements_are_not_in_the_snapshot(
    kernel: Kernel, host: Namespace, staging: Namespace, lifetime_s: int
) -> None:
    """The sandbox receives them again; a route that was carried as a plugin's would never expire, and hinder Docker."""
    await kernel.create_staging(staging.path, "eth0", EVERYTHING)
    host.ip(f"link add outside up type veth peer name eth0 netns {staging.path}")
    staging.ip("link set eth0 up", "address add 10.1.0.2/24 dev eth0")
    announce(host, "outside", lifetime_s)
    for _ in range(100):
        if b"proto ra" in staging.run("ip -6 route show default"):
            break
        staging.run("sleep 0.05")
    else:
        pytest.fail("the announcement was not heard")
    snapshot = await kernel.staged_link(staging.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()
    host.ip("link delete outside")
    assert [str(route.destination) for route in snapshot.routes] == ["10.1.0.0/24", "fe80::/64"]


def announce(host: Namespace, name: str, lifetime_s: int) -> None:
    """Send a router advertisement with a default route and a prefix."""
    lifetimes = lifetime_s, min(lifetime_s, 1800)
    prefix = struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, *lifetimes, 0, socket.inet_pton(socket.AF_INET6, "fd77::"))
    message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + prefix
    for _ in range(100):  # until it has its link-local address
        if b"fe80::" in host.run(f"ip -6 address show dev {name} -tentative"):
            break
        host.run("sleep 0.05")
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as router:
        router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        router.sendto(message, ("ff02::1", 0, 0, socket.if_nametoindex(name)))


async def test_what_the_container_made_is_no_obstacle(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Routes and qdiscs that a container with CAP_NET_ADMIN made, and that cannot be carried, do not end the sync."""
    snapshot = await prepare(kernel, host, staging, "ip route add 10.4.0.0/16 via 10.1.0.7 table 100")
    place_link(host, sandbox)
    sandbox.ip("route add 10.58.0.0/16 nexthop via 10.1.0.1 nexthop via 10.1.0.7")
    sandbox.run("tc qdisc add dev eth7 root handle 1: htb")
    sandbox_plan = plan_sandbox(snapshot, internal=False)
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert b"10.4.0.0/16" in sandbox.run("ip route show table 100")


async def test_a_links_own_sysctl_is_written_after_that_of_all_links(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Writing `ip_forward` changes `forwarding` of every link: the link's own value is written after it."""
    write = "sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/eth0/forwarding'"
    snapshot = await prepare(kernel, host, staging, write, observation=EVERYTHING)
    place_link(host, sandbox)
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(plan_sandbox(snapshot, internal=False))
    assert sandbox.setting("net/ipv4/ip_forward") == "1"
    assert sandbox.setting("net/ipv4/conf/eth7/forwarding") == "0"


async def test_sysctls_in_the_configuration_are_always_carried(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """A sysctl that the configuration sets is carried even if it has the default: Docker changes some in sandboxes."""
    name = "net/ipv4/ip_unprivileged_port_start"
    snapshot = await prepare(kernel, host, staging, observation=Observation(stated=(name,)))
    place_link(host, sandbox)
    sandbox.run(f"sh -c 'echo 0 > /proc/sys/{name}'")
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(plan_sandbox(snapshot, internal=False))
    assert sandbox.setting(name) == "1024"


async def test_withdraw_removes_the_carried_rules(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """It removes them under the link's name and the tables that they have in the sandbox; other rules stay."""
    snapshot = await prepare(
        kernel,
        host,
        staging,
        "ip rule add priority 0 iif eth0 blackhole",
        "ip rule add from 10.1.0.2 lookup 100 priority 50",
        "ip rule add from 10.1.0.3 lookup 100 priority 51",
        "ip route add default via 10.1.0.1 table 100",
    )
    place_link(host, sandbox)
    sandbox.ip("rule add from 10.77.0.0/16 lookup 100 priority 50", "route add blackhole default table 100")
    before = sandbox.run("ip rule")
    sandbox_plan = plan_sandbox(snapshot, internal=False)
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert b"lookup 101" in sandbox.run("ip rule")
    sandbox.ip("rule del priority 51")
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).withdraw(sandbox_plan)
    assert sandbox.run("ip rule") == before
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).withdraw(sandbox_plan)
    await kernel.link_in_sandbox(staging.path / "gone", ALTNAME).withdraw(sandbox_plan)
    assert sandbox.run("ip rule") == before
