# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Claims of ports come from the records, and are removed with them; an error does not take a port from its holder."""

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_list, get_object
from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateUnusable
from cni_bridge_state.store import Store
from cni_invoker import Limits, PluginFailed, Runtime
from cnm_bridge.core.errors import Interrupted, Refused
from cnm_bridge.core.planning.ports import CAPABILITY, PortClaims, PortMapping, parse_mappings
from cnm_bridge.driver.endpoints.port_publisher import PortPublisher
from cnm_bridge.system.kernel import HostPorts
from cnm_bridge.system.scheduling import TimeSlice
from tests.plugins import FakePlugins
from tests.records import endpoint
from tests.unit.cnm_bridge.core.planning.port_requests import mapping, request

ONE, TWO = EndpointId("1" * 64), EndpointId("2" * 64)


async def put(store: Store, endpoint_id: EndpointId, *ports: int, sandbox: str) -> EndpointRecord:
    """Store an endpoint that has published ports."""
    capability_args: JsonObject = {CAPABILITY: [mapping(port).to_json() for port in ports]}
    record = replace(
        endpoint(endpoint_id, Phase.PENDING, capability_args=capability_args),
        sandbox_key=f"/var/run/docker/netns/{sandbox}",
    )
    await store.put_endpoint(record)
    return record


async def load(store: Store) -> tuple[PortPublisher, PortClaims]:
    """Make a publisher and the claims of the endpoints in a store."""
    claims = PortClaims()
    port_publisher = PortPublisher(store, Runtime([], Limits()), HostPorts(), claims)
    await port_publisher.load()
    return port_publisher, claims


async def test_claims_are_removed_with_the_record(store: Store) -> None:
    """An endpoint that is being deleted keeps its claims until its record is removed."""
    record = await put(store, ONE, 80, 81, sandbox="c1")
    _, claims = await load(store)
    assert list(claims.of(ONE)) == [mapping(80), mapping(81)]
    await store.put_endpoint(replace(record, phase=Phase.DELETING))
    assert list(claims.of(ONE)) == [mapping(80), mapping(81)]
    await store.remove_endpoint(ONE)
    assert list(claims.of(ONE)) == []


@pytest.mark.parametrize(("sandbox", "found"), [("c1", []), ("c2", [TWO])])
async def test_owners_of_requested_ports(store: Store, sandbox: str, found: list[EndpointId]) -> None:
    """A port held by an endpoint of the same container is no conflict."""
    await put(store, ONE, sandbox="c1")
    await put(store, TWO, 80, sandbox=sandbox)
    port_publisher, _ = await load(store)
    assert [
        owner.id for owner in await port_publisher.find_owners(ONE, [request(79, 80), request(80), request(81)])
    ] == found


FAILED: JsonObject = {"error": {"code": 999, "msg": "xtables lock is held"}}
LIST: JsonObject = {
    "cniVersion": "1.0.0",
    "name": "lan",
    "plugins": [{"type": "main"}, {"type": "publisher", "capabilities": {CAPABILITY: True}}],
}
LIMITS = Limits(grace_s=0.3, retry_pauses_s=())


class AnyPort(HostPorts):
    """A host on which no program uses a port."""

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> None:
        """Report no conflict."""

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Propose no port."""
        del protocol, host_ip
        raise OSError


class Scene:
    """Endpoints whose ports are published by a fake plugin."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.directory = directory
        self.plugins = FakePlugins(directory / "bin")
        self.plugins.install("publisher", ADD={"passthrough": True})
        self.store = store
        self.claims = PortClaims()
        self.port_publisher = PortPublisher(store, Runtime([self.plugins.directory], LIMITS), AnyPort(), self.claims)

    async def put(self, endpoint_id: EndpointId) -> EndpointRecord:
        """Store an attached endpoint in its own sandbox; its record is larger than 64 KiB."""
        record = await put(self.store, endpoint_id, sandbox=endpoint_id)
        attached = replace(
            record,
            phase=Phase.READY,
            attachment=replace(record.attachment, configuration=LIST, capability_args={}),
            result={"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/16"}]},
            snapshot={"text": os.urandom(1 << 16).hex()},
        )
        await self.store.put_endpoint(attached)
        return attached

    def ports_given(self) -> list[tuple[str, list[int]]]:
        """Return the plugin's executions with the ports that it received."""
        return [
            (command.verb, [int(str(port["hostPort"])) for port in _mappings(command.stdin)])
            for command in self.plugins.commands
            if command.verb != "VERSION"
        ]

    async def wait_called(self, count: int) -> None:
        """Wait until the plugin was executed this often."""
        while len(self.ports_given()) < count:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)


def _mappings(stdin: JsonObject) -> list[JsonObject]:
    config = get_object(stdin, "runtimeConfig") if "runtimeConfig" in stdin else {}
    return [port for port in get_list(config, CAPABILITY) if isinstance(port, dict)]


@contextmanager
def no_space() -> Iterator[None]:
    """Limit files to less than the size of the record; files of the plugins are smaller."""
    limits, compiling = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # or parts of compiled modules could stay
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = compiling


@pytest.fixture(name="scene")
def make_scene(tmp_path: Path, store: Store) -> Scene:
    """A plugin that publishes all ports, and no endpoints."""
    return Scene(tmp_path, store)


async def test_other_ports_replace_the_published_ones(scene: Scene) -> None:
    """The plugin receives DEL with the previous ports, which are free afterwards."""
    record = await scene.port_publisher.publish(await scene.put(ONE), [request(80), request(81)])
    await scene.port_publisher.publish(record, [request(81), request(82)])
    assert scene.ports_given() == [("DEL", []), ("ADD", [80, 81]), ("DEL", [80, 81]), ("ADD", [81, 82])]
    assert list(scene.claims.of(ONE)) == [mapping(81), mapping(82)]


async def test_the_first_ports_of_portmap(scene: Scene) -> None:
    """Its ADD without ports has made nothing, so there is nothing to delete before the first ports."""
    scene.plugins.install("portmap", ADD={"passthrough": True})
    record = await scene.put(ONE)
    plugins: list[JsonValue] = [{"type": "main"}, {"type": "portmap", "capabilities": {CAPABILITY: True}}]
    configuration: JsonObject = {**LIST, "plugins": plugins}
    record = replace(record, attachment=replace(record.attachment, configuration=configuration))
    record = await scene.port_publisher.publish(record, [request(80)])
    await scene.port_publisher.publish(record, [request(81)])
    assert scene.ports_given() == [("ADD", [80]), ("DEL", [80]), ("ADD", [81])]


async def test_ports_that_cannot_be_unpublished_stay_claimed(scene: Scene) -> None:
    """Rules for them may still exist: no other endpoint can publish them; the new ports are not claimed."""
    record = await scene.port_publisher.publish(await scene.put(ONE), [request(80), request(81)])
    scene.plugins.install("publisher", ADD={"passthrough": True}, DEL=FAILED)
    with pytest.raises(PluginFailed):
        await scene.port_publisher.publish(record, [request(81), request(82)])
    assert list(scene.claims.of(ONE)) == [mapping(80), mapping(81)]
    assert scene.store.find_endpoint(ONE) == record
    scene.plugins.install("publisher", ADD={"passthrough": True})
    other = await scene.put(TWO)
    with pytest.raises(Refused, match="published for endpoint 1111"):
        await scene.port_publisher.publish(other, [request(80)])
    await scene.port_publisher.publish(other, [request(82)])


async def test_the_record_has_the_previous_ports_and_the_new_ones_meanwhile(scene: Scene) -> None:
    """If the daemon is killed while others replace them, a later DEL has all of them."""
    record = await scene.port_publisher.publish(await scene.put(ONE), [request(80), request(81)])
    scene.plugins.install("publisher", DEL={"wait_for": str(scene.directory / "never")})

    async def leave() -> tuple[PortMapping, ...]:
        await scene.wait_called(3)
        meanwhile = scene.store.find_endpoint(ONE)
        scene.port_publisher.interrupt(ONE)
        return () if meanwhile is None else tuple(parse_mappings(meanwhile.attachment.capability_args))

    _, ports = await asyncio.gather(
        scene.port_publisher.publish(record, [request(81), request(82)]), leave(), return_exceptions=True
    )
    assert ports == (mapping(80), mapping(81), mapping(82))


async def test_the_previous_ports_stay_published_if_the_record_cannot_be_written(scene: Scene) -> None:
    """They stay claimed, too: a running container on a full disk loses nothing."""
    record = await scene.port_publisher.publish(await scene.put(ONE), [request(80)])
    with no_space(), pytest.raises(StateUnusable):
        await scene.port_publisher.publish(record, [request(82)])
    assert scene.ports_given() == [("DEL", []), ("ADD", [80])]
    assert list(scene.claims.of(ONE)) == [mapping(80)]


async def test_one_of_two_concurrent_requests_for_the_same_ports_succeeds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the ports does not matter, even if each request takes more than one time slice."""
    monkeypatch.setattr(TimeSlice, "pause", lambda _: asyncio.sleep(0))
    one, two = await scene.put(ONE), await scene.put(TWO)
    ports = range(1000, 1020)
    done = await asyncio.gather(
        scene.port_publisher.publish(one, [request(port) for port in ports]),
        scene.port_publisher.publish(two, [request(port) for port in reversed(ports)]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in done] == [EndpointRecord, Refused]


@pytest.mark.parametrize(("hanging", "calls"), [("DEL", 1), ("ADD", 2)])
async def test_interrupt_ends_publishing(scene: Scene, hanging: str, calls: int) -> None:
    """The hanging plugin is killed, and no other is executed: the teardown will run DEL."""
    behaviours: JsonObject = {"ADD": {"passthrough": True}, hanging: {"wait_for": str(scene.directory / "never")}}
    scene.plugins.install("publisher", **behaviours)
    record = await scene.put(ONE)

    async def leave() -> None:
        await scene.wait_called(calls)
        scene.port_publisher.interrupt(TWO)
        scene.port_publisher.interrupt(ONE)
        scene.port_publisher.interrupt(ONE)

    published, _ = await asyncio.gather(
        scene.port_publisher.publish(record, [request(80)]), leave(), return_exceptions=True
    )
    assert isinstance(published, Interrupted)
    assert "leaves its container" in str(published)
    assert len(scene.ports_given()) == calls
    scene.port_publisher.interrupt(ONE)
