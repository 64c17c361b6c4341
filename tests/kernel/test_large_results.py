# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A result that is too large would block all calls while it is processed; it is refused, and nothing stays."""

import asyncio
import json
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state.store import Store
from cni_invoker.errors import BadResult
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Settings
from tests.driver_calls import call
from tests.kernel.test_contention import FIRST, NETWORK, reference, write_plugin


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
    """The error names the plugin and what is too much; the plugin's DEL runs, and no record is left."""
    (tmp_path / "result").write_text(json.dumps({"cniVersion": "1.0.0", **result}))
    (tmp_path / "bin").mkdir()
    write_plugin(tmp_path / "bin" / "many", f'echo "$CNI_COMMAND" >>{tmp_path}/ran; cat {tmp_path}/result')
    (tmp_path / "net.d").mkdir()
    document = {"cniVersion": "1.0.0", "name": "many", "plugins": [{"type": "many"}]}
    (tmp_path / "net.d" / "many.conflist").write_text(json.dumps(document))
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        cni_bin_dirs=(tmp_path / "bin",),
        cni_conf_dirs=(tmp_path / "net.d",),
        docker_host=f"unix://{tmp_path}/no-engine",
    )
    daemon = assemble(settings, store)
    options: JsonObject = {"com.docker.network.generic": {"cni.network": "many"}}
    data: list[JsonObject] = [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
    await call(daemon, "CreateNetwork", {"NetworkID": NETWORK, "Options": options, "IPv4Data": data, "IPv6Data": []})
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        background = tasks.create_task(daemon.teardown.queue.loop.run())
        with pytest.raises(BadResult, match=text) as refused:
            await call(daemon, "CreateEndpoint", {**reference(FIRST), "Interface": interface, "Options": {}})
        background.cancel()
    assert 'plugin type="many" failed (add): bad CNI result' in str(refused.value)
    assert (tmp_path / "ran").read_text().split() == ["ADD", "DEL"]
    assert store.endpoints() == ()
