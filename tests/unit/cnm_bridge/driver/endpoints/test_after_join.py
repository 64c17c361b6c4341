# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports that the previous run was asked for and had not published, and those whose plugin is killed."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.assembly import assemble
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.core.wire import EndpointReference, ProgramExternalConnectivity
from cnm_bridge.driver.endpoints.after_join import JoinedEndpoints
from tests.plugins import FakePlugins
from tests.records import endpoint, put, settings_in
from tests.unit.cnm_bridge.core.planning.port_requests import request

ONE, OTHER = EndpointId("1" * 64), EndpointId("2" * 64)
PUBLISHING: Sequence[JsonObject] = ({"type": "main"}, {"type": "publisher", "capabilities": {"portMappings": True}})


def asked(endpoint_id: EndpointId) -> EndpointRecord:
    """Return an endpoint for which a port was requested."""
    return replace(
        endpoint(endpoint_id, plugins=PUBLISHING), requested_ports=(request(80),), sandbox_key="/run/docker/netns/none"
    )


async def complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *records: EndpointRecord, how: Exception | None = None
) -> list[EndpointId]:
    """Start with some records; return whose ports are published. Those of `ONE` fail with an error, if there is one."""
    published: list[EndpointId] = []

    async def program(_: JoinedEndpoints, request: ProgramExternalConnectivity) -> None:
        assert request.ports
        if request.endpoint_id == ONE and how is not None:
            if isinstance(how, TimeoutError):
                await asyncio.Event().wait()
            raise how
        published.append(request.endpoint_id)

    monkeypatch.setattr(JoinedEndpoints, "program_external_connectivity", program)
    settings = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/none")
    store = Store.open(settings.state_dir)
    for record in records:
        await put(store, record)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(assemble(settings, store).joined.complete_requests())
        for _ in range(10):
            await asyncio.sleep(0.01)
        task.cancel()
    store.close()
    return published


async def test_only_what_was_requested_of_joined_endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that has left its container, or for which nothing was requested, publishes nothing."""
    records = (asked(ONE), replace(asked(OTHER), phase=Phase.READY), endpoint("3" * 64))
    assert await complete(tmp_path, monkeypatch, *records) == [ONE]


@pytest.mark.parametrize(
    ("how", "events"),
    [
        (Refused("the port is taken"), ["endpoint.ports_not_published"]),
        (RecursionError("a bug"), ["ports.bug"]),
        (TimeoutError("it hangs"), []),
    ],
    ids=str,
)
async def test_no_endpoint_waits_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Exception, events: list[str]
) -> None:
    """A refusal or a bug is logged; a plugin may hang."""
    with capture_logs() as logs:
        assert await complete(tmp_path, monkeypatch, asked(ONE), asked(OTHER), how=how) == [OTHER]
    assert [one["event"] for one in logs] == events


@pytest.mark.parametrize(
    ("publisher", "is_published", "verbs"),
    [
        ({"ADD": [{"signal": 9}, {"passthrough": True}]}, True, ["DEL", "ADD", "DEL", "DEL", "ADD"]),
        ({"ADD": {"signal": 9}}, False, ["DEL", "ADD", "DEL", "DEL", "ADD", "DEL"]),
        ({"DEL": {"signal": 9}}, False, ["DEL", "DEL"]),
    ],
    ids=["once", "always", "in DEL"],
)
async def test_a_plugin_that_is_killed_while_it_publishes(
    tmp_path: Path, store: Store, publisher: JsonObject, verbs: list[str], *, is_published: bool
) -> None:
    """Its ADD is undone and runs once more: a running container whose other network is disconnected keeps its ports."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("publisher", **publisher)
    attached = endpoint(ONE, plugins=PUBLISHING)
    await put(store, replace(attached, result={"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/16"}]}))
    joined = assemble(settings_in(tmp_path, cni_bin_dirs=(plugins.directory,)), store).joined
    call = ProgramExternalConnectivity(network_id=attached.network_id, endpoint_id=ONE, ports=(request(80),))
    with nullcontext() if is_published else pytest.raises(PluginFailed, match="SIGKILL"):
        await joined.program_external_connectivity(call)
    assert [verb for _, verb in plugins.calls if verb != "VERSION"] == verbs
    assert ("portMappings" in store.get_endpoint(ONE).attachment.capability_args) is is_published


async def test_ports_that_cannot_be_published_are_remembered(tmp_path: Path, store: Store) -> None:
    """The next run knows them as well, until Docker revokes them."""
    await put(store, endpoint(ONE))
    call = ProgramExternalConnectivity(network_id=endpoint(ONE).network_id, endpoint_id=ONE, ports=(request(80),))
    await assemble(settings_in(tmp_path), store).joined.program_external_connectivity(call)
    restarted = assemble(settings_in(tmp_path), store).joined
    await restarted.complete_requests()
    assert "no plugin after its first with the capability portMappings" in restarted.unpublished.reasons[ONE]
    await restarted.revoke_external_connectivity(EndpointReference(network_id=call.network_id, endpoint_id=ONE))
    assert (restarted.unpublished.reasons, store.get_endpoint(ONE).requested_ports) == ({}, ())
