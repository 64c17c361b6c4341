# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks that a swarm cannot have are refused in an instance of global scope, with what to change."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject
from cni_bridge_state import NetworkId, PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.wire import CreateNetwork
from cnm_bridge.driver.networks.service import check_global, warn_of_gateways
from cnm_bridge.system.engine import Engine
from tests.answering_engine import answering


def request(*subnets: str, ipv6: bool = False) -> CreateNetwork:
    """Return a request for a network with these subnets."""
    pools = tuple(PoolRecord(subnet=ip_network(subnet), gateway=None) for subnet in subnets)
    return CreateNetwork(network_id=NetworkId("n" * 25), options={}, internal=False, ipv4=True, ipv6=ipv6, pools=pools)


async def check(where: Path, *subnets: str, ipv6: bool = False, swarm: JsonObject | None = None) -> None:
    """Check a request, with an engine that says `swarm` of the swarm."""
    info: JsonObject = {"ServerVersion": "20.10.24", "SecurityOptions": [], "Swarm": swarm}
    async with answering(where / "docker.sock", {"info": info}) as engine:
        await check_global(engine, request(*subnets, ipv6=ipv6))


@pytest.mark.parametrize("swarm", [{"LocalNodeState": "active"}, {"LocalNodeState": "pending"}, None])
async def test_one_subnet_on_a_node_of_a_swarm(tmp_path: Path, swarm: JsonObject | None) -> None:
    """It is accepted; also if the engine does not say whether it is in one."""
    await check(tmp_path, "10.50.0.0/16", swarm=swarm)


async def test_a_host_in_no_swarm(tmp_path: Path) -> None:
    """Engines from 28 on would make such a network."""
    with pytest.raises(Refused, match="this host is in no swarm; run docker swarm init"):
        await check(tmp_path, "10.50.0.0/16", swarm={"LocalNodeState": "inactive"})


async def test_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    """A node that boots gets its networks from the swarm before its API answers."""
    await check_global(Engine(f"unix://{tmp_path}/none", 1.0), request("10.50.0.0/16"))


@pytest.mark.parametrize(
    ("subnets", "ipv6", "message"),
    [
        ((), False, "one subnet, .* and not none"),
        (("10.50.0.0/16", "10.51.0.0/16"), False, "one subnet, .* and not 2"),
        (("10.50.0.0/16", "fd50::/64"), True, "IPv4 addresses only"),
        (("10.50.0.0/16",), True, "without --ipv6"),
    ],
)
async def test_subnets_that_a_swarm_does_not_give(
    tmp_path: Path, subnets: tuple[str, ...], ipv6: bool, message: str
) -> None:
    """Swarm gives one IPv4 address to each container."""
    with pytest.raises(Refused, match=message):
        await check(tmp_path, *subnets, ipv6=ipv6, swarm={"LocalNodeState": "active"})


@pytest.mark.parametrize(("main", "warns"), [({"isGateway": True}, True), ({"isGateway": False}, False), ({}, False)])
def test_a_gateway_on_each_node(main: JsonObject, warns: bool) -> None:
    """One address with several MACs on a network that the nodes share is logged."""
    document: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge", **main}]}
    with capture_logs() as lines:
        warn_of_gateways(NetworkConfigurationList.from_document(document))
    assert [line["event"] for line in lines] == ["network.gateway_on_each_node"] * warns
