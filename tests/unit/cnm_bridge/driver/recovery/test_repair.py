# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Rounds in which an endpoint cannot be rebuilt are quiet, and rebuild it as soon as that is possible."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final, cast

from structlog.testing import capture_logs

from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import EngineEndpoint, EngineNetwork
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.recovery.leftovers import RemoveLeftovers
from cnm_bridge.driver.recovery.rebuild_endpoint import LostRecords, RebuildEndpoint
from cnm_bridge.driver.recovery.repair import Comparison, Differences, Repair
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.scheduling import KeyedLocks

ENDPOINT: Final = EngineEndpoint(id="e1", name="web", address=None, address_ipv6=None, mac=None, container_id="b1" * 32)
NETWORK: Final = EngineNetwork(
    id="n1", name="blue", driver="cni-bridge", internal=False, options={}, pools=(), endpoints={"e1": ENDPOINT}
)


@dataclass
class Host:
    """An engine that has an endpoint without a record, and perhaps knows its sandbox."""

    sandbox: str | None = None
    rebuilt: list[str] = field(default_factory=list)
    comparisons: int = 0

    async def find_differences(self) -> Differences:
        """Compare."""
        self.comparisons += 1
        unknown = {EndpointId("e1"): (NETWORK, ENDPOINT)}
        return Differences(unknown={} if self.rebuilt else unknown)

    async def find_sandbox(self, container_id: str, endpoint_id: str) -> str | None:
        """Answer as the engine."""
        assert (container_id, endpoint_id) == (ENDPOINT.container_id, ENDPOINT.id)
        return self.sandbox

    async def without_in_use(self, records: object) -> tuple[object, ...]:
        """Find nothing to tear down."""
        assert records == ()
        return ()

    async def resolve(self, network_id: str) -> tuple[object, object]:
        """Find the network for a record."""
        self.rebuilt.append(network_id)
        return object(), object()


async def test_an_endpoint_whose_sandbox_is_unknown() -> None:
    """Only the first of such rounds compares twice and warns; the first with the sandbox rebuilds it."""
    host = Host()
    rebuild = RebuildEndpoint(
        store=cast("Store", SimpleNamespace(find_endpoint=lambda _: object())),
        planner=cast("EndpointPlanner", host),
        engine=cast("Engine", host),
        locks=KeyedLocks(),
        lost_records=cast("LostRecords", None),
    )
    repair = Repair(
        comparison=cast("Comparison", host),
        liveness=cast("Liveness", host),
        networks=cast("NetworkService", None),
        teardowns=cast("TeardownQueue", None),
        rebuild_endpoint=rebuild,
        remove_leftovers=cast("RemoveLeftovers", None),
        grace_s=0.0,
    )
    with capture_logs() as logged:
        comparisons = []
        for _ in range(3):
            await repair()
            comparisons.append(host.comparisons)
    assert comparisons == [2, 3, 4]
    (warning,) = logged
    assert warning["event"] == "endpoint.not_rebuilt"
    assert warning["error"] == "the engine does not know the sandbox of container web"
    host.sandbox = "/var/run/docker/netns/1"
    await repair()
    await repair()
    assert (host.rebuilt, host.comparisons) == (["n1"], 6)
