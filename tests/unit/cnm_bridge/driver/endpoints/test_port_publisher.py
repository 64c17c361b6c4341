# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which ports of the host are chosen; claims come from the records, and are removed with them."""

import asyncio
import os
import resource
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_list, get_object
from cni_bridge_state import EndpointId, EndpointRecord, Phase, PortRequest, StateUnusable
from cni_bridge_state.store import Store
from cni_invoker import Limits, PluginFailed, Runtime
from cnm_bridge.core.errors import Interrupted, Refused
from cnm_bridge.core.planning.ports import CAPABILITY, PortClaims, PortMapping, parse_mappings
from cnm_bridge.driver.endpoints.port_allocation import choose_ports
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


class Programs(HostPorts):
    """The programs of the host, which use these ports."""

    def __init__(self, *ports: int, proposals: Collection[int] = ()) -> None:
        self._ports = frozenset(ports)
        self._proposals = iter(proposals)

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Return the obstacle if a program uses the port."""
        del protocol, host_ip
        return "Address already in use" if port in self._ports else None

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Return the next proposal; without one, raise."""
        del protocol, host_ip
        try:
            return next(self._proposals)
        except StopIteration:
            raise OSError(98, "Address already in use") from None


async def choose(
    *requests: PortRequest,
    earlier: Collection[PortMapping] = (),
    others: Collection[PortMapping] = (),
    programs: Programs,
) -> tuple[PortMapping, ...]:
    """Return the chosen ports if other endpoints have some."""

    def find_owner(wanted: PortMapping) -> str | None:
        return "another endpoint has it" if any(wanted.overlaps(other) for other in others) else None

    return tuple([one async for one in choose_ports(requests, earlier, find_owner, programs)])


async def test_a_requested_port_is_chosen() -> None:
    """Protocol and address are kept; equal requests are one."""
    wanted = request(8080, host_ip="::1", protocol=132)
    assert await choose(wanted, wanted, programs=Programs()) == (mapping(8080, host_ip="::1", protocol="sctp"),)


async def test_the_first_free_port_of_a_range_is_chosen() -> None:
    """Ports of other containers, of programs, and those already chosen for this container are not free."""
    chosen = await choose(
        request(8080, 8084), request(8080, 8084, port=81), others=[mapping(8080)], programs=Programs(8081)
    )
    assert [one.host_port for one in chosen] == [8082, 8083]


async def test_any_port_is_one_proposed_by_the_kernel() -> None:
    """Ports of containers, which the kernel does not know, are skipped."""
    assert await choose(request(), others=[mapping(40000)], programs=Programs(proposals=[40000, 40001])) == (
        mapping(40001),
    )


async def test_a_previous_choice_is_repeated() -> None:
    """An endpoint keeps its ports if they match the request and are still free."""
    earlier = [mapping(40005), mapping(8083)]
    assert await choose(request(), earlier=earlier, programs=Programs()) == (mapping(40005),)
    assert await choose(request(8080, 8084), earlier=earlier, programs=Programs()) == (mapping(8083),)
    assert await choose(request(), earlier=earlier[:1], programs=Programs(40005, proposals=[40006])) == (
        mapping(40006),
    )
    assert await choose(request(port=81), earlier=earlier, programs=Programs(proposals=[40007])) == (
        mapping(40007, port=81),
    )


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([request(8080)], "port 8080/tcp cannot be published: another endpoint has it"),
        ([request(8081)], "port 8081/tcp cannot be published: Address already in use; choose"),
        (
            [request(8080, 8081)],
            "no port of 8080-8081/tcp can be published; reason for the last one: Address already in use",
        ),
        ([request(9000), request(9000, port=81)], "requested twice"),
        (
            [request(9000, host_ip="::1"), request(9000, host_ip="::", port=81)],
            "[::]:9000/tcp cannot be published",
        ),
        ([request()], "no port of the host is free for 80/tcp: Address already in use"),
        ([request(9000, protocol=1)], "IP protocol 1"),
    ],
)
async def test_unavailable_ports_are_rejected(requests: list[PortRequest], message: str) -> None:
    """The error names the port and the reason."""
    with pytest.raises(Refused) as caught:
        await choose(*requests, others=[mapping(8080)], programs=Programs(8081))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("requests", "taken"),
    [([request(port) for port in range(10000, 20001)], 0), ([request(10000, 20000)], 10000)],
    ids=["many ports", "one of a long range"],
)
async def test_choosing_many_ports_does_not_block_the_event_loop(requests: list[PortRequest], taken: int) -> None:
    """Other tasks run while thousands of ports are checked."""
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        chosen = await choose(*requests, programs=Programs(*range(10000, 10000 + taken)))
        counting.cancel()
    assert chosen[-1].host_port == 20000
    assert iterations > 1
