# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which further networks of a guarded container are refused, and which are found later."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest
import structlog

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import EndpointId, EndpointRecord, NetworkId
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.engine_facts.engine import EngineDescription, EngineVersion
from cnm_bridge.core.engine_facts.network import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import EngineRefused, EngineSilent, EngineUnavailable, Refused
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.networks.privileges import Privileges
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, SandboxProcess
from cnm_bridge.system.known_version import KnownVersion
from tests.records import NETWORK, endpoint, network_record, put

ID, OTHER = EndpointId("e" * 64), EndpointId("f" * 64)
AGENTS, LAN = NETWORK, NetworkId("b" * 64)
CONTAINER: Final = "c" * 64
SANDBOX: Final = "/run/docker/netns/1"
EMPTY: Final = "/run/docker/netns/9"
BRIDGE: JsonObject = {"type": "bridge"}
EGRESS: JsonObject = {"type": "egress", "allow": []}


class Known(Engine):
    """An engine that knows some networks, and one container with these."""

    def __init__(self, directory: Path) -> None:
        super().__init__("unix:///nowhere", 1.0)
        self.failure: EngineUnavailable | None = None
        self.asked = self.described = 0
        self.refuses: tuple[str, ...] = ()
        self.directory = directory
        self.configure()
        self.networks: dict[str, EngineNetwork] = {}
        self.add("agents", AGENTS, ID)

    def add(self, name: str, network_id: str, endpoint_id: str = OTHER, *, internal: bool = False) -> None:
        """Add a network of the container."""
        one = EngineEndpoint(
            id=endpoint_id, name="web", address=None, address_ipv6=None, mac=None, container_id=CONTAINER
        )
        self.networks[name] = EngineNetwork(
            id=network_id, name=name, driver="x", internal=internal, options={}, pools=(), endpoints={endpoint_id: one}
        )

    def configure(self, **host_config: JsonValue) -> None:
        """Write what dockerd stores about the container."""
        stored = self.directory / "containers" / CONTAINER
        stored.mkdir(parents=True, exist_ok=True)
        (stored / "hostconfig.json").write_text(json.dumps(host_config))

    async def version(self) -> EngineVersion | None:
        """Return its version."""
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return EngineVersion(28, 5)

    async def describe(self) -> EngineDescription:
        """Return where it stores its data."""
        self.described += 1
        return EngineDescription(version="28.5.2", is_rootless=False, data_directory=str(self.directory))

    @property
    def container(self) -> EngineContainer:
        """The container; it was never on the last network."""
        *before, last = self.networks.values()
        ids: Mapping[str, JsonValue] = {one.name: {"NetworkID": one.id} for one in before}
        document: JsonObject = {"NetworkSettings": {"Networks": {**ids, last.name: {"NetworkID": ""}}}}
        ids_of_endpoints = frozenset(endpoint_id for one in self.networks.values() for endpoint_id in one.endpoints)
        return EngineContainer(id=CONTAINER, name="web", image="x", document=document, endpoint_ids=ids_of_endpoints)

    async def find_network(self, network_id: str) -> EngineNetwork | None:
        """Return a network by ID or name."""
        if self.failure is not None:
            raise self.failure
        return next((one for one in self.networks.values() if network_id in {one.id, one.name}), None)

    async def find_container_named(self, name: str) -> EngineContainer | None:
        """Return the container."""
        return self.container if name == "web" else None

    async def find_starting(self, container_ids: Sequence[str]) -> tuple[EngineContainer, ...]:
        """Return the container."""
        return (self.container,) if CONTAINER in container_ids else ()

    async def disconnect(self, network_id: str, container_id: str) -> None:
        """Take the container off a network."""
        (name,) = [one.name for one in self.networks.values() if one.id == network_id]
        if name in self.refuses or container_id != CONTAINER:
            raise EngineRefused("it is in use")
        del self.networks[name]


class Listed:
    """The lists of our networks: `agents` and `guarded` are guarded."""

    async def resolve(self, network_id: NetworkId) -> tuple[NetworkId, NetworkConfigurationList]:
        """Return the list of a network."""
        plugins: list[JsonValue] = [BRIDGE] if network_id == LAN else [BRIDGE, EGRESS]
        document: JsonObject = {"cniVersion": "1.0.0", "name": "x", "plugins": plugins}
        return network_id, NetworkConfigurationList.from_document(document)


class Processes:
    """A kernel that finds the first process of the container in each sandbox but one."""

    async def find_latest_first_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return it."""
        return None if str(sandbox) == EMPTY else SandboxProcess(pid=1, started=2, cgroup=f"0::/docker/{CONTAINER}\n")


@pytest.fixture(name="engine")
def make_engine(tmp_path: Path) -> Known:
    """Make the engine."""
    return Known(tmp_path / "docker")


@pytest.fixture(name="version")
def make_version(store: Store) -> KnownVersion:
    """Make what is known of the engine: it is up."""
    version = KnownVersion(store)
    version.note(EngineVersion(28, 5))
    return version


@pytest.fixture(name="ways_out")
def make_ways_out(store: Store, engine: Known, version: KnownVersion) -> WaysOut:
    """Make the object under test."""
    privileges = Privileges(store, engine, cast(Kernel, Processes()), version)
    return WaysOut(store, engine, cast(EndpointPlanner, Listed()), version, privileges)


async def keep(store: Store, network_id: NetworkId, name: str, **options: str) -> None:
    """Store a network of ours."""
    await store.put_network(network_record(network_id, configuration=None, name=name, options=options))


def guarded() -> EndpointRecord:
    """Return an endpoint of a guarded network."""
    return replace(endpoint(ID, plugins=[BRIDGE, EGRESS]), sandbox_key=SANDBOX)


def unguarded() -> EndpointRecord:
    """Return an endpoint of another network of ours."""
    return replace(endpoint(OTHER), network_id=LAN, sandbox_key=SANDBOX)


@pytest.mark.parametrize("order", [("open", "last"), ("last", "open")])
async def test_an_open_network_of_another_driver(ways_out: WaysOut, engine: Known, order: tuple[str, str]) -> None:
    """It is refused by name; before the first start the engine shows no ID of it. Internal networks are not named."""
    for name in order:
        engine.add(name, name * 9, internal=name == "last")
    with pytest.raises(Refused, match=r"and on open, which is neither guarded nor internal"):
        await ways_out.refuse(guarded())


async def test_a_network_that_allows_it(store: Store, ways_out: WaysOut, engine: Known) -> None:
    """It is logged at Join, and is no finding."""
    await keep(store, AGENTS, "agents", **{"cni.egress.other-networks": "allow"})
    engine.add("open", "o" * 64)
    await put(store, guarded())
    with structlog.testing.capture_logs() as logged:
        await ways_out.refuse(guarded())
        await ways_out.look()
    assert [(line["event"], line["networks"]) for line in logged] == [("endpoint.way_out_allowed", "open")]
    assert ways_out.found == {}


async def test_a_container_with_net_admin(store: Store, ways_out: WaysOut, engine: Known) -> None:
    """It is refused with the option that it has, unless the network allows it."""
    engine.configure(CapAdd=["CAP_NET_ADMIN"])
    with pytest.raises(Refused, match=r"has --cap-add NET_ADMIN, with which .* cni\.egress\.net-admin=allow"):
        await ways_out.refuse(guarded())
    await ways_out.refuse(unguarded())
    await keep(store, AGENTS, "agents", **{"cni.egress.net-admin": "allow"})
    await ways_out.refuse(guarded())


async def test_a_container_without_record(ways_out: WaysOut, engine: Known) -> None:
    """What it may do is not known, so it is refused."""
    (engine.directory / "containers" / CONTAINER / "hostconfig.json").unlink()
    with pytest.raises(Refused, match=rf"{CONTAINER}/hostconfig\.json cannot be read"):
        await ways_out.refuse(guarded())


async def test_what_an_engine_says_of_itself(ways_out: WaysOut, engine: Known, version: KnownVersion) -> None:
    """It is asked once for each of its starts: the next one may remap users no more."""
    for _ in range(3):
        await ways_out.refuse(guarded())
    assert engine.described == 1
    version.lose()
    await ways_out.refuse(guarded())
    version.note(EngineVersion(28, 5))
    await ways_out.refuse(guarded())
    assert engine.described == 3


async def boot(store: Store, engine: Known, version: KnownVersion) -> None:
    """Have the engine boot, after it has been asked by the previous run."""
    await store.put_engine_identity(f"ID {engine.directory}")
    version.lose()
    engine.failure = EngineSilent("it does not answer")


async def test_net_admin_while_the_engine_boots(
    store: Store, ways_out: WaysOut, engine: Known, version: KnownVersion
) -> None:
    """The first process in the sandbox says which container it is."""
    await boot(store, engine, version)
    await ways_out.refuse(guarded())
    engine.configure(CapAdd=["CAP_NET_ADMIN"])
    with pytest.raises(Refused, match=r"has --cap-add NET_ADMIN, with which"):
        await ways_out.refuse(guarded())
    with pytest.raises(Refused, match="tells which container it is"):
        await ways_out.refuse(replace(guarded(), sandbox_key=EMPTY))
    await keep(store, AGENTS, "agents", **{"cni.egress.net-admin": "allow"})
    await ways_out.refuse(guarded())


async def test_remapped_users_while_the_engine_boots(store: Store, engine: Known, version: KnownVersion) -> None:
    """Such an engine is known by the name of its directory and its group, without which the name is chance."""
    engine.directory /= "100000.100000"
    engine.configure(CapAdd=["CAP_NET_ADMIN"])
    await boot(store, engine, version)
    privileges = Privileges(store, engine, cast(Kernel, Processes()), version)
    with pytest.raises(Refused, match="--cap-add NET_ADMIN"):
        await privileges.refuse_while_booting(guarded(), "agents")
    group = next((one for one in os.getgroups() if one), None) if os.geteuid() else 100000
    if group is None:
        pytest.skip("this user has no group to give a directory to")
    engine.directory = engine.directory.rename(engine.directory.with_name(f"1.{group}"))
    os.chown(engine.directory, -1, group)
    await boot(store, engine, version)
    await privileges.refuse_while_booting(guarded(), "agents")
    engine.configure(CapAdd=["CAP_NET_ADMIN"], UsernsMode="host")
    with pytest.raises(Refused, match="--cap-add NET_ADMIN"):
        await privileges.refuse_while_booting(guarded(), "agents")


async def test_an_engine_without_version_that_boots(store: Store, engine: Known) -> None:
    """Nothing is known of it: a container without a process that tells which it is does not join."""
    privileges = Privileges(store, engine, cast(Kernel, Processes()), KnownVersion(store))
    with pytest.raises(Refused, match="tells which container it is"):
        await privileges.refuse_while_booting(replace(guarded(), sandbox_key=EMPTY), "agents")


async def test_an_old_engine_that_boots(store: Store, ways_out: WaysOut, engine: Known, version: KnownVersion) -> None:
    """Before Engine 28 the container has no process yet: only the log tells."""
    version.note(EngineVersion(26, 1))
    engine.configure(CapAdd=["CAP_NET_ADMIN"])
    await boot(store, engine, version)
    with structlog.testing.capture_logs() as logged:
        await ways_out.refuse(guarded())
    assert [line["event"] for line in logged] == ["endpoint.ways_out_unknown", "endpoint.privileges_unknown"]


async def test_an_engine_that_does_not_answer(
    store: Store, ways_out: WaysOut, engine: Known, version: KnownVersion
) -> None:
    """Nothing joins without its answer, unless it boots: then ways out are found later."""
    engine.failure = EngineSilent("it does not answer")
    with pytest.raises(Refused, match="start the container again"):
        await ways_out.refuse(guarded())
    await boot(store, engine, version)
    with structlog.testing.capture_logs() as logged:
        await asyncio.gather(*(ways_out.refuse(guarded()) for _ in range(9)))
    assert [line["event"] for line in logged] == ["endpoint.ways_out_unknown"] * 9
    assert engine.asked == 1


@pytest.mark.parametrize("failure", [EngineUnavailable("no such file"), EngineRefused("forbidden")])
async def test_an_engine_that_cannot_be_asked(
    ways_out: WaysOut, engine: Known, version: KnownVersion, failure: EngineUnavailable
) -> None:
    """It does not boot: it is elsewhere, or a proxy before it refuses the question."""
    version.lose()
    engine.failure = failure
    with pytest.raises(Refused, match=str(failure)):
        await ways_out.refuse(guarded())


async def test_a_daemon_that_has_just_started(ways_out: WaysOut, engine: Known, version: KnownVersion) -> None:
    """The engine is asked although it is not known to be up."""
    version.lose()
    engine.add("open", "o" * 64)
    engine.add("more", "p" * 64)
    with pytest.raises(Refused, match=r"and on open, more, which are neither .* off them"):
        await ways_out.refuse(guarded())


async def test_an_engine_that_does_not_list_the_endpoint(ways_out: WaysOut, engine: Known) -> None:
    """Nothing joins if it is not known which container that is."""
    engine.networks["agents"] = replace(engine.networks["agents"], endpoints={})
    with pytest.raises(Refused, match=f"lists no container with the endpoint {ID}, so"):
        await ways_out.refuse(guarded())


async def test_a_network_that_is_connected_later_and_closed(store: Store, ways_out: WaysOut, engine: Known) -> None:
    """The container is taken off each; where that fails, the network is a finding, and is tried again."""
    await keep(store, AGENTS, "agents", **{"cni.egress.other-networks": "disconnect"})
    await put(store, guarded())
    for name in ("open", "other", "listed"):
        engine.add(name, name * 16)
    engine.networks["listed"] = replace(engine.networks["listed"], endpoints={})  # the connection was refused
    engine.add("last", "9" * 64, internal=True)
    engine.refuses = ("other",)
    with structlog.testing.capture_logs() as logged:
        await ways_out.look()
    assert [(line["event"], line.get("network")) for line in logged] == [
        ("endpoint.way_out_closed", "open"),
        ("endpoint.way_out_not_closed", "other"),
        ("endpoint.way_out", None),
    ]
    assert ways_out.found == {ID: ("other",)}
    engine.failure = EngineSilent("it does not answer")
    await ways_out.look()
    assert ways_out.found == {ID: ("other",)}  # what is known stays
    engine.failure = None
    engine.refuses = ()
    await ways_out.look()
    assert [*engine.networks] == ["agents", "listed", "last"]
    assert ways_out.found == {}


async def test_a_network_that_refuses_others_closes_nothing_later(
    store: Store, ways_out: WaysOut, engine: Known
) -> None:
    """It is not told to; and a container cannot join it with another network, as with `disconnect`."""
    await put(store, guarded())
    engine.add("open", "o" * 64)
    for chosen in ("refuse", "disconnect"):
        await keep(store, AGENTS, "agents", **{"cni.egress.other-networks": chosen})
        with pytest.raises(Refused, match="neither guarded nor internal"):
            await ways_out.refuse(guarded())
    await keep(store, AGENTS, "agents")
    await ways_out.look()
    assert "open" in engine.networks


async def test_an_event_of_the_engine(store: Store, ways_out: WaysOut, engine: Known) -> None:
    """Only the container that was connected is looked at, and what is known of others stays."""
    await put(store, guarded())
    await ways_out.look()  # so that it is known to be guarded
    engine.add("open", "o" * 64)
    await ways_out.look(["f" * 64])
    assert ways_out.found == {}
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(ways_out.look_when_connected())
        for container_id in (CONTAINER, "f" * 64, CONTAINER):
            ways_out.note_connected(container_id)
        while not ways_out.found:  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.01)
        looking.cancel()
    assert ways_out.found == {ID: ("open",)}
    await ways_out.look(["f" * 64])
    assert ways_out.found == {ID: ("open",)}
    del engine.networks["open"]
    await ways_out.look([CONTAINER])
    assert ways_out.found == {}
