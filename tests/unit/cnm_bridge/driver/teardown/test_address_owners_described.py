# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An error about a taken address says who has it, as far as the records tell."""

from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import IPv4Network, ip_address, ip_interface
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_state import (
    AddressId,
    AddressPhase,
    AddressPoolRecord,
    AddressRecord,
    AddressUse,
    EndpointId,
    NetworkRecord,
    Phase,
    PoolId,
    PoolRecord,
    ReservationRecord,
)
from cni_bridge_state.store import Store
from cnm_bridge.core.wire.network_driver import EndpointReference
from cnm_bridge.driver.teardown.address_owners import describe_holders
from tests.records import NETWORK, endpoint, put

WEB, OTHER = EndpointId("77" * 32), EndpointId("99" * 32)
TEXT: Final = "10.1.2.3"
ADDRESS: Final = ip_address(TEXT)
INPUT: Final = ReservationRecord(netns="/run/netns/1", configuration={}, args=(), capability_args={})


@pytest.fixture(name="store")
async def make_store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


def asking(endpoint_id: EndpointId) -> EndpointReference:
    """Return the endpoint that asks for an address."""
    return EndpointReference(network_id=NETWORK, endpoint_id=endpoint_id)


def requested(name: str | None) -> AddressRecord:
    """Return an address that Docker has requested for a container."""
    return AddressRecord(
        id=AddressId("6" * 64),
        pool=PoolId("pool"),
        section="lan",
        phase=AddressPhase.PENDING,
        use=AddressUse.ANY,
        address=None,
        name=name,
        reservation=INPUT,
        created_at=0,
    )


async def test_an_endpoint(store: Store) -> None:
    """It is named by its ID, for which the answer to Docker has its container; on another network it is not one."""
    await put(store, replace(endpoint(WEB, Phase.JOINED), addresses=(TEXT,)))
    found = describe_holders(store, "lan", [ADDRESS], asking(OTHER))
    assert found.startswith(f"{TEXT} is in use by endpoint {WEB}: ")
    assert "`cni-bridge ls`" in found
    assert describe_holders(store, "lan", [ADDRESS], asking(WEB)) == ""
    assert describe_holders(store, "another", [ADDRESS]) == ""
    assert describe_holders(store, "lan", [ip_address("10.1.2.4")]) == ""
    await store.put_endpoint(replace(store.get_endpoint(WEB), phase=Phase.DELETING))
    assert describe_holders(store, "lan", [ADDRESS]) == ""


@pytest.mark.parametrize(
    ("name", "shown"), [("printer", "container printer"), (None, "another container or --aux-address (pool pool)")]
)
async def test_a_container_of_another_driver(store: Store, name: str | None, shown: str) -> None:
    """It is known by its name, if the engine sent it."""
    subnet = IPv4Network("10.1.2.0/24")
    facts = {"sub_pool": None, "gateway": None, "engine": None}
    await store.ipam.put_pool(AddressPoolRecord(id=PoolId("pool"), section="lan", subnet=subnet, created_at=0, **facts))
    record = requested(name)
    await store.ipam.put_address(record)
    assert describe_holders(store, "lan", [ADDRESS]) == ""
    await store.ipam.put_address(replace(record, phase=AddressPhase.RESERVED, address=ip_interface(f"{TEXT}/24")))
    found = describe_holders(store, "lan", [ADDRESS])
    assert found.startswith(f"{TEXT} is in use by {shown}: ")
    assert "`docker network inspect`" in found


async def test_the_address_that_docker_requested_for_the_endpoint(store: Store) -> None:
    """On a network whose IPAM driver this is, with the section of its own list, no other container can have it."""
    subnet = IPv4Network("10.1.2.0/24")
    facts = {"sub_pool": None, "gateway": None, "engine": None}
    await store.ipam.put_pool(AddressPoolRecord(id=PoolId("pool"), section="lan", subnet=subnet, created_at=0, **facts))
    await store.ipam.put_address(requested("web"))
    reserved = replace(requested("web"), phase=AddressPhase.RESERVED, address=ip_interface(f"{TEXT}/24"))
    await store.ipam.put_address(reserved)
    own, others = (PoolRecord(subnet=subnet, gateway=None, is_own=is_own) for is_own in (True, False))
    network = NetworkRecord(id=NETWORK, configuration="lan", name="lan", internal=False, options={}, pools=(others,))
    await store.put_network(network)
    assert "in use by container web" in describe_holders(store, "lan", [ADDRESS], asking(WEB))
    await store.put_network(replace(network, pools=(own,)))
    assert describe_holders(store, "lan", [ADDRESS], asking(WEB)) == ""
