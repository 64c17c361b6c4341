# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""When the time of all waits of CreateEndpoint begins."""

from contextlib import nullcontext
from dataclasses import replace
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


@pytest.mark.parametrize("has_ports", [False, True])
async def test_a_slow_plan(monkeypatch: pytest.MonkeyPatch, *, has_ports: bool) -> None:
    """The wait for a network's name has a limit of its own, and leaves the time of the other waits.

    Nothing is asked about ports if none is published.
    """
    steps: list[str] = []

    class Planned:
        @property
        def attachment(self) -> None:
            raise RuntimeError("the end of the test")

    async def plan(*_: object) -> tuple[Planned, SimpleNamespace]:
        steps.append("planned")
        return Planned(), SimpleNamespace(configuration=None)

    async def refuse_early(*_: object) -> None:
        steps.append("not refused")

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
        "joined": SimpleNamespace(unpublished=SimpleNamespace(refuse_early=refuse_early)),
    }
    service = cast("EndpointService", SimpleNamespace(**parts))
    with pytest.raises(RuntimeError, match="the end of the test"):
        await EndpointService.create(service, replace(REQUEST, has_ports=has_ports), None)
    assert steps == ["planned", *(["not refused"] if has_ports else []), "time begins"]
