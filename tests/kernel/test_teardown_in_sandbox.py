# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DEL of endpoints whose plugins run in the sandbox itself: what has completed, and what belongs to another network."""

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, AttachMode, EndpointId, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cni_invoker import Limits, PluginFailed, Runtime
from cnm_bridge.core.endpoint import host_link_name
from cnm_bridge.core.link_state import LinkState, Snapshot
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.netns import is_namespace, pin_namespace, remove_namespace
from tests.kernel.attachers import make_attachers, make_teardown
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import Plugins
from tests.lab.waiting import wait_until
from tests.plugins import FakePlugins
from tests.records import endpoint

ID = f"1{token_hex(32)[1:]}"
"""Unique on this machine: a link that is missing is searched for in the namespaces of root's processes."""
OTHER_ALTNAME: Final = f"cni-bridge-{'2' * 64}"
FAILS: JsonObject = {"error": {"code": 999, "msg": "xtables lock is held"}}
OWN_MAC, OTHER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
LIMITS = Limits(delete_s=20.0)
TearDown = Callable[[], Awaitable[None]]
PLUGINS = ("bridge", "firewall", "third")
ENDED = ProcessRecord(pid=1, started=0)
"""The container's first process: process 1 is another one by now."""


@pytest.fixture
def fakes(tmp_path: Path) -> FakePlugins:
    """The plugins of a list, and its IPAM plugin."""
    fakes = FakePlugins(tmp_path / "bin")
    for name in ("host-local", *PLUGINS):
        fakes.install(name)
    return fakes


@pytest.fixture
def pin(tmp_path: Path, sandbox: Namespace) -> Iterator[Path]:
    """The pin of the sandbox; a test that tears its endpoint down removes it."""
    path = tmp_path / "run/sandboxes" / ID
    fd = os.open(sandbox.path, os.O_RDONLY)
    try:
        pin_namespace(fd, path)
    finally:
        os.close(fd)
    yield path
    remove_namespace(path)


@pytest.fixture
def tear_down(store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path) -> TearDown:
    """Tear the endpoint down, each time as after a start of the daemon."""

    async def run() -> None:
        attachers = make_attachers(store, Runtime([fakes.directory], LIMITS), kernel, tmp_path / "run")
        teardown = make_teardown(store, attachers, kernel, tmp_path, pending=PendingTeardowns())
        await teardown.undo(store.get_endpoint(EndpointId(ID)))

    return run


async def put_joining(store: Store, netns: Path, *plugins: JsonObject) -> None:
    """Store an endpoint of mode *direct* whose first plugin was interrupted in the sandbox."""
    made = endpoint(ID, Phase.PENDING, plugins=plugins or [{"type": name} for name in PLUGINS])
    attachment = replace(made.attachment, mode=AttachMode.DIRECT, netns=str(netns))
    link = LinkState(name="eth0", kind="veth", mac=OWN_MAC, mtu=0, noarp=False)
    expected = Snapshot(link=link, addresses=(), routes=()).to_json()
    made = replace(made, attachment=attachment, snapshot=expected, first_process=ENDED)
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINING):
        await store.put_endpoint(replace(made, phase=phase))


async def test_a_link_of_the_container_that_is_called_like_the_device(
    store: Store, kernel: Kernel, plugins: Plugins, host: Namespace, *, pin: Path, sandbox: Namespace, tmp_path: Path
) -> None:
    """Its plugin was refused, or killed before it moved the device: the container keeps its own link, which is down."""
    host.ip("link add device1 type veth peer name outside")
    sandbox.ip("link add device1 type veth peer name own")
    pin.with_name(f"{ID}.settings").touch()
    await put_joining(store, pin, {"type": "host-device", "device": "device1"})
    attachers = make_attachers(store, Runtime([plugins.directory], LIMITS), kernel, tmp_path / "run")
    teardown = make_teardown(store, attachers, kernel, tmp_path, pending=PendingTeardowns())
    with sandbox.living():
        await teardown.undo(store.get_endpoint(EndpointId(ID)))
        assert sandbox.links() == {"device1", "own"}
    assert "ifalias" not in sandbox.link("device1")
    wait_until(lambda: host.links() == {"device1", "outside"}, "the end of the veth that replaced the device")
    host.ip("link delete device1")


KILLED_AFTER: Final = """#!/bin/sh
{plugin} || exit
mkdir {marker} 2> /dev/null && kill -KILL $$
true
"""
"""A plugin that is killed at the end of its first execution."""


@pytest.mark.parametrize(
    ("selector", "others"),
    [
        ({"device": "device1"}, [f"link property add dev eth1 altname {OTHER_ALTNAME}", "link set eth1 alias device2"]),
        ({"hwaddr": OWN_MAC}, []),
    ],
    ids=["of another network", "of the container"],
)
async def test_another_link_in_the_sandbox(
    store: Store,
    kernel: Kernel,
    plugins: Plugins,
    host: Namespace,
    *,
    pin: Path,
    sandbox: Namespace,
    tmp_path: Path,
    selector: JsonObject,
    others: list[str],
) -> None:
    """The plugin is killed after it has returned its device: the only link that is left in the sandbox stays."""
    for ifname, device in (("eth0", "device1"), ("eth1", "device2")):
        host.ip(f"link add {device} type veth peer name {device}-peer")
        host.ip(f"link set {device} netns {sandbox.path} name {ifname}")
    sandbox.ip("link set eth0 alias device1", f"link property add dev eth0 altname cni-bridge-{ID}", *others)
    other = sandbox.run("ip -details link show dev eth1")
    wrapper = tmp_path / "bin/host-device"
    wrapper.parent.mkdir()
    wrapper.write_text(KILLED_AFTER.format(plugin=plugins.directory / "host-device", marker=tmp_path / "killed"))
    wrapper.chmod(0o755)
    await put_joining(store, pin, {"type": "host-device", **selector})
    attachers = make_attachers(store, Runtime([wrapper.parent], LIMITS), kernel, tmp_path / "run")
    teardown = make_teardown(store, attachers, kernel, tmp_path, pending=PendingTeardowns())
    await teardown.undo(store.get_endpoint(EndpointId(ID)))
    assert (tmp_path / "killed").is_dir()
    assert sandbox.run("ip -details link show dev eth1") == other
    stand_in = host_link_name(AttachmentId(ID))  # ends with the sandbox, which has its peer
    assert host.links() == {"device1", "device1-peer", "device2-peer", stand_in}
    host.ip("link delete device1", "link delete device2-peer", f"link delete {stand_in}")


async def test_a_repeated_teardown_resumes(
    store: Store, fakes: FakePlugins, tear_down: TearDown, pin: Path, sandbox: Namespace
) -> None:
    """The link is still in the sandbox, but plugins whose DEL has completed do not run again."""
    sandbox.ip(f"link add eth0 address {OWN_MAC} type veth peer name other")
    fakes.install("bridge", DEL=[FAILS, FAILS, {}])
    await put_joining(store, pin)
    with pytest.raises(PluginFailed, match="xtables lock"):
        await tear_down()
    await tear_down()
    assert fakes.deleted() == ["third", "firewall", "bridge", "bridge", "bridge"]
    assert store.endpoints() == ()
    assert not is_namespace(pin)


async def test_a_link_of_another_network(
    store: Store, fakes: FakePlugins, tear_down: TearDown, pin: Path, sandbox: Namespace
) -> None:
    """No plugin made a link; one of the same name, which a container has on another network, keeps all it has."""
    sandbox.ip(
        f"link add eth0 address {OTHER_MAC} type veth peer name other",
        "address add 10.9.0.2/24 dev eth0",
        "link set eth0 up",
    )
    await put_joining(store, pin)
    with sandbox.living():
        await tear_down()
        assert sandbox.addresses("eth0") == ["10.9.0.2/24"]
        assert sandbox.altnames("eth0") == ()
    assert fakes.deleted() == ["third", "firewall", "bridge"]
    deletes = [command for command in fakes.commands if command.verb == "DEL"]
    assert {command.environment["CNI_NETNS"] for command in deletes} == {str(pin)}
    assert {None, sandbox.path.stat().st_ino}.isdisjoint(command.netns_inode for command in deletes)


async def test_a_link_without_a_mac_of_the_container(
    store: Store, tear_down: TearDown, pin: Path, sandbox: Namespace
) -> None:
    """No plugin has run, because the container has a link of the requested name: its own link keeps all it has."""
    sandbox.ip("tuntap add dev tun0 mode tun", "address add 10.9.0.2/24 dev tun0")
    made = endpoint(ID, Phase.PENDING, plugins=[{"type": "bridge"}])
    link = LinkState(name="tun0", kind=None, mac=None, mtu=0, noarp=False)
    attachment = replace(made.attachment, mode=AttachMode.DIRECT, ifname="tun0")
    snapshot = Snapshot(link=link, addresses=(), routes=()).to_json()
    made = replace(made, attachment=attachment, snapshot=snapshot, deleted=(0,), addresses=(), result=None)
    for phase in (Phase.PENDING, Phase.READY):
        await store.put_endpoint(replace(made, phase=phase))
    with sandbox.living():
        await tear_down()
        assert sandbox.addresses("tun0") == ["10.9.0.2/24"]
        assert sandbox.altnames("tun0") == ()
    assert not is_namespace(pin)


async def test_a_link_that_has_left_and_is_joined_again(
    store: Store, kernel: Kernel, fakes: FakePlugins, *, host: Namespace, tear_down: TearDown, tmp_path: Path
) -> None:
    """Docker moves it now, as with a legacy `--link`. Each DEL finds it at the path of ADD, where the pin was then."""
    pin, staging = tmp_path / "run/sandboxes" / ID, Namespace(tmp_path / "run/netns" / ID)
    await kernel.create_staging(staging.path)
    host.ip(f"link add other type veth peer name eth0 address {OWN_MAC} netns {staging.path}")
    made = endpoint(ID, Phase.PENDING, plugins=[{"type": name} for name in PLUGINS])
    link = LinkState(name="eth0", kind="veth", mac=OWN_MAC, mtu=1500, noarp=False)
    made = replace(
        made,
        attachment=replace(made.attachment, mode=AttachMode.DIRECT, netns=str(staging.path)),
        snapshot=Snapshot(link=link, addresses=(), routes=()).to_json(),
        added_plugins=len(PLUGINS),
        ifname_prefix="eth",
    )
    for phase in (Phase.PENDING, Phase.READY):
        await store.put_endpoint(replace(made, phase=phase))
    attacher = make_attachers(store, Runtime([fakes.directory], LIMITS), kernel, tmp_path / "run")[AttachMode.DIRECT]
    namespace = staging.path.stat().st_ino
    joined = await attacher.attach(replace(made, phase=Phase.READY, sandbox_key=str(tmp_path / "missing")))
    assert (joined.phase, joined.attachment.mode) == (Phase.JOINED, AttachMode.MOVE)
    assert Namespace(pin).links() == set()  # it is in the host namespace, where Docker takes it
    assert not is_namespace(staging.path)
    await tear_down()
    deletes = [command for command in fakes.commands if command.verb == "DEL"]
    assert [command.plugin for command in deletes] == ["third", "firewall", "bridge"]
    assert {(command.environment["CNI_NETNS"], command.netns_inode) for command in deletes} == {(str(pin), namespace)}
    assert not is_namespace(pin)


async def test_a_record_from_before_join(
    store: Store, fakes: FakePlugins, tear_down: TearDown, pin: Path, sandbox: Namespace
) -> None:
    """Its latest version was lost: the complete link shows that all plugins have run, so DEL of all is needed."""
    sandbox.ip(
        f"link add eth0 address {OWN_MAC} type veth peer name other",
        f"link property add dev eth0 altname cni-bridge-{ID}",
    )
    made = endpoint(ID, Phase.PENDING, plugins=[{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "third"}])
    result: JsonObject = {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}]}
    attachment = replace(made.attachment, mode=AttachMode.HYBRID, reservation=result)
    ready = replace(made, attachment=attachment, result=result, added_plugins=1, deleted=(1, 2))
    for phase in (Phase.PENDING, Phase.READY):
        await store.put_endpoint(replace(ready, phase=phase))
    await tear_down()
    assert fakes.deleted() == ["third", "bridge", "host-local"]
    assert not is_namespace(pin)


async def test_a_reservation_alone(store: Store, fakes: FakePlugins, tear_down: TearDown, tmp_path: Path) -> None:
    """An endpoint that was never joined: only its IPAM plugin runs, and no namespace is made."""
    made = endpoint(ID, Phase.PENDING, plugins=[{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "third"}])
    record = replace(made, attachment=replace(made.attachment, mode=AttachMode.HYBRID), deleted=(1, 2))
    await store.put_endpoint(record)
    await tear_down()
    assert fakes.deleted() == ["host-local"]
    assert not is_namespace(tmp_path / "run/netns" / ID)
