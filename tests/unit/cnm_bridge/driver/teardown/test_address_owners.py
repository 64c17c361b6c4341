# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoint owns the rules that a plugin finds by address alone, and who has a taken address."""

from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import IPv4Network, ip_address, ip_interface
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str
from cni_bridge_state import (
    AddressPhase,
    AddressPoolRecord,
    EndpointId,
    EndpointRecord,
    Phase,
    PoolId,
    PoolRecord,
)
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.wire import EndpointReference
from cnm_bridge.driver.teardown.address_owners import AddressOwners, describe_holders
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from tests.records import NETWORK, address_record, endpoint, network_record, put

FIRST, SECOND = EndpointId("1" * 64), EndpointId("2" * 64)
ADDRESS = "10.1.0.9"
WALLED: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge"}, {"type": "firewall"}]}
OPEN: JsonObject = {"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "bridge"}]}


@pytest.fixture(name="store")
async def open_store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store with the first endpoint, whose teardown is pending."""
    store = Store.open(tmp_path / "state")
    await store.put_found_endpoint(record_of(FIRST, Phase.DELETING, WALLED))
    yield store
    store.close()


def record_of(endpoint_id: EndpointId, phase: Phase, configuration: JsonObject) -> EndpointRecord:
    """Return an endpoint that has the address."""
    network, plugins = get_str(configuration, "name"), get_objects(configuration, "plugins")
    return replace(endpoint(endpoint_id, phase, network=network, plugins=plugins), addresses=(ADDRESS,))


async def test_an_endpoint_without_the_plugin_owns_no_rules(store: Store) -> None:
    """It needs no rules, and its DEL would not remove them."""
    await store.put_found_endpoint(record_of(SECOND, Phase.JOINED, OPEN))
    assert AddressOwners(store, PendingTeardowns()).find_owner(store.get_endpoint(FIRST), "firewall") is None


async def test_an_endpoint_whose_teardown_is_pending_owns_no_rules(store: Store) -> None:
    """This also holds if its phase could not be stored because the disk was full."""
    owners = AddressOwners(store, PendingTeardowns())
    await store.put_found_endpoint(record_of(SECOND, Phase.JOINED, WALLED))
    first = store.get_endpoint(FIRST)
    second = owners.pending.add(SECOND)
    second.has_begun = True
    assert owners.find_owner(first, "firewall") is None
    owners.pending.remove(second)
    await store.put_endpoint(replace(store.get_endpoint(SECOND), phase=Phase.DELETING))
    assert owners.find_owner(first, "firewall") is None


async def test_unrelated_claims_are_ignored(store: Store) -> None:
    """These are claims of the endpoint itself, of another address, and of an endpoint without the plugin."""
    owners = AddressOwners(store, PendingTeardowns())
    first = store.get_endpoint(FIRST)
    walled, without = map(NetworkConfigurationList.from_document, (WALLED, OPEN))
    for claimant, address, configuration in (
        (FIRST, ADDRESS, walled),
        (SECOND, "10.1.0.8", walled),
        (SECOND, ADDRESS, without),
    ):
        with owners.claim(claimant, [ip_address(address)], configuration):
            assert owners.find_owner(first, "firewall") is None


async def test_a_claiming_endpoint_owns_the_rules_once_its_result_is_stored(store: Store) -> None:
    """From then on its own teardown removes the rules, even if its ADD fails."""
    owners = AddressOwners(store, PendingTeardowns())
    with owners.claim(SECOND, [ip_address(ADDRESS)], NetworkConfigurationList.from_document(WALLED)):
        await store.put_found_endpoint(record_of(SECOND, Phase.PENDING, WALLED))
        assert owners.find_owner(store.get_endpoint(FIRST), "firewall") == SECOND


WEB, OTHER = EndpointId("77" * 32), EndpointId("99" * 32)
TEXT: Final = "10.1.2.3"
TAKEN: Final = ip_address(TEXT)


def asking(endpoint_id: EndpointId) -> EndpointReference:
    """Return the endpoint that asks for an address."""
    return EndpointReference(network_id=NETWORK, endpoint_id=endpoint_id)


async def test_an_endpoint(store: Store) -> None:
    """It is named by its ID, for which the answer to Docker has its container; on another network it is not one."""
    await put(store, replace(endpoint(WEB, Phase.JOINED), addresses=(TEXT,)))
    found = describe_holders(store, "lan", [TAKEN], asking(OTHER))
    assert found.startswith(f"{TEXT} is in use by endpoint {WEB}: ")
    assert "`cni-bridge ls`" in found
    assert describe_holders(store, "lan", [TAKEN], asking(WEB)) == ""
    assert describe_holders(store, "another", [TAKEN]) == ""
    assert describe_holders(store, "lan", [ip_address("10.1.2.4")]) == ""
    await store.put_endpoint(replace(store.get_endpoint(WEB), phase=Phase.DELETING))
    assert describe_holders(store, "lan", [TAKEN]) == ""


@pytest.mark.parametrize(
    ("name", "shown"), [("printer", "container printer"), (None, "another container or --aux-address (pool pool)")]
)
async def test_a_container_of_another_driver(store: Store, name: str | None, shown: str) -> None:
    """It is known by its name, if the engine sent it."""
    subnet = IPv4Network("10.1.2.0/24")
    facts = {"sub_pool": None, "gateway": None, "engine": None}
    await store.ipam.pools.put(
        AddressPoolRecord(id=PoolId("pool"), section="lan", subnet=subnet, created_at=0, **facts)
    )
    record = address_record(name=name)
    await store.ipam.put_address(record)
    assert describe_holders(store, "lan", [TAKEN]) == ""
    await store.ipam.put_address(replace(record, phase=AddressPhase.RESERVED, address=ip_interface(f"{TEXT}/24")))
    found = describe_holders(store, "lan", [TAKEN])
    assert found.startswith(f"{TEXT} is in use by {shown}: ")
    assert "`GET /v1/addresses` at the admin socket" in found


async def test_the_address_that_docker_requested_for_the_endpoint(store: Store) -> None:
    """On a network whose IPAM driver this is, with the section of its own list, no other container can have it."""
    subnet = IPv4Network("10.1.2.0/24")
    facts = {"sub_pool": None, "gateway": None, "engine": None}
    await store.ipam.pools.put(
        AddressPoolRecord(id=PoolId("pool"), section="lan", subnet=subnet, created_at=0, **facts)
    )
    await store.ipam.put_address(address_record(name="web"))
    reserved = replace(address_record(name="web"), phase=AddressPhase.RESERVED, address=ip_interface(f"{TEXT}/24"))
    await store.ipam.put_address(reserved)
    own, others = (PoolRecord(subnet=subnet, gateway=None, is_own=is_own) for is_own in (True, False))
    await store.put_network(network_record(name="lan", pools=(others,)))
    assert "in use by container web" in describe_holders(store, "lan", [TAKEN], asking(WEB))
    await store.put_network(network_record(name="lan", pools=(own,)))
    assert describe_holders(store, "lan", [TAKEN], asking(WEB)) == ""
