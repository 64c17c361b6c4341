# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads what the running daemon holds, and compares the reservations on disk with it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, find_str, get_list, get_objects, get_str, get_strings
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts import EngineContainer
from cnm_bridge.core.planning.addresses.address_ranges import reservation_directories
from cnm_bridge.core.planning.ports import CAPABILITY
from cnm_bridge.driver.recovery.artifacts import find_reservations
from cnm_bridge.driver.recovery.orphan_audit import is_cached, list_cache_files
from cnm_bridge.operator.doctor.facts import JoinedEndpoint, StaleReservation

_YOUNG_S: Final = 60.0
"""A younger reservation may belong to an ADD of another runtime, which has not filled its cache yet."""
_SHORT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonEndpoints:
    """The endpoints of the running daemon.

    Attributes:
        joined: Those in running containers.
        container_ids: The CNI container IDs of all, of the addresses that Docker has requested, and of holds.
    """

    joined: tuple[JoinedEndpoint, ...]
    container_ids: frozenset[str]

    @classmethod
    def from_json(cls, document: JsonObject, containers: Iterable[EngineContainer]) -> "DaemonEndpoints":
        """Read the endpoints, addresses and holds of `spec/admin`."""
        names = {one: container.name for container in containers for one in container.endpoint_ids}
        endpoints = get_objects(document, "endpoints")
        return cls(
            joined=tuple(
                JoinedEndpoint(
                    container=names.get(get_str(one, "id")) or get_str(one, "id")[:_SHORT],
                    configuration=find_str(one, "configuration") or "",
                    addresses=tuple(map(ip_interface, get_strings(one, "addresses"))),
                    capability_args={CAPABILITY: get_list(one, "ports")},
                )
                for one in endpoints
                if get_str(one, "phase") == "joined"
            ),
            container_ids=frozenset(
                find_str(one, "containerId") or get_str(one, "id")
                for one in (*endpoints, *get_objects(document, "addresses"), *get_objects(document, "holds"))
            ),
        )


def find_stale(network: NetworkConfigurationList, known: frozenset[str]) -> tuple[StaleReservation, ...]:
    """Return the reservations of a network's host-local whose container is not known.

    Args:
        network: The network's list.
        known: The CNI container IDs that the daemon has, read later than the list of Docker's containers.
    """
    try:
        directories = reservation_directories(network)
    except JsonError:
        return ()
    found = [one for directory in directories for one in find_reservations(Path(directory), network.name).owned]
    cached = sorted(list_cache_files())
    return tuple(
        StaleReservation(file=one.what, leftover=one.id)
        for one in found
        if one.container_id not in known and not is_cached(one, cached) and _is_old(Path(one.what))
    )


def _is_old(file: Path) -> bool:
    try:
        return file.stat().st_mtime < time.time() - _YOUNG_S
    except OSError:  # it was removed meanwhile
        return False
