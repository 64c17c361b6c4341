# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`take_out`: the snapshot has what the link had, and the link is in the host namespace under its new name."""

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_network
from pathlib import Path

import pytest

from cnm_bridge.core.errors import KernelError, LinkMissing, NamespaceMissing
from cnm_bridge.core.link_state import SCOPE_GLOBAL, SCOPE_LINK, LinkState, Snapshot
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.netns import current_namespace, namespace_id
from tests.kernel.namespace import Namespace
from tests.kernel.pair import ALTNAME, HOST_NAME
from tests.unit.cnm_bridge.core.snapshots import route

MAC = "ee:77:5c:0d:4a:3b"
LINK_LOCAL = "fe80::ec77:5cff:fe0d:4a3b"
KERNEL, BOOT, STATIC = 2, 3, 4


@pytest.fixture
def veth(host: Namespace, staging: Namespace) -> Iterator[Namespace]:
    """The staging namespace with a veth `eth0`, up with a MAC of its own; its peer `outside` is in the host's."""
    host.ip(f"link add outside up type veth peer name eth0 address {MAC} netns {staging.path}")
    staging.ip("link set eth0 up")
    yield staging
    host.ip("link delete outside")


async def take_out(kernel: Kernel, staging: Namespace) -> Snapshot:
    """Take `eth0` out."""
    return await kernel.staged_link(staging.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()


async def test_a_veth_is_the_same_link_in_the_host_namespace(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """It has the same MAC, its new name and its alternative name, and is down; staging has no link any more."""
    snapshot = await take_out(kernel, veth)
    assert snapshot.link == LinkState(name="eth0", kind="veth", mac=MAC, mtu=1500, noarp=False)
    assert veth.links() == set()
    assert host.links() == {"outside", HOST_NAME}
    assert host.link(HOST_NAME)["address"] == MAC
    assert host.altnames(HOST_NAME) == (ALTNAME,)
    assert not host.is_up(HOST_NAME)


async def test_addresses_in_the_kernels_order(kernel: Kernel, veth: Namespace) -> None:
    """The snapshot has those of both families, with peers and scopes."""
    veth.ip("address add 10.1.0.2/24 dev eth0", "address add 10.1.0.3/24 dev eth0")
    veth.ip("address add 10.9.0.1 peer 10.9.0.2/32 dev eth0")
    veth.ip("address add fd00::1/64 dev eth0", "address add fd00::2/64 dev eth0 valid_lft 600 preferred_lft 600")
    snapshot = await take_out(kernel, veth)
    assert [(item.address, item.peer, item.scope) for item in snapshot.addresses] == [
        (IPv4Interface("10.1.0.2/24"), None, SCOPE_GLOBAL),
        (IPv4Interface("10.9.0.1/32"), ip_address("10.9.0.2"), SCOPE_GLOBAL),
        (IPv4Interface("10.1.0.3/24"), None, SCOPE_GLOBAL),
        (IPv6Interface("fd00::2/64"), None, SCOPE_GLOBAL),
        (IPv6Interface("fd00::1/64"), None, SCOPE_GLOBAL),
        (IPv6Interface(f"{LINK_LOCAL}/64"), None, SCOPE_LINK),
    ]
    assert [item.is_permanent for item in snapshot.addresses] == [True, True, True, False, True, True]


async def test_routes_of_every_table_but_local(kernel: Kernel, veth: Namespace) -> None:
    """The snapshot has every attribute that distinguishes routes; routes of `lo` are not in it."""
    veth.ip("address add 10.1.0.2/24 dev eth0", "address add fd00::2/64 dev eth0 nodad")
    veth.ip("route add default via 10.1.0.1", "route add 169.254.1.1 dev eth0 scope link")
    veth.ip("route add 10.2.0.0/16 via 192.168.9.9 dev eth0 onlink", "route add 10.3.0.0/16 via inet6 fe80::1 dev eth0")
    veth.ip("route add 10.4.0.0/16 via 10.1.0.7 table 1000 metric 5 mtu 1400 advmss 1200 src 10.1.0.2 proto static")
    veth.ip("route add default via fd00::1 metric 77 mtu 1300")
    veth.ip("route add 10.8.0.0/24 dev lo")
    snapshot = await take_out(kernel, veth)
    assert set(snapshot.routes) == {
        route("0.0.0.0/0", "10.1.0.1"),
        route("10.1.0.0/24", scope=SCOPE_LINK, protocol=KERNEL, source="10.1.0.2"),
        route("169.254.1.1/32", scope=SCOPE_LINK),
        route("10.2.0.0/16", "192.168.9.9", onlink=True),
        route("10.3.0.0/16", "fe80::1"),
        route(
            "10.4.0.0/16", "10.1.0.7", table=1000, metric=5, protocol=STATIC, source="10.1.0.2", mtu=1400, advmss=1200
        ),
        route("::/0", "fd00::1", metric=77, mtu=1300),
        route("fd00::/64", scope=SCOPE_GLOBAL, metric=256, protocol=KERNEL),
        route("fe80::/64", scope=SCOPE_GLOBAL, metric=256, protocol=KERNEL),
    }
    assert [item.destination.version for item in snapshot.routes] == [4] * 6 + [6] * 3


async def test_a_link_without_ipv6(kernel: Kernel, veth: Namespace) -> None:
    """Its snapshot has no IPv6 addresses or routes."""
    veth.run("sh -c 'echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6'")
    veth.ip("address add 10.1.0.2/24 dev eth0")
    snapshot = await take_out(kernel, veth)
    assert [item.address for item in snapshot.addresses] == [IPv4Interface("10.1.0.2/24")]
    assert [item.destination for item in snapshot.routes] == [ip_network("10.1.0.0/24")]


async def test_a_link_without_arp(kernel: Kernel, veth: Namespace) -> None:
    """The snapshot records that, and the MTU: Docker must not announce the address of such a link."""
    veth.ip("link set eth0 arp off mtu 9000")
    snapshot = await take_out(kernel, veth)
    assert (snapshot.link.noarp, snapshot.link.mtu) == (True, 9000)


async def test_a_macvlan(kernel: Kernel, host: Namespace, staging: Namespace) -> None:
    """Its parent stays the same."""
    host.ip("link add parent up type veth peer name outside")
    host.ip(f"link add link parent name temporary address {MAC} type macvlan mode bridge")
    host.ip(f"link set temporary netns {staging.path} name eth0")
    snapshot = await take_out(kernel, staging)
    assert snapshot.link == LinkState(name="eth0", kind="macvlan", mac=MAC, mtu=1500, noarp=False)
    assert host.link(HOST_NAME)["link"] == "parent"
    host.ip("link delete parent")


async def test_a_port_of_a_bridge(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """The other end stays a port of its bridge."""
    host.ip("link add bridge0 up type bridge", "link set outside master bridge0")
    await take_out(kernel, veth)
    assert host.link("outside")["master"] == "bridge0"
    host.ip("link delete bridge0")


async def test_the_host_sees_the_link_under_its_new_name_only(kernel: Kernel, veth: Namespace) -> None:
    """No netlink message shows an `eth0` in the host namespace: the host's network services would configure it."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0) as monitor:
        monitor.bind((0, 1))  # RTMGRP_LINK
        await take_out(kernel, veth)
        seen = b""
        while True:
            try:
                seen += monitor.recv(65536)
            except BlockingIOError:
                break
    assert HOST_NAME.encode() in seen
    assert b"eth0\0" not in seen


async def test_no_such_link(kernel: Kernel, staging: Namespace) -> None:
    """The error names the existing links."""
    staging.ip("link add net1 type veth peer name net2")
    with pytest.raises(
        LinkMissing, match=r"cannot move out link eth0 of .*: no such link; existing links: lo, .*net1"
    ) as caught:
        await take_out(kernel, staging)
    assert set(caught.value.existing) == {"lo", "net1", "net2"}


@pytest.mark.parametrize("taken", ["name", "altname"])
async def test_a_name_that_is_taken(kernel: Kernel, host: Namespace, veth: Namespace, taken: str) -> None:
    """The link stays in staging under its name, and the other link is unchanged."""
    host.ip("link add other up type veth peer name another")
    host.ip(f"link property add dev other altname {HOST_NAME if taken == 'name' else ALTNAME}")
    with pytest.raises(KernelError, match=f"the host namespace already has a link called {HOST_NAME} or {ALTNAME}"):
        await take_out(kernel, veth)
    assert veth.links() == {"eth0"}
    assert host.links() == {"outside", "other", "another"}
    assert host.is_up("other")
    host.ip("link delete other")


async def test_take_out_may_be_repeated_after_a_failure(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """What the failed call did is no obstacle to the next."""
    host.ip(f"link add {HOST_NAME} type veth peer name another")
    with pytest.raises(KernelError, match="already has a link called"):
        await take_out(kernel, veth)
    host.ip(f"link delete {HOST_NAME}")
    await take_out(kernel, veth)
    assert host.links() == {"outside", HOST_NAME}


async def test_a_missing_staging_namespace(kernel: Kernel, tmp_path: Path) -> None:
    """The error names the path."""
    path = tmp_path / "endpoint"
    with pytest.raises(NamespaceMissing, match=f"cannot enter namespace {path}: no network namespace is mounted there"):
        await kernel.staged_link(path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()


async def test_the_host_namespace_is_refused(kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """Links of the host are not renamed, even if the staging path leads to its namespace."""
    host.ip("link add eth0 up type veth peer name outside")
    path = tmp_path / "endpoint"
    path.touch()
    host.run(f"mount --bind {host.path} {path}")
    with pytest.raises(KernelError, match="it is the host's"):
        await kernel.staged_link(path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()
    assert host.links() == {"eth0", "outside"}
    assert host.is_up("eth0")
    await kernel.remove_staging(path)
    host.ip("link delete eth0")


async def test_a_cancelled_call_completes(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """When the cancellation is raised, the move is complete."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(take_out(kernel, veth))
        await asyncio.sleep(0)  # the work begins
        assert not task.done()
        task.cancel()
    assert task.cancelled()
    assert host.links() == {"outside", HOST_NAME}


async def test_the_event_loop_stays_in_its_namespace(kernel: Kernel, veth: Namespace) -> None:
    """The thread of the event loop never leaves the host namespace."""
    with current_namespace() as before:
        await take_out(kernel, veth)
        with current_namespace() as after:
            assert namespace_id(after) == namespace_id(before)
