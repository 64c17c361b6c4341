# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoint an address belongs to, where a plugin finds what it made by the address alone.

The DEL of such a plugin removes what it finds, whichever endpoint it was made for. An address has a new owner while the
former one is still being deleted if its DEL failed half way, if its record came back from a copy, or if no plugin
reserves addresses (`static`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cni_invoker import AddressClaimed, NetworkConfigurationList, needs_rules
from cnm_bridge.kernel import IpAddress
from state import EndpointId, EndpointRecord, Phase, Store

__all__ = ["AddressOwners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """Addresses that an endpoint may receive.

    Attributes:
        addresses: The addresses.
        types: The types of the endpoint's plugins.
        put_off: Endpoints of which a DEL was put off because of this claim.
    """

    addresses: frozenset[str]
    types: frozenset[str]
    put_off: set[EndpointId] = field(default_factory=set)


class AddressOwners:
    """Knows which endpoints have an address, or are about to receive it, and are not being deleted.

    Args:
        store: The records.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claims: dict[EndpointId, _Claim] = {}
        self._on_released: Callable[[EndpointId], None] = _ignore

    def when_released(self, on_released: Callable[[EndpointId], None]) -> None:
        """Have this called for each endpoint of which a DEL was put off, when the claim that was in its way is gone."""
        self._on_released = on_released

    @contextmanager
    def claim(
        self, endpoint_id: EndpointId, addresses: Iterable[IpAddress], configuration: NetworkConfigurationList
    ) -> Iterator[None]:
        """Keep addresses for an endpoint while its plugins run, before any result of it is in its record."""
        self._claims[endpoint_id] = _Claim(addresses=frozenset(map(str, addresses)), types=_types_of(configuration))
        try:
            yield
        finally:
            for put_off in self._claims.pop(endpoint_id).put_off:
                self._on_released(put_off)

    def find_owner(
        self, record: EndpointRecord, plugin: str, *, leaving: Collection[EndpointId] = ()
    ) -> EndpointId | None:
        """Return another endpoint that needs the rules which the DEL of a plugin would remove; None if there is none.

        Args:
            record: The endpoint that is deleted.
            plugin: The plugin's type.
            leaving: Endpoints whose teardown has begun, whatever their records say: on a full disk they say less.

        Raises:
            AddressClaimed: No endpoint has the address yet, but one that is being created may receive it.
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
                claim.put_off.add(record.id)
                raise AddressClaimed(plugin, claimant)
        return None


def _ignore(_: EndpointId) -> None:
    return


def _types_of(configuration: NetworkConfigurationList) -> frozenset[str]:
    """Return the types of a list's plugins."""
    return frozenset(plugin.type for plugin in configuration.plugins)
