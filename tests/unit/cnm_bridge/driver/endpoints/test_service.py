# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""When the time of all waits of CreateEndpoint begins."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Final, cast

import pytest

from cni_bridge_state import AttachmentId, EndpointId, NetworkId, RequestedInterface
from cnm_bridge.core.wire.network_driver import CreateEndpoint
from cnm_bridge.driver.endpoints import service as module
from cnm_bridge.driver.endpoints.service import EndpointService
from cnm_bridge.system.scheduling import KeyedLocks

REQUEST: Final = CreateEndpoint(
    network_id=NetworkId("a" * 64), endpoint_id=EndpointId("b" * 64), requested=RequestedInterface(), options={}
)


async def test_a_slow_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a network's name has a limit of its own, and leaves the time of the other waits."""
    steps: list[str] = []

    class Planned:
        @property
        def attachment(self) -> None:
            raise RuntimeError("the end of the test")

    async def plan(*_: object) -> tuple[Planned, SimpleNamespace]:
        steps.append("planned")
        return Planned(), SimpleNamespace(configuration=None)

    def wait_deadline() -> float:
        steps.append("time begins")
        return 0.0

    monkeypatch.setattr(module, "wait_deadline", wait_deadline)
    parts = {
        "attempts": SimpleNamespace(under_way=nullcontext),
        "locks": KeyedLocks[EndpointId](),
        "_attachments": KeyedLocks[AttachmentId](),
        "store": SimpleNamespace(find_endpoint=lambda _: None),
        "planner": SimpleNamespace(plan=plan),
    }
    service = cast("EndpointService", SimpleNamespace(**parts))
    with pytest.raises(RuntimeError, match="the end of the test"):
        await EndpointService.create(service, REQUEST, None)
    assert steps == ["planned", "time begins"]
