# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A reboot with a nearly full pool: each container that Docker starts again gets an address."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, get_object, get_str, render_json
from cni_bridge_state.store import Store
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.settings import Settings
from tests.driver_calls import call
from tests.kernel.real_plugins import find_plugins
from tests.kernel.test_contention import NETWORK, reference, write_plugin

CONTAINERS = 12
"""Of thirteen addresses, 92 %."""


async def create(daemon: Daemon, number: int) -> str:
    """Make an endpoint; return its address."""
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    body: JsonObject = {**reference(f"{number:011x}".ljust(64, "e")), "Interface": interface, "Options": {}}
    return get_str(get_object(await call(daemon, "CreateEndpoint", body), "Interface"), "Address")


async def create_all(daemon: Daemon, first: int) -> set[str]:
    """Make all endpoints at once; return their addresses."""
    return set(await asyncio.gather(*(create(daemon, first + number) for number in range(CONTAINERS))))


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
    monkeypatch.setattr("cnm_bridge.driver.teardown.contention.WAIT_LIMIT_S", 0.3)
    real = find_plugins("machine").directory
    bin_dir, conf_dir, slow = (tmp_path / name for name in ("bin", "net.d", "slow"))
    slow.touch()
    for directory in (bin_dir, conf_dir):
        directory.mkdir()
    write_plugin(bin_dir / "slow", f'[ "$CNI_COMMAND" = DEL ] && [ -e {slow} ] && sleep 1\nexec {real}/ptp')
    ranges: JsonObject = {"subnet": "10.7.1.0/24", "rangeStart": "10.7.1.10", "rangeEnd": "10.7.1.22"}
    plugin: JsonObject = {"type": "slow", "ipam": {"type": "host-local", "ranges": [[ranges]]}}
    document: JsonObject = {"cniVersion": "1.0.0", "name": "pool", "plugins": [plugin]}
    conf_dir.joinpath("pool.conflist").write_bytes(render_json(document))
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        cni_bin_dirs=(bin_dir, real),
        cni_conf_dirs=(conf_dir,),
        docker_host=f"unix://{tmp_path}/no-engine",
        recovery_timeout_s=2.0,
    )
    generic: JsonObject = {"com.docker.network.generic": {"cni.network": "pool"}}
    data: list[JsonObject] = [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
    body: JsonObject = {"NetworkID": NETWORK, "Options": generic, "IPv4Data": [*data], "IPv6Data": []}
    daemon = assemble(settings, store)
    await call(daemon, "CreateNetwork", body)
    assert len(await create_all(daemon, 100)) == CONTAINERS
    daemon = await reboot(store, settings)
    assert await daemon.recovery.unfinished.add() == CONTAINERS
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        background = tasks.create_task(daemon.teardown.queue.loop.run())
        await daemon.recovery.unfinished.wait()
        assert len(await create_all(daemon, 200)) == CONTAINERS
        slow.unlink()
        for record in store.endpoints():
            await call(daemon, "DeleteEndpoint", reference(record.id))
        while store.endpoints():  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.05)
        background.cancel()
