# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which records Docker has forgotten, and which networks and endpoints of Docker's have no record; pure.

dockerd does not report endpoints that it lost in a crash, and ignores the answer to DeleteEndpoint. So its lists are
compared with ours. What is being created is briefly in neither list or only in one, so a difference counts only if two
looks, some seconds apart, agree on it (`reconciler.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cnm_bridge.engine import LOCAL, EngineEndpoint, EngineNetwork
from state import EndpointId, EndpointRecord, NetworkId, NetworkRecord

__all__ = [
    "EngineView",
    "forgotten_endpoints",
    "forgotten_networks",
    "knows_any",
    "unchanged_since",
    "unknown_endpoints",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """What the engine knew in one look.

    Attributes:
        identity: The engine's own ID.
        networks: The networks that it was asked for, None for those it does not know.
    """

    identity: str
    networks: Mapping[NetworkId, EngineNetwork | None]


def knows_any(view: EngineView, networks: Iterable[NetworkRecord]) -> bool:
    """Return whether the engine knows one of our networks: then it is the one whose driver we are."""
    return any(view.networks.get(network.id) is not None for network in networks)


def forgotten_endpoints(view: EngineView, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints that Docker does not have any more.

    Networks that are known only from a swarm manager are skipped: their endpoints need not be listed on this host.
    """
    return tuple(
        record
        for record in endpoints
        if record.phase.is_attached and record.network_id in view.networks and _has_forgotten(view, record)
    )


def forgotten_networks(
    view: EngineView, networks: Iterable[NetworkRecord], endpoints: Iterable[EndpointRecord]
) -> tuple[NetworkRecord, ...]:
    """Return the networks that Docker does not have any more and that no endpoint of ours is on."""
    used = {record.network_id for record in endpoints}
    return tuple(
        record
        for record in networks
        if record.id in view.networks and view.networks[record.id] is None and record.id not in used
    )


def unknown_endpoints(
    view: EngineView, known: Iterable[EndpointId]
) -> Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]]:
    """Return Docker's endpoints on our networks that have no record, with their networks."""
    records = set(known)
    return {
        EndpointId(endpoint.id): (network, endpoint)
        for network in view.networks.values()
        if network is not None and network.scope == LOCAL
        for endpoint in network.endpoints.values()
        if endpoint.id not in records
    }


def unchanged_since(earlier: Iterable[EndpointRecord], later: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return those of the later records that the earlier look found too, and that have not been stored again since.

    They are compared by identity, for which the store stands. Comparing their values would parse the documents in them:
    of ten thousand records for most of a second, in which no call is answered.
    """
    seen = {record.id: record for record in earlier}
    return tuple(record for record in later if seen.get(record.id) is record)


def _has_forgotten(view: EngineView, record: EndpointRecord) -> bool:
    network = view.networks[record.network_id]
    return network is None or (network.scope == LOCAL and record.id not in network.endpoints)
