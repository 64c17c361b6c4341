# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares Docker's networks and endpoints with the records; pure.

dockerd does not report the endpoints that it lost in a crash, and ignores errors of DeleteEndpoint. So its lists are
compared with the records. An endpoint that is being created is briefly in only one of the two, so a difference counts
only if two comparisons, some seconds apart, both find it (`repair.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cni_bridge_state import EndpointId, EndpointRecord, NetworkId, NetworkRecord
from cnm_bridge.core.engine_facts import EngineEndpoint, EngineNetwork

FORGOTTEN: Final = "the engine does not know it"
"""Why a forgotten endpoint or network is removed, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """The engine's networks at one moment.

    Attributes:
        identity: The engine's ID (`docker info`, field ID).
        networks: The networks that it was asked for, by ID; None for a network that it does not know.
    """

    identity: str
    networks: Mapping[NetworkId, EngineNetwork | None]


def knows_any(view: EngineView, networks: Iterable[NetworkRecord]) -> bool:
    """Return whether the engine knows one of these networks. Then it is an engine that uses this driver."""
    return any(view.networks.get(network.id) is not None for network in networks)


def find_foreign(
    view: EngineView, networks: Iterable[NetworkRecord], endpoints: Iterable[EndpointRecord]
) -> frozenset[NetworkId]:
    """Return the networks that another engine has made, not the one that was asked.

    Only the engine that has made a network can say that it no longer exists. That is the engine that has listed it. If
    none has yet, the process that requested the network decides: it belongs to an engine if it has also requested a
    network that this engine has listed, or an endpoint of one. If neither is known, the network is not returned.

    An engine gets a new ID if the file with its ID is lost. So an engine that lists the network of an ID has that ID,
    too.
    """
    records = tuple(networks)
    listed = frozenset(network_id for network_id, network in view.networks.items() if network is not None)
    engines = {view.identity, *(record.engine for record in records if record.id in listed)}
    made = {record.id for record in records if record.id in listed or record.engine in engines - {None}}
    callers = {
        *(record.caller for record in records if record.id in made),
        *(endpoint.caller for endpoint in endpoints if endpoint.network_id in made),
    }
    return frozenset(
        record.id
        for record in records
        if record.id not in made
        and (record.engine is not None or (record.caller is not None and record.caller not in callers))
    )


def forgotten_endpoints(view: EngineView, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints that Docker no longer has."""
    return tuple(
        record
        for record in endpoints
        if record.phase.is_attached and record.network_id in view.networks and _has_forgotten(view, record)
    )


def forgotten_networks(
    view: EngineView, networks: Iterable[NetworkRecord], endpoints: Iterable[EndpointRecord]
) -> tuple[NetworkRecord, ...]:
    """Return the networks that Docker no longer has and that have no endpoints."""
    used = {record.network_id for record in endpoints}
    return tuple(
        record
        for record in networks
        if record.id in view.networks and view.networks[record.id] is None and record.id not in used
    )


def unknown_endpoints(
    view: EngineView, known: Iterable[EndpointRecord]
) -> Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]]:
    """Return the endpoints in containers that Docker has and we do not know, each with its network.

    One in no container has no sandbox, so nothing of it can be rebuilt.
    """
    records = {record.id for record in known}
    return {
        EndpointId(endpoint.id): (network, endpoint)
        for network in view.networks.values()
        if network is not None
        for endpoint in network.endpoints.values()
        if endpoint.id not in records and endpoint.container_id is not None
    }


def unchanged_since(earlier: Iterable[EndpointRecord], later: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the later records that are also among the earlier ones and have not been stored again in between.

    Records are compared by identity: the store returns the same object until a record is stored again.
    """
    seen = {record.id: record for record in earlier}
    return tuple(record for record in later if seen.get(record.id) is record)


def _has_forgotten(view: EngineView, record: EndpointRecord) -> bool:
    network = view.networks[record.network_id]
    return network is None or record.id not in network.endpoints
