# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A pool whose addresses are used up: who is waited for, after a reboot too; nothing of a refused call stays."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointId, NetworkId, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cni_invoker.errors import BadResult
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.endpoint import alternative_name, host_link_name
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.settings import Settings
from tests.driver_calls import create_endpoint, create_network, create_network_with, delete_endpoint
from tests.kernel.called_daemon import LIMIT_S, configure, host_local, tearing_down, write_plugin
from tests.kernel.engine import FakeEngine, closing, network
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import find_plugins
from tests.records import endpoint

ADDRESS = "10.7.0.9"
FIRST, SECOND, THIRD = (digit + token_hex(32)[1:] for digit in "123")
"""In this order, and unique on this machine: a teardown looks for its link in the namespaces of all processes."""
PLUGIN_TIMEOUT_S = 20.0
UNNAMED = "d" * 64
SLOW_NAME_S = 2.4
"""Much longer than the DEL of a plugin that starts after half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The daemon, called as Docker does, and the files that control its plugins.

    Attributes:
        daemon: The daemon's objects.
        store: Its records.
        slow: As long as this file exists, DEL of the plugin `idle` takes half a second, and that of `pool` starts after
            half a second.
        broken: As long as this file exists, the plugin `pool` fails after its DEL of the first endpoint.
        stuck: As long as this file exists, DEL of the plugin `idle` hangs.
    """

    daemon: Daemon
    store: Store
    slow: Path
    broken: Path
    stuck: Path

    async def create(self, endpoint_id: str) -> str:
        """Make an endpoint on the pool's network; return its address."""
        return await create_endpoint(self.daemon, endpoint_id)

    async def delete(self, endpoint_id: str) -> None:
        """Delete an endpoint."""
        await delete_endpoint(self.daemon, endpoint_id)

    async def adopt(self, endpoint_id: str, network: str) -> None:
        """Store the record of an endpoint on a CNI network whose only plugin is `idle`."""
        record = endpoint(endpoint_id, Phase.READY, plugins=[{"type": "idle"}])
        configuration = {**record.attachment.configuration, "name": network}
        netns = str(self.slow.with_name("netns") / endpoint_id)
        attachment = replace(record.attachment, configuration=configuration, netns=netns)
        await self.store.put_found_endpoint(replace(record, network_id=NetworkId("c" * 64), attachment=attachment))

    async def lose(self, endpoint_id: str) -> None:
        """Let an endpoint be one that a dockerd joined, and then forgot when it was killed."""
        record = self.store.get_endpoint(EndpointId(endpoint_id))
        sandbox, caller = str(self.slow.with_name("sandbox") / endpoint_id), ProcessRecord(pid=1, started=0)
        for phase in (Phase.JOINING, Phase.JOINED):
            await self.store.put_endpoint(replace(record, phase=phase, sandbox_key=sandbox, caller=caller))


@asynccontextmanager
async def one_address(store: Store, tmp_path: Path, engine: FakeEngine | None = None) -> AsyncIterator[Host]:
    """A network with one address, on real plugins, and the first endpoint, which has that address."""
    real = find_plugins("machine").directory
    slow, broken, stuck = (tmp_path / name for name in ("slow", "broken", "stuck"))
    hang = f"[ -e {slow} ] && sleep 0.5\nwhile [ -e {stuck} ]; do sleep 0.05; done"
    write_plugin(tmp_path / "bin/idle", f'[ "$CNI_COMMAND" = DEL ] || exit 0\n{hang}')
    wait = f'[ "$CNI_COMMAND" = DEL ] && [ -e {slow} ] && sleep 0.5'
    fail = f'[ "$CNI_COMMAND-$CNI_CONTAINERID" = DEL-{FIRST} ] && [ -e {broken} ] && exit 1'
    write_plugin(tmp_path / "bin/pool", f"{wait}\n{real}/ptp || exit $?\n{fail}\nexit 0")
    plugin: JsonObject = {"type": "pool", "ipam": host_local("10.7.0.0/24", first=ADDRESS)}
    settings = configure(tmp_path, "pool", plugin, plugin_timeout_s=PLUGIN_TIMEOUT_S, binding_timeout_s=LIMIT_S)
    if engine is not None:
        settings = replace(settings, docker_host=engine.host)
    daemon = assemble(settings, store)
    host = Host(daemon=daemon, store=store, slow=slow, broken=broken, stuck=stuck)
    async with closing(daemon), tearing_down(daemon):
        await create_network(daemon, "pool")
        try:
            assert await host.create(FIRST) == f"{ADDRESS}/32"
            yield host
        finally:
            for path in (slow, broken, stuck):
                path.unlink(missing_ok=True)
            for record in store.endpoints():
                await host.delete(record.id)
            while store.endpoints():  # noqa: ASYNC110 - nothing sets an event
                await asyncio.sleep(0.05)


async def test_the_holder_is_torn_down_before_many_others(store: Store, tmp_path: Path) -> None:
    """Endpoints of other networks are not waited for and do not go first: tearing all of them down takes too long."""
    async with one_address(store, tmp_path) as pool:
        others = [f"{number:064x}" for number in range(100, 100 + 75 * (os.cpu_count() or 1))]
        for other in others:
            await pool.adopt(other, "other")
        pool.slow.touch()
        for other in (*others, FIRST):
            await pool.delete(other)
        assert await pool.create(SECOND) == f"{ADDRESS}/32"
        assert any(record.id in others for record in store.endpoints())


async def test_every_endpoint_that_leaves_the_network_is_waited_for(store: Store, tmp_path: Path) -> None:
    """When the first one to be torn down did not have the address, the next one is waited for."""
    async with one_address(store, tmp_path) as pool:
        await pool.adopt(THIRD, "pool")
        pool.slow.touch()
        await pool.delete(FIRST)
        await pool.delete(THIRD)
        assert await pool.create(SECOND) == f"{ADDRESS}/32"


async def test_a_failed_teardown_may_have_freed_the_address(store: Store, tmp_path: Path) -> None:
    """ADD runs again after the holder's teardown has failed: its DEL freed the address before it failed."""
    async with one_address(store, tmp_path) as pool:
        pool.broken.touch()
        pool.slow.touch()
        await pool.delete(FIRST)
        assert await pool.create(SECOND) == f"{ADDRESS}/32"
        assert [record.phase for record in store.endpoints()] == [Phase.DELETING, Phase.READY]


async def test_a_refusal_while_another_network_hangs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DEL that hangs on another network is not waited for: ADD's refusal is reported at once."""
    monkeypatch.setattr("cnm_bridge.driver.endpoints.attempts.WAIT_LIMIT_S", LIMIT_S)
    async with one_address(store, tmp_path) as pool:
        await pool.adopt(THIRD, "other")
        pool.stuck.touch()
        await pool.delete(THIRD)
        with pytest.raises(PluginFailed, match="no IP addresses available"):
            await pool.create(SECOND)
        assert THIRD in pool.daemon.teardowns.leaving
        assert pool.daemon.teardowns.all[EndpointId(THIRD)].attempts == 0


async def test_a_slow_name_leaves_the_time_of_other_waits(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine names the network after as long as a call waits for all else; then a teardown is still waited for."""
    monkeypatch.setattr("cnm_bridge.driver.endpoints.attempts.WAIT_LIMIT_S", SLOW_NAME_S)
    engine = FakeEngine(tmp_path / "engine")

    async def name_late(pool: Host) -> None:
        pool.slow.touch()
        await asyncio.sleep(SLOW_NAME_S)
        engine.networks[UNNAMED] = {**network(UNNAMED), "Name": "pool", "Options": {}}
        await pool.daemon.networks.lists.name_resolver.wait(NetworkId(UNNAMED))
        await pool.delete(FIRST)

    async with engine.running(), one_address(store, tmp_path, engine) as pool, asyncio.TaskGroup() as tasks:
        await create_network_with(pool.daemon, UNNAMED, {})
        names = tasks.create_task(pool.daemon.networks.lists.name_resolver.run())
        tasks.create_task(name_late(pool))
        assert await create_endpoint(pool.daemon, SECOND, network_id=UNNAMED) == f"{ADDRESS}/32"
        names.cancel()


@pytest.mark.usefixtures("few_processes")
async def test_every_dead_endpoint_may_have_the_address(store: Store, tmp_path: Path) -> None:
    """When the first dead endpoint that is gone did not have the address, the next one is waited for."""
    async with one_address(store, tmp_path) as pool:
        await pool.adopt(THIRD, "pool")
        for dead in (FIRST, THIRD):
            await pool.lose(dead)
        pool.slow.touch()
        assert await pool.create(SECOND) == f"{ADDRESS}/32"


@pytest.mark.usefixtures("few_processes")
async def test_dead_endpoints_that_are_gone_before_a_slow_undo_ends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are searched for while the refused attempt is undone; ADD runs again, although another one's DEL hangs."""
    monkeypatch.setattr("cnm_bridge.driver.teardown.queue.UNDO_LIMIT_S", 0.1)
    async with one_address(store, tmp_path) as pool:
        await pool.adopt(THIRD, "pool")
        for dead in (FIRST, THIRD):
            await pool.lose(dead)
        pool.slow.touch()
        pool.stuck.touch()
        assert await pool.create(SECOND) == f"{ADDRESS}/32"
        assert THIRD in pool.daemon.teardowns.leaving


ALIKE = EndpointId("0123456789a" + "1" * 53)
OTHER_ALIKE = EndpointId("0123456789a" + "2" * 53)


async def be_refused(daemon: Daemon) -> None:
    """Make an endpoint, and expect that the second plugin refuses it."""
    with pytest.raises(PluginFailed, match="refused"):
        await create_endpoint(daemon, token_hex(32))


@pytest.mark.parametrize("calls", [1, 4])
async def test_an_add_that_is_refused_each_time(store: Store, tmp_path: Path, calls: int) -> None:
    """ADD runs once for each call, although DEL leaves the reservation, and other calls are refused beside it."""
    real, added = find_plugins("machine").directory, tmp_path / "added"
    write_plugin(tmp_path / "bin/host-local", f'[ "$CNI_COMMAND" = DEL ] && exit 0\nexec {real}/host-local')
    refuse = """echo '{"code": 100, "msg": "refused"}'; exit 1"""
    write_plugin(
        tmp_path / "bin/second", f'[ "$CNI_COMMAND" = ADD ] || exit 0\necho $CNI_CONTAINERID >>{added}\n{refuse}'
    )
    ipam = host_local("10.7.2.0/24", dataDir=str(tmp_path / "ips"))
    daemon = assemble(configure(tmp_path, "leaky", {"type": "ptp", "ipam": ipam}, {"type": "second"}), store)
    async with tearing_down(daemon):
        await create_network(daemon, "leaky")
        await asyncio.gather(*(be_refused(daemon) for _ in range(calls)))
    assert len(added.read_text().splitlines()) == calls
    assert not store.endpoints()


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            {"routes": [{"dst": f"10.1.{i // 256}.{i % 256}/32"} for i in range(600)]},
            "0 links, 0 addresses, 600 routes",
        ),
        ({"ips": [{"address": f"10.1.{i // 256}.{i % 256}/8"} for i in range(600)]}, "600 addresses"),
        ({"dns": {"search": ["x" * 200] * 2000}}, "more than 262144 bytes on standard output"),
    ],
)
async def test_a_large_result(store: Store, tmp_path: Path, result: JsonObject, text: str) -> None:
    """It would block all calls. The error names the plugin and what is too much; its DEL runs, and no record stays."""
    (tmp_path / "result").write_text(json.dumps({"cniVersion": "1.0.0", **result}))
    write_plugin(tmp_path / "bin/many", f'echo "$CNI_COMMAND" >>{tmp_path}/ran; cat {tmp_path}/result')
    daemon = assemble(configure(tmp_path, "many", {"type": "many"}), store)
    async with tearing_down(daemon):
        await create_network(daemon, "many")
        with pytest.raises(BadResult, match=text) as refused:
            await create_endpoint(daemon, token_hex(32))
    assert 'plugin type="many" failed (add): bad CNI result' in str(refused.value)
    assert (tmp_path / "ran").read_text().split() == ["ADD", "DEL"]
    assert store.endpoints() == ()


async def test_two_ids_that_begin_alike(store: Store, host: Namespace, tmp_path: Path) -> None:
    """The second is refused because the name is taken; the first endpoint's link stays in the host namespace."""
    daemon = assemble(configure(tmp_path, "lan", {"type": "ptp", "ipam": host_local("10.7.0.0/24")}), store)
    async with tearing_down(daemon):
        await create_network(daemon, "lan")
        await create_endpoint(daemon, ALIKE)
        before = host.links()
        name = host_link_name(AttachmentId(ALIKE))
        with pytest.raises(KernelError, match=f"already has a link called {name}"):
            await create_endpoint(daemon, OTHER_ALIKE)
        assert store.find_endpoint(OTHER_ALIKE) is None
        assert host.links() == before
        assert host.altnames(name) == (alternative_name(AttachmentId(ALIKE)),)
        await delete_endpoint(daemon, ALIKE)
        await daemon.teardowns.wait_tried()


CONTAINERS = 12
"""Of thirteen addresses, 92 %."""


async def create_all(daemon: Daemon, first: int) -> set[str]:
    """Make all endpoints at once; return their addresses."""
    return set(
        await asyncio.gather(
            *(create_endpoint(daemon, f"{first + number:011x}".ljust(64, "e")) for number in range(CONTAINERS))
        )
    )


async def reboot(store: Store, settings: Settings) -> Daemon:
    """Give all records an earlier boot, remove their links and namespaces, and return the next run of the daemon."""
    earlier = assemble(settings, store)
    for record in store.endpoints():
        await store.put_endpoint(replace(record, boot_id="earlier"))
        await earlier.resources.kernel.remove_staging(Path(record.attachment.netns))
        process = await asyncio.create_subprocess_exec("ip", "link", "delete", f"cnib{record.id[:11]}")
        assert await process.wait() == 0
    return assemble(settings, store)


async def test_a_nearly_full_pool(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls begin when the endpoints from before the reboot are gone, although this takes longer than usual."""
    monkeypatch.setattr("cnm_bridge.driver.endpoints.attempts.WAIT_LIMIT_S", 0.3)
    real, slow = find_plugins("machine").directory, tmp_path / "slow"
    slow.touch()
    write_plugin(tmp_path / "bin/slow", f'[ "$CNI_COMMAND" = DEL ] && [ -e {slow} ] && sleep 1\nexec {real}/ptp')
    ipam = host_local("10.7.1.0/24", first="10.7.1.10", last="10.7.1.22")
    settings = configure(tmp_path, "pool", {"type": "slow", "ipam": ipam}, recovery_timeout_s=2.0)
    daemon = assemble(settings, store)
    await create_network(daemon, "pool")
    assert len(await create_all(daemon, 100)) == CONTAINERS
    daemon = await reboot(store, settings)
    assert await daemon.unfinished.add() == CONTAINERS
    async with tearing_down(daemon):
        await daemon.unfinished.wait()
        assert len(await create_all(daemon, 200)) == CONTAINERS
        slow.unlink()
        for record in store.endpoints():
            await delete_endpoint(daemon, record.id)
        while store.endpoints():  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.05)
