# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The admin socket: its documents fit `spec/admin`, and an unknown request gets an answer that says why."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, as_object, get_objects, load_validator, parse_json, render_json
from cni_bridge_state import Phase
from cnm_bridge import __version__
from tests.contract.serving import serving
from tests.lab.unix_http import request
from tests.records import NETWORK, endpoint, network_record, put

SHOWN: JsonObject = {
    "networkId": NETWORK,
    "phase": "joined",
    "mode": "move",
    "configuration": "lan",
    "addresses": [],
    "sandboxKey": None,
    "notPublished": None,
}


async def ask(path: Path, target: str, verb: str = "GET") -> tuple[int, JsonValue]:
    """Make a request; return status and document."""
    return await asyncio.to_thread(request, path, verb, target)


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_status_has_all_networks_and_endpoints(tmp_path: Path, count: int) -> None:
    """The document is one JSON object, however many endpoints there are."""
    ids = [f"{number:064x}" for number in range(count)]
    async with serving(tmp_path) as served:
        await served.store.put_network(network_record(name=None))
        for endpoint_id in ids:
            await put(served.store, endpoint(endpoint_id))
        status, document = await ask(served.admin, "/v1/status")
    assert status == 200
    shown = as_object(load_validator("admin/status")(document), "the status")
    assert shown == {
        "runningPlugins": [],
        "engine": {"isUp": None, "identity": None, "rounds": 0},
        "networks": [
            {
                "id": NETWORK,
                "name": None,
                "configuration": "lan",
                "internal": False,
                "outdatedEndpoints": 0,
            }
        ],
        "lists": [],
        "endpoints": [{"id": endpoint_id, **SHOWN} for endpoint_id in ids],
        "pendingTeardowns": [],
        "untriedTeardowns": [],
        "dhcp": [],
        "pools": [],
        "pendingReleases": [],
    }


async def test_the_version_is_answered_without_a_version(tmp_path: Path) -> None:
    """A program of any version can ask a daemon of any version for it."""
    async with serving(tmp_path) as served:
        status, document = await ask(served.admin, "/version")
    assert (status, document) == (200, {"version": __version__, "api": [1]})
    load_validator("admin/version")(document)


@pytest.mark.parametrize(("verb", "target"), [("GET", "/v2/status"), ("POST", "/v1/status"), ("GET", "/v1/nothing")])
async def test_an_unknown_request_is_an_error_with_the_daemons_version(tmp_path: Path, verb: str, target: str) -> None:
    """So a newer or an older program can say which of both has to be replaced."""
    async with serving(tmp_path) as served:
        status, document = await ask(served.admin, target, verb)
    answer = load_validator("admin/error")(document)
    assert (status, answer["kind"], answer["version"]) == (404, "unknownRequest", __version__)
    assert f"{verb} {target}" in str(answer["error"])


async def test_dockers_calls_are_not_answered_there(tmp_path: Path) -> None:
    """And the plugin socket answers no request of an operator."""
    async with serving(tmp_path) as served:
        status, _ = await ask(served.admin, "/Plugin.Activate", "POST")
        assert status == 404
        assert (await served.post("CniBridge.Status", b""))[0] == 404


async def test_the_list_of_endpoints_has_ports_and_times(tmp_path: Path) -> None:
    """The document fits its schema; what is unknown is null."""
    port: JsonObject = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    made = endpoint("e" * 64)
    published = replace(made.attachment, capability_args={"portMappings": [port]})
    async with serving(tmp_path) as served:
        await put(served.store, endpoint("d" * 64))
        await put(served.store, replace(made, attachment=published, created_at=1_700_000_000))
        status, document = await ask(served.admin, "/v1/endpoints")
    assert status == 200
    first, second = get_objects(load_validator("admin/endpoints")(document), "endpoints")
    assert (first["id"], first["ports"], first["createdAt"], first["mac"]) == ("d" * 64, [], None, None)
    assert (second["id"], second["ports"], second["createdAt"]) == ("e" * 64, [port], 1_700_000_000)


async def test_an_endpoint_is_described(tmp_path: Path) -> None:
    """The document fits its schema, and has the last execution of each plugin."""
    made = endpoint("e" * 64)
    async with serving(tmp_path) as served:
        await put(served.store, replace(made, attachment=replace(made.attachment, mode_reason="cni.attach=move")))
        status, document = await ask(served.admin, f"/v1/endpoints/{'e' * 64}")
    assert status == 200
    described = load_validator("admin/endpoint")(document)
    assert described["plugins"] == [{"type": "bridge", "isAdded": False, "isDeleted": False, "executions": {}}]
    assert described["owned"] == {"reservations": [], "rules": [], "links": []}
    assert (described["mode"], described["modeReason"]) == ("move", "cni.attach=move")
    assert (described["containerId"], described["cniVersion"]) == ("e" * 64, "1.0.0")


async def test_an_unknown_endpoint_is_an_error(tmp_path: Path) -> None:
    """The daemon knows full IDs only; the command resolves names."""
    async with serving(tmp_path) as served:
        status, document = await ask(served.admin, "/v1/endpoints/abc")
    assert (status, load_validator("admin/error")(document)["kind"]) == (404, "notFound")


async def lines(path: Path, target: str) -> list[JsonObject]:
    """Return the events that a request is answered with."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    found = [line for line in answer.split(b"\r\n") if line.startswith(b"{")]
    return [load_validator("admin/event")(parse_json(line)) for part in found for line in part.splitlines()]


async def test_the_last_events_are_shown(tmp_path: Path) -> None:
    """A call, its IDs and its error; as many as were requested."""
    async with serving(tmp_path) as served:
        await served.post("Plugin.Activate", b"")
        await served.post("NetworkDriver.DeleteNetwork", b'{"NetworkID": "%s"}' % NETWORK.encode())
        await served.post("NetworkDriver.DeleteNetwork", b"{}")
        found = await lines(served.admin, "/v1/events?last=2")
    assert [(one["event"], one["rpc"], one["networkId"]) for one in found] == [
        ("rpc.answered", "NetworkDriver.DeleteNetwork", NETWORK),
        ("rpc.refused", "NetworkDriver.DeleteNetwork", None),
    ]
    assert "NetworkID" in str(found[1]["error"])


async def test_events_are_followed_until_the_reader_leaves(tmp_path: Path) -> None:
    """They arrive while the connection is open; the daemon forgets a reader that has closed it."""
    async with serving(tmp_path) as served, asyncio.timeout(30):
        before = served.journal.listeners
        reader, writer = await asyncio.open_unix_connection(served.admin)
        writer.write(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.TaskGroup() as tasks:
            arrived = tasks.create_task(reader.readuntil(b"}\n"))
            while not arrived.done():
                await served.post("Plugin.Activate", b"")
        assert b'"rpc":"Plugin.Activate"' in arrived.result()
        assert served.journal.listeners == before + 1
        writer.write_eof()
        await reader.read()  # the end of the connection
        assert served.journal.listeners == before
        writer.close()


async def test_the_number_of_events_must_be_a_number(tmp_path: Path) -> None:
    """Anything else is refused."""
    async with serving(tmp_path) as served:
        status, document = await ask(served.admin, "/v1/events?last=-1")
    assert (status, load_validator("admin/error")(document)["kind"]) == (400, "badRequest")


async def test_the_state_is_that_of_export(tmp_path: Path) -> None:
    """So it can be saved without stopping the daemon."""
    async with serving(tmp_path) as served:
        await put(served.store, endpoint("e" * 64))
        status, document = await ask(served.admin, "/v1/state")
        assert (status, document) == (200, parse_json(render_json(served.store.export_document())))
    load_validator("state/export")(document)


async def test_nothing_is_left(tmp_path: Path) -> None:
    """An unknown address or teardown is an error, and changes nothing."""
    async with serving(tmp_path) as served:
        status, document = await ask(served.admin, "/v1/cleanup")
        assert status == 200
        assert load_validator("admin/cleanup")(document)["unclaimedAddresses"] == []
        for target in (f"/v1/addresses/{'0' * 64}/release", f"/v1/retry/{'e' * 64}"):
            status, document = await ask(served.admin, target, "POST")
            assert (status, load_validator("admin/error")(document)["kind"]) == (404, "notFound")
        status, document = await ask(served.admin, "/v1/retry", "POST")
        assert (status, load_validator("admin/cleanup")(document)["pendingTeardowns"]) == (200, [])


async def test_an_endpoint_without_a_sandbox_differs(tmp_path: Path) -> None:
    """Its link is missing; where the sandbox is not known, that is a note; an unjoined endpoint is not checked."""
    async with serving(tmp_path) as served:
        await put(served.store, replace(endpoint("e" * 64), sandbox_key="/nowhere/netns/1"))
        await put(served.store, endpoint("c" * 64))
        await put(served.store, endpoint("d" * 64, Phase.READY))
        _, joined = await ask(served.admin, f"/v1/endpoints/{'e' * 64}/check")
        _, unknown = await ask(served.admin, f"/v1/endpoints/{'c' * 64}/check")
        _, ready = await ask(served.admin, f"/v1/endpoints/{'d' * 64}/check")
    (finding,) = get_objects(load_validator("admin/check")(joined), "findings")
    assert finding == {"about": "link", "what": "it is not in the sandbox /nowhere/netns/1"}
    assert load_validator("admin/check")(unknown)["findings"] == []
    assert "its sandbox is not known" in str(load_validator("admin/check")(unknown)["notes"])
    assert load_validator("admin/check")(ready)["findings"] == []
    assert "only joined" in str(load_validator("admin/check")(ready)["notes"])
