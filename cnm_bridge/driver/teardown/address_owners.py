# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds out who has an address: for errors, and because the DEL of some plugins removes rules by address alone.

The DEL of such a plugin removes the rules of every endpoint that uses the address. An address can have a new owner
while the former one is still being deleted: its DEL may have failed after the address was released, or the list has no
plugin that reserves addresses (`static` does not).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cni_bridge_state import AddressPhase, AddressRecord, AddressUse, EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cni_invoker.advanced import needs_rules
from cnm_bridge.core.errors import AddressClaimed
from cnm_bridge.core.link_state import IpAddress
from cnm_bridge.core.wire import EndpointReference
from cnm_bridge.driver.teardown.pending import PendingTeardowns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The addresses that an endpoint being created may receive."""

    addresses: frozenset[str]
    types: frozenset[str]
    """The types of the endpoint's plugins."""
    deferred: set[EndpointId] = field(default_factory=set)
    """The endpoints whose DEL was deferred because of this claim."""


@dataclass(frozen=True, slots=True)
class AddressOwners:
    """Finds the endpoints that have an address or may receive it, except those being deleted."""

    store: Store
    pending: PendingTeardowns
    _claims: dict[EndpointId, _Claim] = field(default_factory=dict, init=False)

    @contextmanager
    def claim(
        self, endpoint_id: EndpointId, addresses: Iterable[IpAddress], configuration: NetworkConfigurationList
    ) -> Iterator[None]:
        """Claim addresses for an endpoint while its plugins run: its record does not contain its addresses yet.

        At the end, the teardowns that were deferred because of the claim are tried again at once.
        """
        self._claims[endpoint_id] = _Claim(addresses=frozenset(map(str, addresses)), types=_types_of(configuration))
        try:
            yield
        finally:
            for deferred in self._claims.pop(endpoint_id).deferred:
                self.pending.begin(deferred)

    def find_owner(self, record: EndpointRecord, plugin: str) -> EndpointId | None:
        """Return another endpoint that needs the rules that a plugin's DEL would remove, None if there is none.

        Raises `AddressClaimed` if no other endpoint has the address, but one that is being created may receive it.
        """
        begun = self.pending.begun  # on a full disk, their records may not show it
        for other in self.store.endpoints_with_address(record.addresses):
            if other.id == record.id or other.id in begun or other.phase is Phase.DELETING:
                continue
            configuration = NetworkConfigurationList.from_document(other.attachment.configuration)
            types = _types_of(configuration)
            if needs_rules(plugin, record.addresses, other_types=types, other_addresses=other.addresses):
                return other.id
        for claimant, claim in self._claims.items():
            if claimant != record.id and needs_rules(
                plugin, record.addresses, other_types=claim.types, other_addresses=claim.addresses
            ):
                claim.deferred.add(record.id)
                raise AddressClaimed(plugin, claimant)
        return None


def _types_of(configuration: NetworkConfigurationList) -> frozenset[str]:
    return frozenset(plugin.type for plugin in configuration.plugins)


def describe_holders(
    store: Store, network: str, addresses: Iterable[IpAddress], asking: EndpointReference | None = None
) -> str:
    """Return who has some addresses of a CNI network, and the next step; "" if no record has one.

    What Docker has requested for the endpoint that asks for them is its own.
    """
    but_not = None if asking is None else asking.endpoint_id
    found = None if asking is None else store.find_network(asking.network_id)
    own = [pool.subnet for pool in found.pools if pool.is_own] if found is not None else []
    holders: list[str] = []
    for address in sorted(addresses, key=str):
        is_given = any(address in subnet for subnet in own)
        holders += _holders_of(store, network, address, but_not, is_given=is_given)
    return "; ".join(holders)


def describe_address(record: AddressRecord) -> str:
    """Return who has an address that Docker has requested, in words."""
    if record.use is AddressUse.GATEWAY:
        return f"a network as its gateway (pool {record.pool})"
    return f"container {record.name}" if record.name else f"another container or --aux-address (pool {record.pool})"


def _holders_of(
    store: Store, network: str, address: IpAddress, but_not: EndpointId | None, *, is_given: bool
) -> Iterator[str]:
    """Yield the endpoint that has an address; otherwise what Docker has requested it for."""
    for endpoint in store.endpoints_with_address([str(address)]):
        is_other = endpoint.id != but_not and endpoint.phase is not Phase.DELETING
        if is_other and endpoint.attachment.network == network:
            yield (
                f"{address} is in use by endpoint {endpoint.id}: ask for another address, or remove that container; "
                "`cni-bridge ls` shows all"
            )
            return
    for record in () if is_given else store.ipam.find_holders(network, address):
        if record.phase is AddressPhase.RESERVED:
            yield (
                f"{address} is in use by {describe_address(record)}: ask for another address; "
                "`GET /v1/addresses` at the admin socket shows all"
            )
            return
