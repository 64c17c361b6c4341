# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds out whether another endpoint has an address, because the DEL of some plugins removes rules by address alone.

The DEL of such a plugin removes the rules of every endpoint that uses the address. An address can have a new owner
while the former one is still being deleted: its DEL may have failed after the address was released, its record may have
been restored from a copy, or the list has no plugin that reserves addresses (`static` does not).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cni_invoker.advanced import needs_rules
from cni_invoker.errors import AddressClaimed
from cnm_bridge.core.link_state import IpAddress

__all__ = ["AddressOwners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The addresses that an endpoint being created may receive.

    Attributes:
        addresses: The addresses.
        types: The types of the endpoint's plugins.
        deferred: The endpoints whose DEL was deferred because of this claim.
    """

    addresses: frozenset[str]
    types: frozenset[str]
    deferred: set[EndpointId] = field(default_factory=set)


class AddressOwners:
    """Finds the endpoints that have an address or may receive it, except those being deleted.

    Args:
        store: The records.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claims: dict[EndpointId, _Claim] = {}
        self._on_released: Callable[[EndpointId], None] = _ignore

    def when_released(self, on_released: Callable[[EndpointId], None]) -> None:
        """Set the callback for the end of a claim. It receives each endpoint whose DEL was deferred because of it."""
        self._on_released = on_released

    @contextmanager
    def claim(
        self, endpoint_id: EndpointId, addresses: Iterable[IpAddress], configuration: NetworkConfigurationList
    ) -> Iterator[None]:
        """Claim addresses for an endpoint while its plugins run: its record does not contain its addresses yet."""
        self._claims[endpoint_id] = _Claim(addresses=frozenset(map(str, addresses)), types=_types_of(configuration))
        try:
            yield
        finally:
            for deferred in self._claims.pop(endpoint_id).deferred:
                self._on_released(deferred)

    def find_owner(
        self, record: EndpointRecord, plugin: str, *, leaving: Collection[EndpointId] = ()
    ) -> EndpointId | None:
        """Return another endpoint that needs the rules that a plugin's DEL would remove, None if there is none.

        Args:
            record: The endpoint that is being deleted.
            plugin: The plugin's type.
            leaving: Endpoints whose teardown has begun. On a full disk, their records may not show it.

        Raises:
            AddressClaimed: No other endpoint has the address, but one that is being created may receive it.
        """
        for other in self._store.endpoints_with_address(record.addresses):
            if other.id == record.id or other.id in leaving or other.phase is Phase.DELETING:
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


def _ignore(_: EndpointId) -> None:
    return


def _types_of(configuration: NetworkConfigurationList) -> frozenset[str]:
    """Return the types of a list's plugins."""
    return frozenset(plugin.type for plugin in configuration.plugins)
