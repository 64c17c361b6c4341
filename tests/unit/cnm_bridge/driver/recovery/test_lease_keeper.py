# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Leases are got again beside the starts of containers; no network waits for the silent server of another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Attachment, Limits, Runtime
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.driver.recovery import lease_keeper
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks
from tests.plugins import FakePlugins
from tests.records import endpoint, list_of, put

HANG_LIMIT_S: Final = 30.0
"""Ends a test that hangs. It measures nothing."""
SILENT: Final = 5
"""More endpoints than leases of one network are got at once."""


@pytest.fixture(autouse=True)
def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often for endpoints that need a lease."""
    monkeypatch.setattr(lease_keeper, "_RETRY_S", 0.05)


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Install a DHCP plugin that waits for a silent server."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("dhcp", ADD={"sleep_s": 60})
    return plugins


def joined(number: int, network: str, socket: Path) -> EndpointRecord:
    """Return a joined endpoint with DHCP, whose lease no known daemon keeps."""
    ipam = {"type": "dhcp", "daemonSocketPath": str(socket)}
    made = endpoint(f"{number:064x}", Phase.JOINED, network=network, plugins=[{"type": "macvlan", "ipam": ipam}])
    return replace(made, attachment=replace(made.attachment, mode=AttachMode.DIRECT))


@asynccontextmanager
async def keeping(store: Store, plugins: FakePlugins) -> AsyncIterator[None]:
    """Keep leases during the block."""
    kernel = Kernel(reply_limit_s=1.0)
    leases = Leases(Runtime([plugins.directory]), kernel)
    keeper = LeaseKeeper(store=store, leases=leases, locks=KeyedLocks())
    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keeper.run())
        yield
        task.cancel()


class Daemon:
    """A DHCP daemon, as far as a connection shows."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._connections: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(lambda _, writer: self._connections.append(writer), self._socket)

    async def stop(self) -> None:
        """End, as far as its clients see."""
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.close()
        self._connections.clear()


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until something is true that other processes do."""
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_a_network_whose_server_is_silent(store: Store, plugins: FakePlugins, tmp_path: Path) -> None:
    """The leases of another network are got meanwhile, although both have the same daemon."""
    daemon = Daemon(tmp_path / "dhcp.sock")
    await daemon.start()
    silent = [joined(number, "silent", tmp_path / "dhcp.sock") for number in range(SILENT)]
    async with keeping(store, plugins):
        for record in silent:
            await put(store, record)
        await until(lambda: plugins.calls.count(("dhcp", "ADD")) == 2)
        plugins.install("dhcp", ADD={"result": {"cniVersion": "1.0.0"}})
        answered = joined(SILENT, "answered", tmp_path / "dhcp.sock")
        await put(store, answered)
        await until(lambda: store.get_endpoint(answered.id).lease_holder is not None)
    await daemon.stop()


async def test_a_daemon_that_ends_while_a_server_is_silent(store: Store, plugins: FakePlugins, tmp_path: Path) -> None:
    """Its successor is asked at once, not when the attempts with the first one have ended."""
    daemon = Daemon(tmp_path / "dhcp.sock")
    await daemon.start()
    record = joined(0, "lan", tmp_path / "dhcp.sock")
    await put(store, record)
    async with keeping(store, plugins):
        await until(lambda: ("dhcp", "ADD") in plugins.calls)
        plugins.install("dhcp", ADD={"result": {"cniVersion": "1.0.0"}})
        await daemon.stop()
        await daemon.start()
        await until(lambda: store.get_endpoint(record.id).lease_holder is not None)
    await daemon.stop()


async def test_a_start_does_not_wait_for_silent_servers(tmp_path: Path) -> None:
    """While leases of a network wait for their server, a container on the same network starts at once."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("dhcp", ADD={"sleep_s": 60})
    plugins.install("macvlan", ADD={"result": {"cniVersion": "1.0.0"}})
    runtime = Runtime([plugins.directory], Limits(executions=1))
    leases = Leases(runtime, Kernel(reply_limit_s=1.0))
    documents: list[JsonObject] = [{"type": "macvlan", "ipam": {"type": "dhcp"}}]
    records = [endpoint(name * 64, Phase.JOINED, plugins=documents) for name in "abc"]
    network = list_of({"type": "macvlan"}, name="lan")
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(HANG_LIMIT_S):
        renewals = [tasks.create_task(leases.renew(record)) for record in records]
        while plugins.calls.count(("dhcp", "ADD")) < len(records):  # noqa: ASYNC110  # other processes write them
            await asyncio.sleep(0.01)
        await runtime.add(network, Attachment(container_id="c", ifname="eth0", netns="/run/netns/c"))
        for renewal in renewals:
            renewal.cancel()
