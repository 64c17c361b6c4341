# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Says in errors who has an address that a plugin refuses, as far as the records tell."""

from collections.abc import Iterable, Iterator

from cni_bridge_state import AddressPhase, AddressRecord, AddressUse, EndpointId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.link_state import IpAddress
from cnm_bridge.core.wire import EndpointReference


def describe_holders(
    store: Store, network: str, addresses: Iterable[IpAddress], asking: EndpointReference | None = None
) -> str:
    """Return who has some addresses, and the next step; "" if no record has one.

    Args:
        store: The records.
        network: The CNI network that the addresses are of.
        addresses: The addresses.
        asking: The endpoint that asks for them. What Docker has requested for it is its own.
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
                "`cni-bridge ls --addresses` shows all"
            )
            return
