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

NETWORK, ENDPOINT = "a1" * 32, "e2" * 32
DOCKERD = json.loads(Path(__file__).with_name("dockerd.json").read_text("utf-8"))
"""Requests as moby marshals them (`daemon/libnetwork/drivers/remote/api/api.go`), by call and engine version."""


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
    """The calls are those of moby's remote driver and the handshake: the plugin socket answers Docker only."""
    with methods(tmp_path) as table:
        own = {name for name in table if not name.startswith("IpamDriver.")}
        assert own == {"Plugin.Activate", *(f"NetworkDriver.{name}" for name in DOCKERD)}


@pytest.mark.parametrize(
    ("call", "version", "body"),
    [(call, version, body) for call, bodies in DOCKERD.items() for version, body in bodies.items()],
)
def test_what_dockerd_sends_fits(tmp_path: Path, call: str, version: str, body: JsonObject | None) -> None:
    """Each request of each engine fits the schema of its call; a call without a body has none."""
    assert version
    with methods(tmp_path) as table:
        schema = table[f"NetworkDriver.{call}"].schema
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
            DOCKERD["AllocateNetwork"]["28 swarm"],
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
    ],
)
async def test_calls_without_effect(tmp_path: Path, call: str, body: JsonObject, answer: JsonObject) -> None:
    """Calls about unknown objects, and calls that only other drivers need, have fixed answers."""
    with methods(tmp_path) as table:
        found = table[call].answer
        assert (await found(body, 0) if callable(found) else found) == answer
