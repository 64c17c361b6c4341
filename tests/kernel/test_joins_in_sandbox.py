# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Join of endpoints whose plugins run in the sandbox itself, and default routes that routers announce meanwhile."""

import asyncio
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Limits, Runtime
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import LinkState, Snapshot, Sysctl
from cnm_bridge.core.planning.records import rebuilt_record
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.pin import Finish
from tests.kernel.attachers import make_attachers
from tests.kernel.namespace import Namespace
from tests.plugins import FakePlugins
from tests.records import NETWORK, endpoint, list_of


async def put_ready(store: Store, number: int, sandbox: Path, *chained: JsonObject) -> EndpointRecord:
    """Store an endpoint whose addresses are reserved, and return it as it is at Join."""
    ifname = f"box{number}"
    plugins: list[JsonObject] = [{"type": "bridge", "ipam": {"type": "host-local"}}, *chained]
    made = endpoint(f"{number}" * 64, Phase.PENDING, plugins=plugins)
    link = LinkState(name=ifname, kind="veth", mac=None, mtu=0, noarp=False)
    result: JsonObject = {"cniVersion": "1.0.0", "ips": [{"address": f"10.1.0.{number}/24"}]}
    made = replace(
        made,
        attachment=replace(made.attachment, mode=AttachMode.HYBRID, reservation=result, ifname=ifname),
        ifname_prefix="box",
        snapshot=Snapshot(link=link, addresses=(), routes=()).to_json(),
        added_plugins=1,
        deleted=tuple(range(1, len(plugins) + 1)),
    )
    for phase in (Phase.PENDING, Phase.READY):
        await store.put_endpoint(replace(made, phase=phase))
    return replace(made, phase=Phase.READY, sandbox_key=str(sandbox))


async def test_a_joined_endpoint_without_a_pin(
    store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace
) -> None:
    """Docker has it in a sandbox, and its record does not: without a pin it was moved, and the operator sees why."""
    attacher = make_attachers(store, Runtime([tmp_path], Limits()), kernel, tmp_path / "run")[AttachMode.HYBRID]
    joined = attacher.joined_record(await put_ready(store, 1, sandbox.path))
    assert joined.attachment.mode is AttachMode.MOVE
    assert joined.attachment.mode_reason == "its record was out of date, and its sandbox is not pinned"


async def test_two_joins_into_one_sandbox(store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace) -> None:
    """Only one of them makes its link there, even if both come at the same time: Docker would panic with two."""
    fakes = FakePlugins(tmp_path / "bin")
    fakes.install("bridge")
    await store.put_engine_version("28.5")
    runtime = Runtime([fakes.directory], Limits())
    attacher = make_attachers(store, runtime, kernel, tmp_path / "run")[AttachMode.HYBRID]
    records = [await put_ready(store, number, sandbox.path) for number in (1, 2)]
    joins = [attacher.attach(replace(one, ifname_prefix="eth")) for one in records]
    errors = await asyncio.gather(*joins, return_exceptions=True)
    await kernel.remove_staging(tmp_path / "run/sandboxes" / records[0].id)
    # this bridge makes no link
    assert "made no link box1 in the container" in str(errors[0])
    assert "a link called box2 cannot be made in the sandbox: the sandbox has a link" in str(errors[1])


async def test_a_second_link_beside_a_rebuilt_record(
    store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace
) -> None:
    """After the state was lost, the link that is in the sandbox counts all the same: Docker would panic with two."""
    await store.put_engine_version("28.5")
    rebuilt = rebuilt_record(
        EndpointId("2" * 64),
        network_id=NETWORK,
        phase=Phase.JOINED,
        internal=False,
        configuration=list_of({"type": "bridge", "ipam": {"type": "dhcp"}}),
        addresses=("10.1.0.2/24",),
        mac=None,
        run_dir=tmp_path / "run",
        boot_id="0c1f",
        pinned_link="lan0",
        sandbox_key=str(sandbox.path),
    )
    await store.put_found_endpoint(rebuilt)
    attacher = make_attachers(store, Runtime([tmp_path], Limits()), kernel, tmp_path / "run")[AttachMode.DIRECT]
    ready = await put_ready(store, 1, sandbox.path)
    with pytest.raises(Refused, match="the sandbox has a link that this driver made in it already"):
        await attacher.attach(replace(ready, attachment=replace(ready.attachment, mode=AttachMode.DIRECT)))


async def test_a_list_that_cannot_be_moved(store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace) -> None:
    """While dockerd boots, its link is made in the sandbox; without a sandbox the error says what cannot be moved."""
    fakes = FakePlugins(tmp_path / "bin")
    for plugin in ("bridge", "vrf"):
        fakes.install(plugin)
    await store.put_engine_version("28.5")
    runtime = Runtime([fakes.directory], Limits())
    attacher = make_attachers(store, runtime, kernel, tmp_path / "run")[AttachMode.HYBRID]
    ready = await put_ready(store, 0, sandbox.path, {"type": "vrf", "vrfname": "red"})
    nowhere = replace(ready, sandbox_key=str(tmp_path / "missing"))
    with pytest.raises(
        Refused, match=r"the sandbox does not exist yet; .* because of plugin vrf: .*[.]ifname=NAME [(]compose: .*[)]$"
    ):
        await attacher.attach(nowhere)
    assert not fakes.commands
    with pytest.raises(Refused, match="made no link box0 in the container"):  # this bridge makes none
        await attacher.attach(ready)
    await kernel.remove_staging(tmp_path / "run/sandboxes" / ready.id)
    assert {command.environment["CNI_NETNS"] for command in fakes.commands} == {
        str(tmp_path / "run/sandboxes" / ready.id)
    }


ACCEPTS: Final = "net/ipv6/conf/eth0/accept_ra_defrtr"
BOTH: Final = frozenset({4, 6})
OF_LIST: Final = "-6 route add default via fd80:1::1 dev eth0"


@pytest.fixture(name="pinned")
def make_pinned(sandbox: Namespace) -> Namespace:
    """A sandbox with a link that has an IPv6 address and a default route of a router, and a pin of it."""
    sandbox.ip(
        "link add eth0 type veth peer name peer",
        "link set peer up",
        "link set eth0 up",
        "-6 address add fd80:1::2/64 dev eth0 nodad",
        "-6 route add default via fe80::1 dev eth0 proto ra metric 1025",  # `ip` would merge two with the same metric
    )
    return sandbox


def defaults(sandbox: Namespace) -> list[str]:
    """Return the next hops of the IPv6 default routes."""
    lines = sandbox.run("ip -6 route show default").decode().splitlines()
    return [line.split()[2] for line in lines]


async def finish(kernel: Kernel, sandbox: Namespace, wanted: Finish) -> tuple[Sysctl, ...]:
    """Finish the link as Join does; return the settings that it must have afterwards."""
    snapshot = await kernel.pin(sandbox.path, "eth0", "cni-test").finish(wanted)
    return snapshot.sysctls


async def test_a_list_with_a_gateway(kernel: Kernel, pinned: Namespace) -> None:
    """Docker can add its default route: there is none, and none is accepted until later."""
    pinned.ip(OF_LIST)
    later = await finish(kernel, pinned, Finish(families=BOTH))
    assert defaults(pinned) == []
    assert pinned.setting(ACCEPTS) == "0"
    assert later == (Sysctl(name=ACCEPTS, value="1"),)


async def test_a_list_without_a_gateway(kernel: Kernel, pinned: Namespace) -> None:
    """Docker adds none, so the router's stays: the next announcement may come minutes later."""
    assert await finish(kernel, pinned, Finish(families=BOTH)) == ()
    assert defaults(pinned) == ["fe80::1"]
    assert pinned.setting(ACCEPTS) == "1"


async def test_an_internal_network(kernel: Kernel, pinned: Namespace) -> None:
    """Docker adds none, whatever the list has."""
    pinned.ip(OF_LIST)
    assert await finish(kernel, pinned, Finish(families=BOTH, without_defaults=True)) == ()
    assert pinned.setting(ACCEPTS) == "1"


@pytest.mark.parametrize("value", ["1", "0"])
async def test_a_setting_of_the_user(kernel: Kernel, pinned: Namespace, value: str) -> None:
    """It counts once Docker has added its default route, which needs its place until then."""
    pinned.ip(OF_LIST)
    chosen = Sysctl(name=ACCEPTS, value=value)
    assert await finish(kernel, pinned, Finish(families=BOTH, sysctls=(chosen,))) == (chosen,)
    assert defaults(pinned) == []
    assert pinned.setting(ACCEPTS) == "0"


async def test_a_sandbox_without_ipv6(kernel: Kernel, pinned: Namespace) -> None:
    """The link has none either, whatever its own settings and addresses are."""
    pinned.run("sysctl --write net.ipv6.conf.all.disable_ipv6=1")
    switched_on, mtu = (Sysctl(name=f"net/ipv6/conf/eth0/{name}", value="0") for name in ("disable_ipv6", "mtu"))
    of_ipv4 = Sysctl(name="net/ipv4/conf/eth0/arp_notify", value="1")
    link_local = (IPv4Interface("169.254.7.7/16"), IPv6Interface("fe80::7/64"))
    wanted = Finish(sysctls=(switched_on, of_ipv4, mtu), addresses=link_local)
    assert await finish(kernel, pinned, wanted) == (of_ipv4, replace(switched_on, value="1"))
    assert pinned.setting(switched_on.name) == "1"
    assert "169.254.7.7/16" in pinned.run("ip address show dev eth0").decode()


async def test_no_announced_default_is_wanted(kernel: Kernel, pinned: Namespace) -> None:
    """One that came before the setting is removed: it would be in the way of another network's gateway."""
    await finish(kernel, pinned, Finish(sysctls=(Sysctl(name=ACCEPTS, value="0"),)))
    assert defaults(pinned) == []
    assert pinned.setting(ACCEPTS) == "0"
