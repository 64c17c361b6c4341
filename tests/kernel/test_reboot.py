# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A reboot with a nearly full pool: each container that Docker starts again gets an address."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_state.store import Store
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.settings import Settings
from tests.driver_calls import create_endpoint, create_network, delete_endpoint
from tests.kernel.called_daemon import configure, host_local, tearing_down, write_plugin
from tests.kernel.real_plugins import find_plugins

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
