# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a refused attempt itself has made is no reason for another attempt."""

import asyncio
from pathlib import Path
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.settings import Settings
from tests.driver_calls import call
from tests.kernel.real_plugins import find_plugins
from tests.kernel.test_contention import NETWORK, reference, write_plugin

LIMIT_S = 60.0


async def create(daemon: Daemon) -> None:
    """Make an endpoint, and expect that the second plugin refuses it."""
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    body: JsonObject = {**reference(token_hex(32)), "Interface": interface, "Options": {}}
    with pytest.raises(PluginFailed, match="refused"):
        await call(daemon, "CreateEndpoint", body)


@pytest.mark.parametrize("calls", [1, 4])
async def test_an_add_that_is_refused_each_time(store: Store, tmp_path: Path, calls: int) -> None:
    """ADD runs once for each call, although DEL leaves the reservation, and other calls are refused beside it."""
    real = find_plugins("machine").directory
    bin_dir, conf_dir, added = (tmp_path / name for name in ("bin", "net.d", "added"))
    for directory in (bin_dir, conf_dir):
        directory.mkdir()
    write_plugin(bin_dir / "host-local", f'[ "$CNI_COMMAND" = DEL ] && exit 0\nexec {real}/host-local')
    refuse = """echo '{"code": 100, "msg": "refused"}'; exit 1"""
    write_plugin(bin_dir / "second", f'[ "$CNI_COMMAND" = ADD ] || exit 0\necho $CNI_CONTAINERID >>{added}\n{refuse}')
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.7.2.0/24"}]], "dataDir": str(tmp_path / "ips")}
    plugins: list[JsonObject] = [{"type": "ptp", "ipam": ipam}, {"type": "second"}]
    document: JsonObject = {"cniVersion": "1.0.0", "name": "leaky", "plugins": [*plugins]}
    conf_dir.joinpath("leaky.conflist").write_bytes(render_json(document))
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        cni_bin_dirs=(bin_dir, real),
        cni_conf_dirs=(conf_dir,),
        docker_host=f"unix://{tmp_path}/no-engine",
    )
    generic: JsonObject = {"com.docker.network.generic": {"cni.network": "leaky"}}
    data: list[JsonObject] = [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
    body: JsonObject = {"NetworkID": NETWORK, "Options": generic, "IPv4Data": [*data], "IPv6Data": []}
    daemon = assemble(settings, store)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        background = tasks.create_task(daemon.teardown.queue.loop.run())
        await call(daemon, "CreateNetwork", body)
        await asyncio.gather(*(create(daemon) for _ in range(calls)))
        background.cancel()
    assert len(added.read_text().splitlines()) == calls
    assert not store.endpoints()
