# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who has which ports is known from the records, and forgotten with them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import Limits, Runtime
from cnm_bridge.kernel import HostPorts
from cnm_bridge.lifecycle import PortClaims, Publishing
from cnm_bridge.lifecycle.ports import CAPABILITY
from spec import JsonObject
from state import AttachmentRecord, EndpointId, EndpointRecord, NetworkId, Phase, RequestedInterface, Store
from tests.unit.cnm_bridge.lifecycle.port_requests import mapping, wish

ONE, TWO = EndpointId("1" * 64), EndpointId("2" * 64)


@pytest.fixture(name="store")
def make_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


async def put(store: Store, endpoint_id: EndpointId, *ports: int, sandbox: str) -> EndpointRecord:
    """Store an endpoint that has published ports."""
    capability_args: JsonObject = {CAPABILITY: [mapping(port).to_json() for port in ports]}
    record = EndpointRecord(
        id=endpoint_id,
        network_id=NetworkId("a" * 64),
        phase=Phase.PENDING,
        boot_id="0c1f",
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            ifname="eth0",
            netns=f"/run/cni-bridge/netns/{endpoint_id}",
            configuration={"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge"}]},
            cni_version="1.0.0",
            args=(),
            capability_args=capability_args,
        ),
        sandbox_key=f"/var/run/docker/netns/{sandbox}",
    )
    await store.put_endpoint(record)
    return record


async def load(store: Store) -> tuple[Publishing, PortClaims]:
    """Make what knows the ports of the endpoints in a store."""
    claims = PortClaims()
    publishing = Publishing(store, Runtime([], Limits()), HostPorts(), claims)
    await publishing.load()
    return publishing, claims


async def test_claims_go_with_the_record(store: Store) -> None:
    """Nothing is kept of an endpoint that is gone."""
    record = await put(store, ONE, 80, 81, sandbox="c1")
    _, claims = await load(store)
    assert list(claims.of(ONE)) == [mapping(80), mapping(81)]
    await store.put_endpoint(replace(record, phase=Phase.DELETING))
    assert list(claims.of(ONE)) == [mapping(80), mapping(81)]
    await store.remove_endpoint(ONE)
    assert list(claims.of(ONE)) == []


@pytest.mark.parametrize(("sandbox", "found"), [("c1", []), ("c2", [TWO])])
async def test_owners(store: Store, sandbox: str, found: list[EndpointId]) -> None:
    """A port that an endpoint of the same container has is in nobody's way."""
    await put(store, ONE, sandbox="c1")
    await put(store, TWO, 80, sandbox=sandbox)
    publishing, _ = await load(store)
    assert [owner.id for owner in await publishing.find_owners(ONE, [wish(79, 80), wish(80), wish(81)])] == found
