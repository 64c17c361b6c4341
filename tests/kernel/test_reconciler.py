# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One round of reconcile, against a fake engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import pytest
import structlog

from cni_bridge_spec import render_json
from cni_bridge_state import EndpointId, NetworkId, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.wire import CreateNetwork
from tests.kernel.engine import FakeEngine, closing, network
from tests.kernel.namespace import Namespace
from tests.records import NETWORK, endpoint, network_record, put, settings_in

OTHER = NetworkId("b" * 64)


@pytest.fixture(name="engine")
def make_engine(tmp_path: Path) -> FakeEngine:
    """An engine that knows one network."""
    return FakeEngine(tmp_path / "engine", networks={NETWORK: network(NETWORK)})


@pytest.fixture(name="daemon")
async def make_daemon(store: Store, engine: FakeEngine, tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon that is not started."""
    settings = settings_in(tmp_path, cni_conf_dirs=(tmp_path / "net.d",), docker_host=engine.host, reconcile_grace_s=0)
    async with closing(assemble(settings, store)) as daemon:
        yield daemon


async def test_a_network_receives_its_docker_name(store: Store, engine: FakeEngine, daemon: Daemon) -> None:
    """Reconcile stores the Docker name of a network that was bound without one: operators know it by that name."""
    await store.put_network(network_record(name=None, options={"cni.network": "lan"}))
    async with engine.running():
        await daemon.reconciler.once()
    assert [(found.name, found.configuration) for found in store.networks()] == [("blue", "lan")]


async def test_rounds_are_counted(engine: FakeEngine, daemon: Daemon) -> None:
    """A round in which the engine answered is counted, even if it had nothing to do."""
    await daemon.reconciler.once()
    assert daemon.reconciler.rounds == 0
    async with engine.running():
        for _ in range(2):
            await daemon.reconciler.once()
    assert daemon.reconciler.rounds == 2


async def test_an_unwritten_reservation_while_the_engine_is_down(store: Store, daemon: Daemon, tmp_path: Path) -> None:
    """`host-local` was killed before it wrote it: it is of no container, whatever the engine has."""
    await put(store, endpoint(token_hex(32), ipam={"type": "host-local", "dataDir": str(tmp_path / "cni")}))
    reservations = tmp_path / "cni" / "lan"
    reservations.mkdir(parents=True)
    for name in ("lock", "10.1.2.3"):
        (reservations / name).touch()
    await daemon.reconciler.once()
    assert [file.name for file in reservations.iterdir()] == ["lock"]


async def test_a_network_with_unknown_options_is_not_imported(store: Store, engine: FakeEngine, daemon: Daemon) -> None:
    """This is logged once, not in each round; other networks are imported."""
    await store.put_engine_identity(engine.identity)
    engine.networks[OTHER] = {**network(OTHER), "Options": {"cni.nonsense": "yes"}}
    with structlog.testing.capture_logs() as logged:
        async with engine.running():
            for _ in range(3):
                await daemon.reconciler.once()
    assert [found.id for found in store.networks()] == [NETWORK]
    events = [line["event"] for line in logged if line["log_level"] == "warning"]
    assert events.count("network.not_imported") == 1
    assert events.count("network.imported") == 1


async def test_a_known_network_with_unknown_options(store: Store, engine: FakeEngine, daemon: Daemon) -> None:
    """It receives the engine's ID and its name; its options were accepted by an earlier version."""
    await store.put_engine_identity(engine.identity)
    options = {"cni.nonsense": "yes"}
    await store.put_network(network_record(name=None, options=options))
    engine.networks[NETWORK] = {**network(NETWORK), "Options": options}
    with structlog.testing.capture_logs() as logged:
        async with engine.running():
            await daemon.reconciler.once()
    assert [(found.name, found.engine) for found in store.networks()] == [("blue", engine.identity)]
    assert "network.not_imported" not in {line["event"] for line in logged}


async def test_a_network_that_only_the_swarm_has_is_not_imported(
    store: Store, engine: FakeEngine, daemon: Daemon
) -> None:
    """A manager shows it without the options of the node, with which its dockerd is going to create it."""
    await store.put_engine_identity(engine.identity)
    engine.networks[OTHER] = {**network(OTHER, scope="swarm"), "Options": None, "Containers": None}
    async with engine.running():
        await daemon.reconciler.once()
    assert [found.id for found in store.networks()] == [NETWORK]


@pytest.mark.parametrize("has_network", [True, False], ids=["created again", "not yet"])
async def test_an_endpoint_that_a_swarm_node_lost_is_deleted(
    store: Store, engine: FakeEngine, daemon: Daemon, has_network: bool
) -> None:
    """A killed dockerd forgets the networks of a swarm; it may have created this one again for a new task."""
    await store.put_engine_identity(engine.identity)
    record = endpoint(token_hex(32))
    await put(store, record)
    shown = network(NETWORK, scope="swarm")
    engine.networks[NETWORK] = shown if has_network else {**shown, "Options": None, "Containers": None}
    async with engine.running():
        await daemon.reconciler.once()
    assert daemon.teardowns.all.keys() == {record.id}


async def test_endpoints_of_a_removed_network_are_deleted(store: Store, engine: FakeEngine, daemon: Daemon) -> None:
    """Docker lost the endpoint in a crash and then removed the network: it will not delete the endpoint itself."""
    await store.put_engine_identity(engine.identity)
    record = endpoint(token_hex(32))
    await put(store, record)
    engine.networks.clear()
    async with engine.running():
        await daemon.reconciler.once()
    assert [found.phase for found in store.endpoints()] == [Phase.DELETING]
    assert daemon.teardowns.all.keys() == {record.id}


@pytest.mark.usefixtures("few_processes")
async def test_a_running_container_that_the_engine_does_not_show(
    store: Store, engine: FakeEngine, daemon: Daemon, inhabited: Namespace
) -> None:
    """A dockerd that cannot read its own store shows no endpoints: what is in use is kept, which is logged once."""
    await store.put_engine_identity(engine.identity)
    record = replace(endpoint(token_hex(32)), sandbox_key=str(inhabited.path))
    await put(store, record)
    name = f"cni-bridge-{record.id}"
    inhabited.ip("link add eth0 type veth peer name other", f"link property add dev eth0 altname {name}")
    with structlog.testing.capture_logs() as logged:
        async with engine.running():
            for _ in range(3):
                await daemon.reconciler.once()
    assert [line["event"] for line in logged if line["log_level"] == "warning"].count("endpoint.in_use") == 1
    assert store.get_endpoint(record.id).phase is Phase.JOINED


async def test_an_endpoint_whose_plugin_hangs(
    store: Store, engine: FakeEngine, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked while its ports are published: the round does not wait for it, and the next one tries again."""
    monkeypatch.setattr("cnm_bridge.driver.recovery.reconciler._LOCKED_LIMIT_S", 0.05)
    await store.put_engine_identity(engine.identity)
    hangs, other = endpoint(token_hex(32)), endpoint(token_hex(32))
    for record in (hangs, other):
        await put(store, record)
    async with engine.running(), asyncio.timeout(20):
        async with daemon.teardowns.locks.hold(hangs.id):
            await daemon.reconciler.once()
        assert daemon.teardowns.all.keys() == {other.id}
        await daemon.reconciler.once()
    assert daemon.teardowns.all.keys() == {hangs.id, other.id}


@pytest.mark.parametrize("lists", ["AAAA", "BBBB", None])
async def test_a_network_that_the_engine_does_not_know(
    store: Store, engine: FakeEngine, daemon: Daemon, lists: str | None
) -> None:
    """It is forgotten, with its endpoints, if this engine has listed it; if another one has, both stay."""
    await store.put_engine_identity(engine.identity)
    found = network_record(options={"cni.network": "lan"})
    await store.put_network(found)
    await store.put_network(replace(found, id=OTHER, engine=lists))
    record = replace(endpoint(token_hex(32)), network_id=OTHER)
    await put(store, record)
    with structlog.testing.capture_logs() as logged:
        async with engine.running():
            for _ in range(2):
                await daemon.reconciler.once()
    is_foreign = lists == "BBBB"
    assert (store.get_endpoint(record.id).phase is Phase.JOINED) is is_foreign
    assert [one.engine for one in store.networks() if one.id == NETWORK] == [engine.identity]
    events = [line["network_id"] for line in logged if line["event"] == "network.foreign"]
    assert events == ([OTHER] if is_foreign else [])


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_network_whose_engine_is_known_by_its_process(
    store: Store, engine: FakeEngine, daemon: Daemon, tmp_path: Path, is_known: bool
) -> None:
    """If the process that makes it has called for the engine before, it is forgotten with it, also after a restart."""
    (tmp_path / "net.d").mkdir()
    plugins = [{"type": "bridge"}]
    (tmp_path / "net.d/lan.conflist").write_bytes(
        render_json({"cniVersion": "1.0.0", "name": "lan", "plugins": plugins})
    )
    await store.put_engine_identity(engine.identity)
    await store.put_network(network_record(engine=engine.identity))
    ended = ProcessRecord(pid=2**22 + 1, started=1)
    if is_known:
        await put(store, replace(endpoint(token_hex(32)), caller=ended))
    request = CreateNetwork(network_id=OTHER, options={}, internal=False, ipv4=None, ipv6=False, pools=())
    await daemon.networks.create(request, ended)
    for one in store.endpoints():
        await store.put_endpoint(replace(one, phase=Phase.DELETING))
        await store.remove_endpoint(one.id)
    async with engine.running():
        for _ in range(2):
            await daemon.reconciler.once()
    assert [one.id for one in store.networks()] == [NETWORK] + ([] if is_known else [OTHER])


async def test_a_new_network_of_another_process(store: Store, engine: FakeEngine, daemon: Daemon) -> None:
    """A restarted dockerd makes its first network: it is not listed yet, which one look alone does not report."""
    await store.put_engine_identity(engine.identity)
    found = network_record(options={"cni.network": "lan"})
    await store.put_network(replace(found, caller=ProcessRecord(pid=1, started=1)))
    await store.put_network(replace(found, id=OTHER, caller=ProcessRecord(pid=2, started=2)))
    warned = []
    async with engine.running():
        for _ in range(2):
            with structlog.testing.capture_logs() as logged:
                await daemon.reconciler.once()
            warned.append("network.foreign" in {line["event"] for line in logged})
    assert warned == [False, True]
    assert {one.id for one in store.networks()} == {NETWORK, OTHER}


async def test_an_endpoint_without_a_record(store: Store, engine: FakeEngine, daemon: Daemon, tmp_path: Path) -> None:
    """It is rebuilt when the engine names its sandbox; that it does not is logged once."""
    (tmp_path / "net.d").mkdir()
    content = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge"}]}
    (tmp_path / "net.d" / "lan.conflist").write_text(json.dumps(content))
    await store.put_engine_identity(engine.identity)
    await store.put_network(network_record(options={"cni.network": "lan"}))
    found = EndpointId(token_hex(32))
    engine.networks[NETWORK] = network(NETWORK, found)
    async with engine.running():
        comparisons = []
        with structlog.testing.capture_logs() as logged:
            for _ in range(3):
                before = engine.listed
                await daemon.reconciler.once()
                comparisons.append(engine.listed - before)
        assert comparisons == [2, 1, 1]
        (error,) = (line["error"] for line in logged if line["event"] == "endpoint.not_rebuilt")
        assert error == "the engine does not know the sandbox of container web"
        assert store.find_endpoint(found) is None
        engine.sandboxes[found] = "/nowhere/netns/1"
        await daemon.reconciler.once()
    assert store.get_endpoint(found).sandbox_key == "/nowhere/netns/1"
