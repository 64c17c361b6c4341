# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of IpamDriver calls equals moby's; errors have the key `Error`, which is not that of NetworkDriver."""

import json
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, load_validator
from tests.contract.serving import serving
from tests.contract.test_network_driver import methods

DOCKERD = json.loads(Path(__file__).with_name("dockerd_ipam.json").read_text("utf-8"))
"""Requests as moby marshals them (`daemon/libnetwork/ipams/remote/api/api.go`), by call and engine version."""

POOL = "lan,10.1.2.0/24,,5f0c81aa"


def test_every_call_exists(tmp_path: Path) -> None:
    """The calls are those of moby's remote IPAM driver."""
    with methods(tmp_path) as table:
        own = {name for name in table if name.startswith("IpamDriver.")}
        assert own == {f"IpamDriver.{name}" for name in DOCKERD}


@pytest.mark.parametrize(
    ("call", "version", "body"),
    [(call, version, body) for call, bodies in DOCKERD.items() for version, body in bodies.items()],
)
def test_what_dockerd_sends_fits(tmp_path: Path, call: str, version: str, body: JsonObject | None) -> None:
    """Each request of each engine fits the schema of its call; a call without a body has none."""
    assert version
    with methods(tmp_path) as table:
        schema = table[f"IpamDriver.{call}"].schema
    assert (schema is None) == (body is None)
    if schema:
        load_validator(schema)(body)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("GetCapabilities", {"RequiresMACAddress": False, "RequiresRequestReplay": False}),
        (
            "GetDefaultAddressSpaces",
            {"LocalDefaultAddressSpace": "CniBridgeLocal", "GlobalDefaultAddressSpace": "CniBridgeGlobal"},
        ),
        ("ReleasePool", {}),
        ("ReleaseAddress", {}),
    ],
)
async def test_calls_without_effect(tmp_path: Path, call: str, answer: JsonObject) -> None:
    """Docker may release what is unknown, and release it twice."""
    body = DOCKERD[call]["all"] or {}
    with methods(tmp_path) as table:
        found = table[f"IpamDriver.{call}"].answer
        assert (await found(body, 0) if callable(found) else found) == answer


@pytest.mark.parametrize(
    ("call", "body", "error"),
    [
        ("RequestPool", b"", "the request has no body, as when Docker repeats a call"),
        ("RequestPool", b"{", "the request is invalid"),
        ("RequestPool", json.dumps(DOCKERD["RequestPool"]["28, no options"]).encode(), "--ipam-opt cni.ipam=NAME"),
        (
            "RequestPool",
            json.dumps(DOCKERD["RequestPool"]["20.10"]).encode(),
            "cni.ipam: there is no IPAM section lan in",
        ),
        ("RequestPool", b'{"AddressSpace": "x", "Pool": "10.1.2.0/99"}', "RequestPool: Pool: "),
        ("RequestPool", json.dumps(DOCKERD["RequestPool"]["swarm"]).encode(), "make the network without --ipam-driver"),
        ("RequestAddress", b'{"PoolID": "default/10.0.0.0", "Address": ""}', "is not one of cni-bridge"),
        ("RequestAddress", json.dumps({"PoolID": POOL, "Address": "10.1.2.x"}).encode(), "Address: "),
        (
            "RequestAddress",
            json.dumps({"PoolID": POOL, "Address": ""}).encode(),
            "cni.ipam: there is no IPAM section lan in",
        ),
        ("RequestAddress", json.dumps({"PoolID": "a b", "Address": ""}).encode(), "the request is invalid: PoolID"),
    ],
)
async def test_errors(tmp_path: Path, call: str, body: bytes, error: str) -> None:
    """Docker reads the text of an error under `Error`; nothing is stored."""
    async with serving(tmp_path) as served:
        status, answer = await served.post(f"IpamDriver.{call}", body)
        assert status == 200
        assert set(answer) == {"Error"}
        assert error in str(answer["Error"])
        assert served.records() == ()
