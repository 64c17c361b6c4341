# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of calls equals moby's: none is missing, each accepts what dockerd sends, and answers what it decodes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, load_validator
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Scope, Settings
from cnm_bridge.server.rpc import Method
from tests.contract.serving import serving

NETWORK, ENDPOINT = "a1" * 32, "e2" * 32
DOCKERD = {
    f"{driver}.{call}": bodies
    for driver, file in (("NetworkDriver", "dockerd.json"), ("IpamDriver", "dockerd_ipam.json"))
    for call, bodies in json.loads(Path(__file__).with_name(file).read_text("utf-8")).items()
}
"""Requests as moby marshals them (`daemon/libnetwork/*/remote/api/api.go`), by call and engine version."""


@contextmanager
def methods(where: Path) -> Iterator[dict[str, Method]]:
    """The calls, by name, of a daemon that keeps its files below `where`."""
    store = Store.open(where / "state")
    try:
        daemon = assemble(Settings(cni_conf_dirs=(where,), run_dir=where / "run"), store)
        yield {method.name: method for method in daemon.methods}
    finally:
        store.close()


def test_the_scope_of_an_instance(tmp_path: Path) -> None:
    """An instance of its own may have the scope global; names are global in any case."""
    store = Store.open(tmp_path / "state")
    try:
        daemon = assemble(Settings(cni_conf_dirs=(tmp_path,), run_dir=tmp_path / "run", scope=Scope.GLOBAL), store)
        answers = {method.name: method.answer for method in daemon.methods}
    finally:
        store.close()
    wanted = {"Scope": "global", "ConnectivityScope": "global", "GwAllocChecker": True}
    assert answers["NetworkDriver.GetCapabilities"] == wanted


def test_every_call_exists(tmp_path: Path) -> None:
    """The calls are those of moby's remote drivers and the handshake: the plugin socket answers Docker only."""
    with methods(tmp_path) as table:
        assert set(table) == {"Plugin.Activate", *DOCKERD}


@pytest.mark.parametrize(
    ("call", "version", "body"),
    [(call, version, body) for call, bodies in DOCKERD.items() for version, body in bodies.items()],
)
def test_what_dockerd_sends_fits(tmp_path: Path, call: str, version: str, body: JsonObject | None) -> None:
    """Each request of each engine fits the schema of its call; a call without a body has none."""
    assert version
    with methods(tmp_path) as table:
        schema = table[call].schema
    assert (schema is None) == (body is None)
    if schema:
        load_validator(schema)(body)


@pytest.mark.parametrize(
    ("call", "body", "answer"),
    [
        ("Plugin.Activate", {}, {"Implements": ["NetworkDriver", "IpamDriver"]}),
        (
            "NetworkDriver.GetCapabilities",
            {},
            {"Scope": "local", "ConnectivityScope": "global", "GwAllocChecker": True},
        ),
        ("NetworkDriver.GwAllocCheck", {"Options": {}}, {"SkipIPv4": False, "SkipIPv6": False}),
        ("NetworkDriver.AllocateNetwork", {"NetworkID": NETWORK}, {"Options": {}}),
        (
            "NetworkDriver.AllocateNetwork",
            DOCKERD["NetworkDriver.AllocateNetwork"]["28 swarm"],
            {"Options": {"cni.network": "lan", "cni.ifname-prefix": "lan"}},
        ),
        ("NetworkDriver.FreeNetwork", {"NetworkID": NETWORK}, {}),
        ("NetworkDriver.EndpointOperInfo", {"NetworkID": NETWORK, "EndpointID": ENDPOINT}, {"Value": {}}),
        ("NetworkDriver.ProgramExternalConnectivity", {"NetworkID": NETWORK, "EndpointID": ENDPOINT}, {}),
        ("NetworkDriver.RevokeExternalConnectivity", {"NetworkID": NETWORK, "EndpointID": ENDPOINT}, {}),
        ("NetworkDriver.DiscoverNew", {"DiscoveryType": 1, "DiscoveryData": {}}, {}),
        ("NetworkDriver.DiscoverDelete", {"DiscoveryType": 1, "DiscoveryData": {}}, {}),
        ("NetworkDriver.Leave", {"NetworkID": NETWORK, "EndpointID": ENDPOINT}, {}),
        ("NetworkDriver.DeleteEndpoint", {"NetworkID": NETWORK, "EndpointID": ENDPOINT}, {}),
        ("NetworkDriver.DeleteNetwork", {"NetworkID": NETWORK}, {}),
        ("IpamDriver.GetCapabilities", {}, {"RequiresMACAddress": False, "RequiresRequestReplay": False}),
        (
            "IpamDriver.GetDefaultAddressSpaces",
            {},
            {"LocalDefaultAddressSpace": "CniBridgeLocal", "GlobalDefaultAddressSpace": "CniBridgeGlobal"},
        ),
        ("IpamDriver.ReleasePool", DOCKERD["IpamDriver.ReleasePool"]["all"], {}),
        ("IpamDriver.ReleaseAddress", DOCKERD["IpamDriver.ReleaseAddress"]["all"], {}),
    ],
)
async def test_calls_without_effect(tmp_path: Path, call: str, body: JsonObject, answer: JsonObject) -> None:
    """Calls about unknown objects, and calls that only other drivers need, have fixed answers."""
    with methods(tmp_path) as table:
        found = table[call].answer
        assert (await found(body, 0) if callable(found) else found) == answer


POOL = "lan,10.1.2.0/24,,5f0c81aa"


@pytest.mark.parametrize(
    ("call", "body", "error"),
    [
        ("RequestPool", b"", "the request has no body, as when Docker repeats a call"),
        ("RequestPool", b"{", "the request is invalid"),
        (
            "RequestPool",
            json.dumps(DOCKERD["IpamDriver.RequestPool"]["28, no options"]).encode(),
            "--ipam-opt cni.ipam=NAME",
        ),
        (
            "RequestPool",
            json.dumps(DOCKERD["IpamDriver.RequestPool"]["20.10"]).encode(),
            "cni.ipam: there is no IPAM section lan in",
        ),
        ("RequestPool", b'{"AddressSpace": "x", "Pool": "10.1.2.0/99"}', "RequestPool: Pool: "),
        (
            "RequestPool",
            json.dumps(DOCKERD["IpamDriver.RequestPool"]["swarm"]).encode(),
            "make the network without --ipam-driver",
        ),
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
async def test_errors_of_the_ipam_driver(tmp_path: Path, call: str, body: bytes, error: str) -> None:
    """Docker reads the text of an error under `Error`, not under that of NetworkDriver; nothing is stored."""
    async with serving(tmp_path) as served:
        status, answer = await served.post(f"IpamDriver.{call}", body)
        assert status == 200
        assert set(answer) == {"Error"}
        assert error in str(answer["Error"])
        assert served.records() == ()
