# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is logged of an endpoint's options is logged once for each network."""

from pathlib import Path

from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state import EndpointId, NetworkId, RequestedInterface
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Settings
from cnm_bridge.core.wire.network_driver import CreateEndpoint, CreateNetwork, NetworkReference
from tests.plugins import FakePlugins

LIST: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge"}]}
ONE, OTHER = NetworkId("a1" * 32), NetworkId("b2" * 32)


async def test_an_unknown_option_is_logged_once_for_each_network(tmp_path: Path) -> None:
    """A tool may add its own to each container; a network that is made again begins anew."""
    FakePlugins(tmp_path / "bin").install("bridge")
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / "lan.conflist").write_bytes(render_json(LIST))
    store = Store.open(tmp_path / "state")
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        cni_conf_dirs=(tmp_path / "net.d",),
        cni_bin_dirs=(tmp_path / "bin",),
        docker_host=f"unix://{tmp_path}/none",
    )
    networks = assemble(settings, store).networks

    async def create(network_id: NetworkId) -> None:
        options = {"cni.network": "lan"}
        await networks.service.create(
            CreateNetwork(network_id=network_id, options=options, internal=False, pools=(), ipv4=True, ipv6=False),
            None,
        )

    async def plan(network_id: NetworkId) -> None:
        await networks.planner.plan(
            CreateEndpoint(
                network_id=network_id,
                endpoint_id=EndpointId("e" * 64),
                requested=RequestedInterface(),
                options={"com.example.setting": "1"},
            ),
            None,
        )

    with capture_logs() as logs:
        for network_id in (ONE, OTHER):
            await create(network_id)
            for _ in range(3):
                await plan(network_id)
        await networks.service.delete(NetworkReference(network_id=ONE))
        await create(ONE)
        await plan(ONE)
    assert [one["event"] for one in logs].count("endpoint.option_unknown") == 3
    store.close()
