# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Endpoints that are refused: nothing of them stays, and what their attempt made is no reason for another one."""

import asyncio
import json
from pathlib import Path
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointId
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cni_invoker.errors import BadResult
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.endpoint import alternative_name, host_link_name
from cnm_bridge.core.errors import NameTaken
from tests.driver_calls import create_endpoint, create_network, delete_endpoint
from tests.kernel.called_daemon import configure, host_local, tearing_down, write_plugin
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import find_plugins

FIRST = EndpointId("0123456789a" + "1" * 53)
SECOND = EndpointId("0123456789a" + "2" * 53)


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
        await create_endpoint(daemon, FIRST)
        before = host.links()
        name = host_link_name(AttachmentId(FIRST))
        with pytest.raises(NameTaken, match=f"already has a link called {name}"):
            await create_endpoint(daemon, SECOND)
        assert store.find_endpoint(SECOND) is None
        assert host.links() == before
        assert host.altnames(name) == (alternative_name(AttachmentId(FIRST)),)
        await delete_endpoint(daemon, FIRST)
        await daemon.teardowns.wait_tried()
