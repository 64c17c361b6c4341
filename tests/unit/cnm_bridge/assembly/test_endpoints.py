# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Waits of calls for ports: what ends them, and their limit; and that nothing is kept of a removed endpoint."""

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
from cnm_bridge.core.errors import CannotPublish, Interrupted, Refused
from cnm_bridge.core.wire import ProgramExternalConnectivity
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
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
    attachment = replace(RECORD.attachment, capability_args={"portMappings": [HOST_PORT]})
    owner = replace(RECORD, id=OWNER, phase=Phase.DELETING, sandbox_key="/run/other", attachment=attachment)
    for record in (RECORD, owner):
        await store.put_found_endpoint(record)
    daemon = assemble(settings_in(tmp_path), store)
    await daemon.joined.port_publisher.load()
    daemon.teardowns.add(OWNER)  # no worker runs it
    (program,) = (one for one in daemon.methods if one.name == "NetworkDriver.ProgramExternalConnectivity")
    assert callable(program.answer)
    options: JsonObject = {"com.docker.network.portmap": [{**PORT, "HostPort": 8080, "HostPortEnd": 8080}]}
    with pytest.raises(Refused, match=f"published for endpoint {OWNER}"):
        await program.answer({**REFERENCE, "Options": options}, 0)
    (limit_s,) = Recorded.limits
    assert limit_s <= 0


async def test_nothing_is_kept_of_a_removed_endpoint(store: Store, tmp_path: Path) -> None:
    """This also holds if neither Leave nor DeleteEndpoint came before its teardown, as after a crash of dockerd."""
    daemon = assemble(settings_in(tmp_path), store)
    joined = endpoint(
        "e" * 64, capability_args={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    )
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED):
        await store.put_endpoint(replace(joined, phase=phase))
    await daemon.joined.port_publisher.load()
    request = ProgramExternalConnectivity(network_id=joined.network_id, endpoint_id=joined.id, ports=())
    await daemon.joined.unpublished.accept(request, CannotPublish("ports cannot be published"))
    claims, reasons = daemon.joined.port_publisher.claims, daemon.joined.unpublished.reasons
    assert (len(claims.of(joined.id)), len(reasons)) == (1, 1)
    await store.put_endpoint(replace(joined, phase=Phase.DELETING))
    await store.remove_endpoint(joined.id)
    assert (len(claims.of(joined.id)), len(reasons)) == (0, 0)
