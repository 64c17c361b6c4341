# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The admin socket: its documents fit `spec/admin`, and an unknown request gets an answer that says why."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_objects, load_validator
from cni_bridge_state import NetworkRecord
from cnm_bridge import __version__
from tests.contract.serving import serving
from tests.kernel.records import NETWORK, endpoint, put
from tests.lab.unix_http import request

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
        await served.store.put_network(
            NetworkRecord(id=NETWORK, configuration="lan", name=None, internal=False, options={})
        )
        for endpoint_id in ids:
            await put(served.store, endpoint(endpoint_id))
        status, document = await ask(served.admin, "/v1/status")
    assert status == 200
    assert load_validator("admin/status")(document) == {
        "engine": {"isUp": False, "identity": None, "rounds": 0},
        "networks": [{"id": NETWORK, "name": None, "configuration": "lan", "internal": False}],
        "endpoints": [{"id": endpoint_id, **SHOWN} for endpoint_id in ids],
        "pendingTeardowns": [],
        "orphans": [],
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
    async with serving(tmp_path) as served:
        await put(served.store, endpoint("e" * 64))
        status, document = await ask(served.admin, f"/v1/endpoints/{'e' * 64}")
    assert status == 200
    described = load_validator("admin/endpoint")(document)
    assert described["plugins"] == [{"type": "bridge", "isAdded": False, "isDeleted": False, "executions": {}}]
    assert described["owned"] == {"reservations": [], "rules": [], "links": []}
    assert (described["containerId"], described["cniVersion"]) == ("e" * 64, "1.0.0")


async def test_an_unknown_endpoint_is_an_error(tmp_path: Path) -> None:
    """The daemon knows full IDs only; the command resolves names."""
    async with serving(tmp_path) as served:
        status, document = await ask(served.admin, "/v1/endpoints/abc")
    assert (status, load_validator("admin/error")(document)["kind"]) == (404, "notFound")
