# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Leave, DeleteEndpoint and RevokeExternalConnectivity do not wait for a plugin that publishes the endpoint's ports."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import Phase
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.errors import Interrupted
from tests.driver_calls import call
from tests.plugins import FakePlugins
from tests.records import endpoint, settings_in

RECORD = replace(
    endpoint("e" * 64, plugins=[{"type": "bridge"}, {"type": "publisher", "capabilities": {"portMappings": True}}]),
    result={"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/16"}]},
    sandbox_key="/run/docker/netns/none",
)
REFERENCE: JsonObject = {"NetworkID": RECORD.network_id, "EndpointID": RECORD.id}
PORT: JsonObject = {"Proto": 6, "IP": "", "Port": 80, "HostIP": "", "HostPort": 0, "HostPortEnd": 0}


@pytest.mark.parametrize(
    ("name", "phase"),
    [("DeleteEndpoint", Phase.DELETING), ("Leave", Phase.READY), ("RevokeExternalConnectivity", Phase.JOINED)],
)
async def test_a_hanging_publisher_is_killed(store: Store, tmp_path: Path, name: str, phase: Phase) -> None:
    """The call succeeds; the call that waited for the ports is answered with the reason why none is published."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("publisher", DEL={"wait_for": str(tmp_path / "never")})
    settings = settings_in(tmp_path, cni_bin_dirs=(plugins.directory,))
    daemon = assemble(settings, store)

    async def leave() -> None:
        while ("publisher", "DEL") not in plugins.calls:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)
        await call(daemon, name, REFERENCE)

    for step in (Phase.PENDING, Phase.READY, Phase.JOINED):
        await store.put_endpoint(replace(RECORD, phase=step))
    options: JsonObject = {"com.docker.network.portmap": [PORT]}
    published, left = await asyncio.gather(
        call(daemon, "ProgramExternalConnectivity", {**REFERENCE, "Options": options}), leave(), return_exceptions=True
    )
    assert isinstance(published, Interrupted)
    assert left is None
    record = store.find_endpoint(RECORD.id)
    assert record is not None
    assert record.phase is phase
