# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads what the running daemon holds, and compares the reservations on disk with it."""

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, find_str, get_objects, get_str, get_strings
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.lists.address_ranges import reservation_directories
from cnm_bridge.driver.recovery.artifacts import CACHE_DIRECTORIES, PluginArtifact, find_reservations
from cnm_bridge.operator.doctor.facts import JoinedEndpoint

_YOUNG_S: Final = 60.0
"""A younger reservation may belong to an ADD of another runtime, which has not filled its cache yet."""
_SHORT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonEndpoints:
    """The endpoints of the running daemon.

    Attributes:
        joined: Those in running containers.
        container_ids: The CNI container IDs of all, and of the addresses that Docker has requested.
    """

    joined: tuple[JoinedEndpoint, ...]
    container_ids: frozenset[str]

    @classmethod
    def from_json(cls, document: JsonObject, containers: Iterable[EngineContainer]) -> "DaemonEndpoints":
        """Read the endpoints and addresses of `spec/admin`."""
        names = {one: container.name for container in containers for one in container.endpoint_ids}
        endpoints = get_objects(document, "endpoints")
        return cls(
            joined=tuple(
                JoinedEndpoint(
                    container=names.get(get_str(one, "id")) or get_str(one, "id")[:_SHORT],
                    configuration=find_str(one, "configuration") or "",
                    ways_out=get_strings(one, "waysOut") if "waysOut" in one else (),
                )
                for one in endpoints
                if get_str(one, "phase") == "joined"
            ),
            container_ids=frozenset(
                find_str(one, "containerId") or get_str(one, "id")
                for one in (*endpoints, *get_objects(document, "addresses"))
            ),
        )


def find_stale(network: NetworkConfigurationList, used: frozenset[str]) -> tuple[str, ...]:
    """Return the files of host-local's reservations on a network whose container neither we nor libcni's cache have.

    Args:
        network: The network's list.
        used: The CNI container IDs that the daemon has, read later than the list of Docker's containers, and the
            addresses that containers have.
    """
    try:
        directories = reservation_directories(network)
    except JsonError:
        return ()
    found = [one for directory in directories for one in find_reservations(Path(directory), network.name).owned]
    cached = sorted(_list_cache_files())
    return tuple(
        one.what
        for one in found
        if used.isdisjoint((one.container_id, one.address)) and not _is_cached(one, cached) and _is_old(Path(one.what))
    )


def _list_cache_files() -> frozenset[str]:
    """Return the names of other runtimes' cache files."""
    found: set[str] = set()
    for directory in CACHE_DIRECTORIES:
        with suppress(OSError):  # the directory may not exist
            found.update(file.name for file in (directory / "results").iterdir())
    return frozenset(found)


def _is_cached(reservation: PluginArtifact, files: Sequence[str]) -> bool:
    """Return whether one of some sorted cache files is of a container (libcni `libcni/api.go`, getCacheFilePath)."""
    prefix = f"{reservation.network}-{reservation.container_id}-"
    index = bisect_left(files, prefix)
    return index < len(files) and files[index].startswith(prefix)


def _is_old(file: Path) -> bool:
    try:
        return file.stat().st_mtime < time.time() - _YOUNG_S
    except OSError:  # it was removed meanwhile
        return False
