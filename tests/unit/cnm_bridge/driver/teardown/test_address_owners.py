# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoint owns the rules that a plugin finds by address alone."""

from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str
from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import AddressClaimed
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from tests.records import endpoint

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


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.READY, Phase.JOINED])
async def test_an_endpoint_with_the_same_plugin_owns_the_rules(store: Store, phase: Phase) -> None:
    """It needs the rules, and its own DEL will remove them."""
    await store.put_found_endpoint(record_of(SECOND, phase, WALLED))
    assert AddressOwners(store, PendingTeardowns()).find_owner(store.get_endpoint(FIRST), "firewall") == SECOND


async def test_an_endpoint_without_the_plugin_owns_no_rules(store: Store) -> None:
    """It needs no rules, and its DEL would not remove them."""
    await store.put_found_endpoint(record_of(SECOND, Phase.JOINED, OPEN))
    assert AddressOwners(store, PendingTeardowns()).find_owner(store.get_endpoint(FIRST), "firewall") is None


async def test_other_plugins_find_rules_by_container(store: Store) -> None:
    """Their rules have one owner, whatever the address."""
    await store.put_found_endpoint(record_of(SECOND, Phase.JOINED, WALLED))
    assert AddressOwners(store, PendingTeardowns()).find_owner(store.get_endpoint(FIRST), "bridge") is None


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


async def test_a_claimed_address_has_no_known_owner(store: Store) -> None:
    """Whether the new endpoint will get the address is unknown: DEL waits, since the rules would otherwise remain."""
    owners = AddressOwners(store, PendingTeardowns())
    first = store.get_endpoint(FIRST)
    with (
        owners.claim(SECOND, [ip_address(ADDRESS)], NetworkConfigurationList.from_document(WALLED)),
        pytest.raises(AddressClaimed, match=f"plugin firewall waits for container {SECOND}"),
    ):
        owners.find_owner(first, "firewall")
    assert owners.find_owner(first, "firewall") is None


async def test_the_end_of_a_claim_wakes_deferred_teardowns(store: Store) -> None:
    """Their DEL can then run immediately; later claims wake none."""
    owners = AddressOwners(store, PendingTeardowns())
    pending = owners.pending.add(FIRST)
    pending.attempts = 1
    walled = NetworkConfigurationList.from_document(WALLED)
    with owners.claim(SECOND, [ip_address(ADDRESS)], walled):
        for _ in range(2):
            with pytest.raises(AddressClaimed):
                owners.find_owner(store.get_endpoint(FIRST), "firewall")
        assert not pending.wake.is_set()
    assert pending.wake.is_set()
    pending.wake.clear()
    with owners.claim(SECOND, [ip_address(ADDRESS)], walled):
        pass
    assert not pending.wake.is_set()


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
