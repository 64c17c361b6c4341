# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Waiting for a port that another endpoint holds has one limit, that of Docker."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from tests.unit.cnm_bridge.assembly.test_interrupted_publishing import PORT, RECORD, REFERENCE

OWNER = EndpointId("d" * 64)
HOST_PORT: JsonObject = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


class Recorded(DeadEndpoints):
    """Records the time that each search for dead endpoints has."""

    limits: ClassVar[list[float]] = []

    async def tear_down(self, endpoints: Iterable[EndpointRecord], until: float) -> bool:
        """Search for dead endpoints."""
        self.limits.append(until - asyncio.get_running_loop().time())
        return await super().tear_down(endpoints, until)


async def test_both_waits_have_one_limit(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the teardown of the holder uses up the limit, no time is left to check whether another holder is dead."""
    monkeypatch.setattr("cnm_bridge.assembly.DeadEndpoints", Recorded)
    monkeypatch.setattr("cnm_bridge.driver.endpoints.attempts.WAIT_LIMIT_S", 0.1)
    settings = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/none")
    attachment = replace(RECORD.attachment, capability_args={"portMappings": [HOST_PORT]})
    owner = replace(RECORD, id=OWNER, phase=Phase.DELETING, sandbox_key="/run/other", attachment=attachment)
    for record in (RECORD, owner):
        await store.put_found_endpoint(record)
    daemon = assemble(settings, store)
    await daemon.port_publisher.load()
    daemon.teardowns.add(OWNER)  # no worker runs it
    (program,) = (one for one in daemon.methods if one.name == "NetworkDriver.ProgramExternalConnectivity")
    assert callable(program.answer)
    options: JsonObject = {"com.docker.network.portmap": [{**PORT, "HostPort": 8080, "HostPortEnd": 8080}]}
    with pytest.raises(Refused, match=f"published for endpoint {OWNER}"):
        await program.answer({**REFERENCE, "Options": options}, 0)
    (limit_s,) = Recorded.limits
    assert limit_s <= 0
