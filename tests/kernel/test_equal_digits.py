# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Two endpoints whose IDs begin with the same digits: the second is refused, and the first is unchanged."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state import AttachmentId, EndpointId
from cni_bridge_state.store import Store
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.link_state import NameTaken
from cnm_bridge.core.naming import alternative_name, host_link_name
from cnm_bridge.core.settings import Settings
from tests.driver_calls import call
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import find_plugins

NETWORK = "b" * 64
FIRST = EndpointId("0123456789a" + "1" * 53)
SECOND = EndpointId("0123456789a" + "2" * 53)
LIMIT_S = 60.0


async def create(daemon: Daemon, endpoint_id: EndpointId) -> None:
    """Make an endpoint."""
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    reference = {"NetworkID": NETWORK, "EndpointID": endpoint_id}
    await call(daemon, "CreateEndpoint", {**reference, "Interface": interface, "Options": {}})


@pytest.fixture
async def daemon(store: Store, tmp_path: Path) -> AsyncIterator[Daemon]:
    """The daemon's objects, with a network on the plugin `ptp`."""
    conf_dir = tmp_path / "net.d"
    conf_dir.mkdir()
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}]]}
    document: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "ptp", "ipam": ipam}]}
    conf_dir.joinpath("lan.conflist").write_bytes(render_json(document))
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        cni_bin_dirs=(find_plugins("machine").directory,),
        cni_conf_dirs=(conf_dir,),
        docker_host=f"unix://{tmp_path}/no-engine",
    )
    daemon = assemble(settings, store)
    generic: JsonObject = {"com.docker.network.generic": {"cni.network": "lan"}}
    data: list[JsonObject] = [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        background = tasks.create_task(daemon.teardown.queue.loop.run())
        network: JsonObject = {"NetworkID": NETWORK, "Options": generic, "IPv4Data": [*data], "IPv6Data": []}
        await call(daemon, "CreateNetwork", network)
        yield daemon
        for record in store.endpoints():
            await call(daemon, "DeleteEndpoint", {"NetworkID": NETWORK, "EndpointID": record.id})
        await daemon.teardown.queue.wait_tried()
        background.cancel()


async def test_the_second_endpoint_is_refused(daemon: Daemon, store: Store, host: Namespace) -> None:
    """CreateEndpoint fails because the name is taken; the first endpoint's link stays in the host namespace."""
    await create(daemon, FIRST)
    before = host.links()
    name = host_link_name(AttachmentId(FIRST))
    with pytest.raises(NameTaken, match=f"already has a link called {name}"):
        await create(daemon, SECOND)
    assert store.find_endpoint(SECOND) is None
    assert host.links() == before
    assert host.altnames(name) == (alternative_name(AttachmentId(FIRST)),)
