# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin that refuses a second endpoint as long as the first one has a token, as `macvlan` does with a MAC.

In the modes *hybrid* and *direct* it runs at Join, in mode *move* at CreateEndpoint.
"""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, EndpointId, EndpointRecord, Phase, ProcessRecord, WrongPhase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.endpoint import host_link_name
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from tests.driver_calls import call, create_endpoint, create_network, delete_endpoint, reference
from tests.kernel.called_daemon import LIMIT_S, configure, host_local, tearing_down, write_plugin
from tests.kernel.namespace import Namespace, made_namespace
from tests.kernel.real_plugins import find_plugins

FIRST, SECOND = (EndpointId(digit + token_hex(32)[1:]) for digit in "12")
"""In this order, and unique on this machine: a teardown looks for its link in the namespaces of all processes."""
IFNAME: JsonObject = {"com.docker.network.endpoint.ifname": "blue0"}
UNDO_LIMIT_S = 0.5
"""How long an undo is waited for in these tests."""
SHORT_S = 10.0
"""Longer than an undo is waited for, and much shorter than a plugin may take."""

REFUSAL = """echo '{"code": 100, "msg": "the token is taken"}'; exit 1"""
AT_JOIN: Mapping[str, tuple[str, JsonObject]] = {
    "hybrid": ("hybrid", IFNAME),
    "hybrid, moved": ("hybrid", {}),  # the engine does not say whether the container has further networks
    "direct": ("direct", IFNAME),
}
"""Mode and endpoint options of the ways in which the plugin runs at Join."""
TWO: Sequence[str] = ("move", "direct")
"""Those that differ most, for what all have in common."""

WAYS: Mapping[str, tuple[str, JsonObject]] = {"move": ("move", {}), **AT_JOIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The daemon, called as Docker does, and the files that control its plugins.

    Attributes:
        daemon: The daemon's objects.
        store: Its records.
        options: The options of endpoints.
        held: As long as this file exists, DEL of the first plugin hangs for the endpoint that has the token.
        stuck: As long as this file exists, each DEL of the first plugin hangs.
        slow: If this file exists, each DEL of an endpoint without the token takes longer than an undo is waited for
            when no other endpoint leaves, and adds a line to it.
        leased: The executions of the IPAM plugin.
        reserved: Where the IPAM plugin has its reservations.
    """

    daemon: Daemon
    store: Store
    options: JsonObject
    held: Path
    stuck: Path
    slow: Path
    leased: Path
    reserved: Path

    async def create(self, endpoint_id: EndpointId) -> str:
        """Make an endpoint; return its address, "" if Docker does not learn it."""
        return await create_endpoint(self.daemon, endpoint_id, self.options)

    async def join(self, endpoint_id: EndpointId, sandbox: Namespace) -> None:
        """Join an endpoint to a sandbox."""
        body: JsonObject = {**reference(endpoint_id), "SandboxKey": str(sandbox.path), "Options": {}}
        await call(self.daemon, "Join", body)

    async def start(self, endpoint_id: EndpointId, sandbox: Namespace) -> None:
        """Make an endpoint and join it."""
        await self.create(endpoint_id)
        await self.join(endpoint_id, sandbox)

    async def delete(self, endpoint_id: EndpointId) -> None:
        """Delete an endpoint."""
        await delete_endpoint(self.daemon, endpoint_id)

    def executions(self, endpoint_id: EndpointId) -> list[str]:
        """Return the verbs with which the IPAM plugin was executed for an endpoint."""
        lines = map(str.split, self.leased.read_text().splitlines())
        return [verb for verb, container_id in lines if container_id == endpoint_id]


@pytest.fixture(autouse=True)
def _undos_are_waited_for_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnm_bridge.driver.teardown.queue.UNDO_LIMIT_S", UNDO_LIMIT_S)


def move_in(record: EndpointRecord, sandbox: Namespace) -> None:
    """Move an endpoint's link into its sandbox as libnetwork does, unless the plugins have made it there."""
    link = host_link_name(record.attachment.id)
    if Path("/sys/class/net", link).exists():
        where = sandbox.path.parts[2] if sandbox.path.is_relative_to("/proc") else sandbox.path.name
        subprocess.run(["ip", "link", "set", link, "netns", where], check=True)


@asynccontextmanager
async def one_token(store: Store, tmp_path: Path, way: str) -> AsyncIterator[Host]:
    """A network whose first plugin gives one endpoint a token, on real plugins."""
    mode, options = WAYS[way]
    real = find_plugins("machine").directory
    held, stuck, slow, token, leased = (tmp_path / name for name in ("held", "stuck", "slow", "token", "leased"))
    leased.touch()
    is_owner = f'[ "$(cat {token})" = "$CNI_CONTAINERID" ]'
    take = f"[ -e {token} ] && ! {is_owner} && {{ {REFUSAL}; }}\necho $CNI_CONTAINERID >{token}; exec {real}/ptp"
    wait = f"while [ -e {stuck} ] || {{ [ -e {held} ] && {is_owner}; }}; do sleep 0.05; done"
    tarry = f"[ -e {slow} ] && ! {is_owner} && {{ sleep {UNDO_LIMIT_S + 0.5}; echo >>{slow}; }}"
    # Docker does not learn the addresses of an IPAM plugin that is not known to work without a link.
    ipam_type = "own" if mode == "direct" else "host-local"
    write_plugin(
        tmp_path / "bin/ptp",
        f'[ "$CNI_COMMAND" = DEL ] || {{ {take}; }}\n{wait}\n{tarry}\n'
        f"{real}/ptp || exit $?\n{is_owner} && rm {token}; exit 0",
    )
    write_plugin(
        tmp_path / "bin" / ipam_type, f'echo "$CNI_COMMAND $CNI_CONTAINERID" >>{leased}; exec {real}/host-local'
    )
    ipam = {**host_local("10.7.0.0/24", dataDir=str(tmp_path / "ips")), "type": ipam_type}
    settings = configure(tmp_path, "token", {"type": "ptp", "ipam": ipam}, plugin_timeout_s=LIMIT_S)
    await store.put_engine_version("28.5")
    daemon = assemble(settings, store)
    async with tearing_down(daemon):
        await create_network(daemon, "token", attach=AttachMode(mode).shown)
        try:
            yield Host(
                daemon=daemon,
                store=store,
                options=options,
                held=held,
                stuck=stuck,
                slow=slow,
                leased=leased,
                reserved=tmp_path / "ips" / "token",
            )
        finally:
            for path in (held, stuck):
                path.unlink(missing_ok=True)
            for record in store.endpoints():
                await delete_endpoint(daemon, record.id)
            await wait_for(lambda: not store.endpoints())


async def wait_for(is_true: Callable[[], bool]) -> None:
    """Wait until something is true that sets no event."""
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@asynccontextmanager
async def waiting_join(
    host: Host, gone: Namespace, sandbox: Namespace
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """The second endpoint's Join, which waits for the first one; gives its address, too."""
    await host.start(FIRST, gone)
    host.held.touch()
    await host.delete(FIRST)
    address = await host.create(SECOND)
    async with asyncio.TaskGroup() as tasks:
        join = tasks.create_task(host.join(SECOND, sandbox))
        await wait_for(lambda: host.store.get_endpoint(SECOND).phase is Phase.DELETING)
        await wait_for(lambda: host.store.get_endpoint(SECOND).phase is Phase.JOINING)
        yield address.partition("/")[0], join


@pytest.mark.parametrize("way", AT_JOIN)
async def test_an_endpoint_that_leaves_is_waited_for(
    store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace, way: str
) -> None:
    """Join succeeds when the token is free, with the address that Docker has been given: the IPAM plugin ran once."""
    async with (
        one_token(store, tmp_path, way) as host,
        waiting_join(host, sandbox, inhabited) as (address, join),
    ):
        host.held.unlink()
        await join
        (record,) = store.endpoints()
        assert (record.id, record.phase) == (SECOND, Phase.JOINED)
        if way != "direct":
            assert record.addresses == (address,)
            assert host.executions(SECOND) == ["ADD"]


@pytest.mark.parametrize("way", TWO)
async def test_a_slow_undo_beside_an_endpoint_that_leaves(
    store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace, way: str
) -> None:
    """It is waited for, as on a busy host where undos wait for their turn, and the start succeeds afterwards."""
    async with one_token(store, tmp_path, way) as host, asyncio.TaskGroup() as tasks:
        await host.start(FIRST, sandbox)
        host.held.touch()
        host.slow.touch()
        await host.delete(FIRST)
        start = tasks.create_task(host.start(SECOND, inhabited))
        await wait_for(lambda: bool(host.slow.read_text()))
        assert not start.done()
        host.held.unlink()
        await start
        assert store.get_endpoint(SECOND).phase is Phase.JOINED


@pytest.mark.parametrize("way", TWO)
@pytest.mark.usefixtures("few_processes")
async def test_a_slow_undo_beside_a_dead_endpoint(store: Store, tmp_path: Path, inhabited: Namespace, way: str) -> None:
    """It is waited for, too, when dockerd was killed, and the start succeeds once the dead endpoint is torn down."""
    async with one_token(store, tmp_path, way) as host:
        with made_namespace("short-lived") as gone:
            await host.start(FIRST, gone)
            move_in(store.get_endpoint(FIRST), gone)
        host.slow.touch()
        await host.start(SECOND, inhabited)
        assert host.slow.read_text()
        (record,) = store.endpoints()
        assert (record.id, record.phase) == (SECOND, Phase.JOINED)


@pytest.mark.parametrize("way", AT_JOIN)
async def test_the_daemon_is_killed_while_a_join_waits(
    store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace, way: str
) -> None:
    """The next run finds what was there before Join, and undoes it, the reservation included."""
    async with (
        one_token(store, tmp_path, way) as host,
        waiting_join(host, sandbox, inhabited) as (_, join),
    ):
        join.cancel()
        with pytest.raises(asyncio.CancelledError):
            await join
        assert store.get_endpoint(SECOND).attachment.mode is AttachMode(WAYS[way][0])
        assert (tmp_path / "run" / "sandboxes" / SECOND).exists() == (way != "direct")
        await host.daemon.unfinished.add()
        await wait_for(lambda: store.find_endpoint(SECOND) is None)
        assert inhabited.links() == set()
        assert host.executions(SECOND)[-1] == "DEL"


async def test_an_endpoint_that_stays(store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace) -> None:
    """The refusal is reported, and nothing is left: no record, reservation, pin or link."""
    async with one_token(store, tmp_path, "hybrid") as host:
        await host.create(FIRST)
        await host.join(FIRST, inhabited)
        address = await host.create(SECOND)
        with pytest.raises(PluginFailed, match="the token is taken"):
            await host.join(SECOND, sandbox)
        assert [record.id for record in store.endpoints()] == [FIRST]
        assert host.executions(SECOND) == ["ADD", "DEL"]
        assert not host.reserved.joinpath(address.partition("/")[0]).exists()
        assert not (tmp_path / "run" / "sandboxes" / SECOND).exists()
        assert sandbox.links() == set()


@pytest.mark.parametrize("way", WAYS)
async def test_the_undo_hangs(store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace, way: str) -> None:
    """The error is returned at once; Docker's DeleteEndpoint and Leave are, too; the DEL goes on in the background."""
    async with one_token(store, tmp_path, way) as host:
        await host.start(FIRST, inhabited)
        host.stuck.touch()
        started = time.monotonic()
        with pytest.raises(PluginFailed, match="the token is taken"):
            await host.start(SECOND, sandbox)
        await call(host.daemon, "Leave", reference(SECOND))
        await host.delete(SECOND)
        assert time.monotonic() - started < SHORT_S
        assert SECOND in host.daemon.teardowns.leaving
        assert store.get_endpoint(SECOND).phase is Phase.DELETING
        host.stuck.unlink()
        await wait_for(lambda: store.find_endpoint(SECOND) is None)
        assert list(host.reserved.glob("10.*")) == [host.reserved / store.get_endpoint(FIRST).addresses[0]]


@pytest.mark.parametrize("way", TWO)
async def test_docker_deletes_the_endpoint_while_its_attempt_is_undone(
    store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace, way: str
) -> None:
    """The refusal is raised, and there is no further attempt, although it would succeed."""
    async with one_token(store, tmp_path, way) as host:
        await host.start(FIRST, inhabited)
        host.held.touch()
        await host.delete(FIRST)
        host.stuck.touch()
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task(refused(host.start(SECOND, sandbox)))
            await wait_for(lambda: (found := store.find_endpoint(SECOND)) is not None and found.phase is Phase.DELETING)
            await host.delete(SECOND)
            host.stuck.unlink()
            host.held.unlink()
            await start
        await wait_for(lambda: not store.endpoints())
        assert not list(host.reserved.glob("10.*"))


@pytest.mark.parametrize("way", ["move", "hybrid"])
async def test_docker_deletes_the_endpoint_while_its_next_attempt_waits(
    store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace, way: str
) -> None:
    """The refusal is raised, and there is no further attempt, although it would succeed."""
    async with one_token(store, tmp_path, way) as host:
        await host.start(FIRST, inhabited)
        host.held.touch()
        await host.delete(FIRST)
        kept = None if way == "move" else Phase.JOINING
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task(refused(host.start(SECOND, sandbox)))
            await wait_for(lambda: (found := store.find_endpoint(SECOND)) is not None and found.phase is Phase.DELETING)
            await wait_for(lambda: (None if (found := store.find_endpoint(SECOND)) is None else found.phase) is kept)
            await host.delete(SECOND)
            host.held.unlink()
            await start
        await wait_for(lambda: not store.endpoints())
        assert not list(host.reserved.glob("10.*"))


async def test_docker_deletes_the_endpoint_while_it_is_planned(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plugin runs, and nothing is left, although no record shows the call yet."""
    planning, go_on = asyncio.Event(), asyncio.Event()
    async with one_token(store, tmp_path, "move") as host:
        plan = EndpointPlanner.plan

        async def plan_slowly(
            planner: EndpointPlanner, request: CreateEndpoint, caller: ProcessRecord | None
        ) -> tuple[EndpointRecord, Plan]:
            planning.set()
            await go_on.wait()
            return await plan(planner, request, caller)

        monkeypatch.setattr(EndpointPlanner, "plan", plan_slowly)
        async with asyncio.TaskGroup() as tasks:
            create = tasks.create_task(refused(host.create(FIRST), f"endpoint {FIRST} has been deleted"))
            await planning.wait()
            await host.delete(FIRST)
            go_on.set()
            await create
        assert not store.endpoints()


async def test_a_repeated_join_while_the_next_attempt_waits(
    store: Store, tmp_path: Path, sandbox: Namespace, inhabited: Namespace
) -> None:
    """It fails, and leaves what the first Join has kept."""
    async with (
        one_token(store, tmp_path, "hybrid") as host,
        waiting_join(host, sandbox, inhabited) as (address, join),
    ):
        with pytest.raises(WrongPhase):
            await host.join(SECOND, inhabited)
        host.held.unlink()
        await join
        (record,) = store.endpoints()
        assert (record.id, record.phase, record.addresses) == (SECOND, Phase.JOINED, (address,))


async def refused(start: Awaitable[object], text: str = "the token is taken") -> None:
    """Expect a refusal, the plugin's if nothing else is logged."""
    with pytest.raises((PluginFailed, Refused), match=text):
        await start
