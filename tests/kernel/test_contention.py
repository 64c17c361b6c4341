# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A pool with one address: the next endpoint receives it as soon as the previous one is torn down, whatever else is."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, NetworkId, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.assembly import Daemon, assemble
from tests.driver_calls import create_endpoint, create_network, delete_endpoint
from tests.kernel.called_daemon import LIMIT_S, configure, host_local, tearing_down, write_plugin
from tests.kernel.real_plugins import find_plugins
from tests.records import endpoint

ADDRESS = "10.7.0.9"
FIRST, SECOND, THIRD = (digit + token_hex(32)[1:] for digit in "123")
"""In this order, and unique on this machine: a teardown looks for its link in the namespaces of all processes."""
PLUGIN_TIMEOUT_S = 20.0


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
async def one_address(store: Store, tmp_path: Path) -> AsyncIterator[Host]:
    """A network with one address, on real plugins, and the first endpoint, which has that address."""
    real = find_plugins("machine").directory
    slow, broken, stuck = (tmp_path / name for name in ("slow", "broken", "stuck"))
    hang = f"[ -e {slow} ] && sleep 0.5\nwhile [ -e {stuck} ]; do sleep 0.05; done"
    write_plugin(tmp_path / "bin/idle", f'[ "$CNI_COMMAND" = DEL ] || exit 0\n{hang}')
    wait = f'[ "$CNI_COMMAND" = DEL ] && [ -e {slow} ] && sleep 0.5'
    fail = f'[ "$CNI_COMMAND-$CNI_CONTAINERID" = DEL-{FIRST} ] && [ -e {broken} ] && exit 1'
    write_plugin(tmp_path / "bin/pool", f"{wait}\n{real}/ptp || exit $?\n{fail}\nexit 0")
    plugin: JsonObject = {"type": "pool", "ipam": host_local("10.7.0.0/24", first=ADDRESS)}
    daemon = assemble(configure(tmp_path, "pool", plugin, plugin_timeout_s=PLUGIN_TIMEOUT_S), store)
    host = Host(daemon=daemon, store=store, slow=slow, broken=broken, stuck=stuck)
    async with tearing_down(daemon):
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
