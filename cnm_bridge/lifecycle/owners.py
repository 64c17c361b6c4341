# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoint an address belongs to, where a plugin finds what it made by the address alone.

The DEL of such a plugin removes what it finds, whoever it was made for. An address has a new owner while the former one
is still being deleted if its DEL failed half way, if its record came back from a copy, or if nothing reserves addresses
(`static`).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cnm_bridge.kernel import IpAddress
from state import EndpointId, EndpointRecord, Phase, Store

__all__ = ["AddressOwners"]


class AddressOwners:
    """Knows which endpoints have an address, or are about to receive it, and are not being deleted.

    Args:
        store: The records.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claims: dict[EndpointId, frozenset[str]] = {}

    @contextmanager
    def claim(self, endpoint_id: EndpointId, addresses: Iterable[IpAddress]) -> Iterator[None]:
        """Let addresses belong to an endpoint that is being made, before any result of it is in its record."""
        self._claims[endpoint_id] = frozenset(map(str, addresses))
        try:
            yield
        finally:
            del self._claims[endpoint_id]

    def find_other(self, record: EndpointRecord) -> EndpointId | None:
        """Return another endpoint that has one of an endpoint's addresses now; None if there is none."""
        addresses = frozenset(record.addresses)
        owners = (other for other in self._store.endpoints_with_address(addresses) if other.phase is not Phase.DELETING)
        claimants = (other for other, claimed in self._claims.items() if not addresses.isdisjoint(claimed))
        return next((other for other in (*claimants, *(owner.id for owner in owners)) if other != record.id), None)
