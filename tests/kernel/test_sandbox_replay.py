# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The sync of a sandbox: what plugins made in staging exists in the sandbox after libnetwork has placed the link."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from cni_bridge_state.store import Store
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.endpoint_replies import prefix_route
from cnm_bridge.core.link.plan_sandbox import ReplacedRoute, SandboxPlan
from cnm_bridge.core.link_state import Neighbour, Observation, Snapshot, Sysctl
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.namespace import Namespace
from tests.kernel.pair import ALTNAME, EVERYTHING, HOST_NAME, place_link, prepare
from tests.records import endpoint, put
from tests.unit.cnm_bridge.core.snapshots import route

pytestmark = pytest.mark.usefixtures("nothing_left_of_the_pair")


def everything_of(snapshot: Snapshot) -> SandboxPlan:
    """Return the plan for everything but the addresses and routes that `place_link` makes."""
    return SandboxPlan(
        ifname="eth0",
        addresses=tuple(a for a in snapshot.addresses if str(a.address.ip) in {"10.1.0.3", "10.9.0.1", "fd00::3"}),
        routes=tuple(sorted((r for r in snapshot.routes if r.protocol != 2), key=lambda r: r.gateway is not None)),
        rules=snapshot.rules,
        neighbours=snapshot.neighbours,
        sysctls=snapshot.sysctls,
    )


def shown(namespace: Namespace, name: str) -> str:
    """Return what iproute2 shows of a namespace, with the link called `LINK`."""
    commands = (
        f"ip -4 address show dev {name} scope global",
        "ip route show table all type unicast",
        "ip rule",
        "ip -6 rule",
        f"ip neighbour show dev {name} nud permanent",
        f"ip neighbour show proxy dev {name}",
    )
    lines = [line for command in commands for line in namespace.run(command).decode().splitlines()]
    kept = (line for line in lines if not line.split(":")[0].isdigit() or "from" in line)  # not the link's own line
    return "\n".join(line.replace(name, "LINK") for line in kept if not any(word in line for word in _NOT_COMPARED))


_NOT_COMPARED = ("altname", "fe80::/64", " lo ")

WORK = (
    "ip address add 10.1.0.3/24 dev eth0",
    "ip address add 10.9.0.1 peer 10.9.0.2/32 dev eth0",
    "ip address add fd00::3/64 dev eth0 nodad",
    "ip route add default via 10.1.0.1 table 100",
    "ip route add 10.4.0.0/16 via 10.1.0.7 metric 5 mtu 1400 advmss 1200 src 10.1.0.3 proto static",
    "ip route add 10.5.0.0/16 via 192.168.9.9 dev eth0 onlink",
    "ip route add 10.6.0.0/16 via inet6 fe80::1 dev eth0",
    "ip route add fd99::/64 via fd00::1 metric 77 mtu 1300",
    "ip rule add from 10.1.0.3 lookup 100 priority 50",
    "ip rule add iif eth0 fwmark 0x10/0xf0 uidrange 5-9 ipproto tcp dport 80-90 lookup 100 priority 60",
    "ip rule add not oif eth0 suppress_prefixlength 0 lookup main priority 70",
    "ip rule add priority 80 blackhole from 10.77.0.0/16",
    "ip -6 rule add from fd00::3 lookup 100 priority 50",
    "ip neighbour add 10.1.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent",
    "ip neighbour add fd00::9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent",
    "ip neighbour add proxy 10.1.0.10 dev eth0",
)


async def test_the_sandbox_equals_staging(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Addresses, routes, rules and neighbours are the same under the link's new name; a second sync changes nothing."""
    snapshot = await prepare(kernel, host, staging, *WORK)
    place_link(host, sandbox)
    sandbox_plan = everything_of(snapshot)
    done = await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert done is not None
    assert len(done) == len(WORK)
    # the same commands, run directly in a namespace, give the expected state
    direct = Namespace(staging.path)
    direct.ip("link add outside2 up type veth peer name eth0")
    direct.ip("link set eth0 up", "address add 10.1.0.2/24 dev eth0", "address add fd00::2/64 dev eth0 nodad")
    for command in WORK:
        if "rule" not in command:
            direct.run(command)
    assert shown(sandbox, "eth7") == shown(direct, "eth0")
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan) == ()


async def test_a_sync_restores_only_what_is_missing(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """A rule and a neighbour that were removed are made again, and nothing else changes."""
    sandbox_plan = everything_of(await prepare(kernel, host, staging, *WORK))
    place_link(host, sandbox)
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    sandbox.ip("rule del priority 50", "neighbour del 10.1.0.9 dev eth7")
    done = await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert done == ("neighbour 10.1.0.9", "rule 50 to table 100")


async def test_a_restarted_daemon_restores_what_is_missing(
    store: Store, kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """It looks at the sandbox of each joined endpoint, and makes a rule again that is not there."""
    snapshot = await prepare(kernel, host, staging, "ip rule add from 10.1.0.3 lookup 100 priority 50")
    place_link(host, sandbox)
    joined = replace(
        endpoint(ALTNAME.removeprefix("cni-bridge-")), snapshot=snapshot.to_json(), sandbox_key=str(sandbox.path)
    )
    await put(store, joined)
    assert b"from 10.1.0.3" not in sandbox.run("ip rule")
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(30):
        running = tasks.create_task(SandboxSync(store, kernel, KeyedLocks(), KnownVersion(store)).run())
        while b"from 10.1.0.3 lookup 100" not in sandbox.run("ip rule"):  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.05)
        running.cancel()


async def test_changed_sysctls_are_carried(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Those of the link, under its new name, and those of the namespace; not those that staging itself changes."""
    snapshot = await prepare(
        kernel,
        host,
        staging,
        "sh -c 'echo 2 > /proc/sys/net/ipv4/conf/eth0/rp_filter'",
        "sh -c 'echo 1 > /proc/sys/net/ipv6/conf/eth0/proxy_ndp'",
        "sh -c 'echo 77 > /proc/sys/net/ipv4/neigh/eth0/gc_stale_time'",
        "sh -c 'echo 99 > /proc/sys/net/core/somaxconn'",
        "sh -c 'echo 20000 30000 > /proc/sys/net/ipv4/ip_local_port_range'",
        observation=EVERYTHING,
    )
    assert snapshot.sysctls == (
        Sysctl(name="net/core/somaxconn", value="99"),
        Sysctl(name="net/ipv4/conf/eth0/rp_filter", value="2"),
        Sysctl(name="net/ipv4/ip_local_port_range", value="20000\t30000"),
        Sysctl(name="net/ipv4/neigh/eth0/gc_stale_time", value="77"),
        Sysctl(name="net/ipv6/conf/eth0/proxy_ndp", value="1"),
    )
    place_link(host, sandbox)
    await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(everything_of(snapshot))
    assert sandbox.setting("net/ipv4/conf/eth7/rp_filter") == "2"
    assert sandbox.setting("net/ipv6/conf/eth7/proxy_ndp") == "1"
    assert sandbox.setting("net/ipv4/neigh/eth7/gc_stale_time") == "77"
    assert sandbox.setting("net/core/somaxconn") == "99"
    assert sandbox.setting("net/ipv4/ip_local_port_range") == "20000\t30000"


async def test_only_observed_sysctls_are_read(kernel: Kernel, host: Namespace, staging: Namespace) -> None:
    """Reading all sysctls takes milliseconds: if a list can change only some, only these are read."""
    snapshot = await prepare(
        kernel,
        host,
        staging,
        "sh -c 'echo 1 > /proc/sys/net/ipv4/conf/eth0/arp_notify'",
        "sh -c 'echo 99 > /proc/sys/net/core/somaxconn'",
        observation=Observation(settings=("net/ipv4/conf/eth0/arp_notify", "net/no/such")),
    )
    assert snapshot.sysctls == (Sysctl(name="net/ipv4/conf/eth0/arp_notify", value="1"),)
    host.ip(f"link delete {HOST_NAME}")


REPLACED = ReplacedRoute(
    plain=route("10.4.0.0/16", "10.1.0.7"), replacement=route("10.4.0.0/16", "10.1.0.7", metric=5, mtu=1400)
)
DEFAULT = ReplacedRoute(plain=route("0.0.0.0/0", "10.1.0.1"), replacement=route("0.0.0.0/0", "10.1.0.1", mtu=1400))


async def test_libnetworks_routes_are_replaced(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Its plain routes become those of the plugins: in place, or by removing and adding where the metric differs."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    sandbox.ip("route add 10.4.0.0/16 via 10.1.0.7", "route add default via 10.1.0.1")
    sandbox_plan = SandboxPlan(ifname="eth0", replaced=(REPLACED, DEFAULT))
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    routes = sandbox.run("ip -4 route").decode()
    assert "10.4.0.0/16 via 10.1.0.7 dev eth7 metric 5 mtu 1400" in routes
    assert "default via 10.1.0.1 dev eth7 mtu 1400" in routes
    assert len(routes.splitlines()) == 3
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan) == ()


async def test_the_kernels_routes_of_prefixes_are_removed(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """The plugins' routes to the same prefixes take their place, in one sync."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    sandbox.ip("route add 10.1.0.1 dev eth7 scope link", "route add fd00::1 dev eth7")
    unwanted = tuple(map(prefix_route, (ip_interface("10.1.0.2/24"), ip_interface("fd00::2/64"))))
    instead = route("10.1.0.0/24", "10.1.0.1"), route("fd00::/64", "fd00::1", metric=1024)
    sandbox_plan = SandboxPlan(ifname="eth0", unwanted=unwanted, routes=instead)
    done = await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert done == (*(f"no route {one}" for one in unwanted), *(f"route {one}" for one in instead))
    for one in instead:
        (line,) = sandbox.run(f"ip -{one.destination.version} route show {one.destination}").decode().splitlines()
        assert f"{one.destination} via {one.gateway} " in line
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan) == ()


async def test_no_default_route_where_libnetwork_made_none(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """The default route belongs to another network, so it is not made; other missing routes are made."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    sandbox_plan = SandboxPlan(ifname="eth0", replaced=(REPLACED, DEFAULT))
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan) == (f"route {REPLACED.replacement}",)
    assert "default" not in sandbox.run("ip -4 route").decode()


@pytest.mark.parametrize("other", [None, "default via fd00::7", "default via fd00::1"])
async def test_a_fallback_default_route(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace, other: str | None
) -> None:
    """It is made if the family has no default route, and does not prevent libnetwork from adding its own."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    if other:
        sandbox.ip(f"-6 route add {other}")
    sandbox_plan = SandboxPlan(ifname="eth0", fallbacks=(route("::/0", "fd00::1", metric=1025),))
    done = await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert done == (() if other else ("route ::/0 via fd00::1, metric 1025, table 254",))
    if not other:
        sandbox.ip("-6 route add default via fd00::1")
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan) == ()


async def test_refusals_of_the_kernel_are_reported(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """The error names each refused item; the others are carried."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    sandbox_plan = SandboxPlan(
        ifname="eth0",
        routes=(route("10.66.0.0/16", "192.0.2.1"),),
        neighbours=(Neighbour(address=ip_address("10.1.0.9"), mac="02:00:00:00:00:09", proxy=False),),
        sysctls=(Sysctl(name="net/no/such", value="1"),),
    )
    with pytest.raises(KernelError, match=r"link eth7: sysctl net\.no\.such: No such file.*; route 10\.66.*: Nexthop"):
        await kernel.link_in_sandbox(sandbox.path, ALTNAME).sync(sandbox_plan)
    assert "10.1.0.9" in sandbox.run("ip neighbour show dev eth7").decode()


async def test_a_sandbox_without_the_link(kernel: Kernel, tmp_path: Path, host: Namespace, sandbox: Namespace) -> None:
    """Nothing is changed if the path does not exist, is a plain file, is the host's, or does not have the link."""
    sandbox_plan = SandboxPlan(ifname="eth0", sysctls=(Sysctl(name="net/core/somaxconn", value="9"),))
    plain = tmp_path / "plain"
    plain.touch()
    before = host.setting("net/core/somaxconn")
    for path in (tmp_path / "nowhere", plain, host.path, sandbox.path):
        assert await kernel.link_in_sandbox(path, ALTNAME).sync(sandbox_plan) is None
    assert host.setting("net/core/somaxconn") == before
