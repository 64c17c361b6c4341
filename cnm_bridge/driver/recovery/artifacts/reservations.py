# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""host-local's reservations: one file per address, `<data directory>/<network>/<address>`.

The first line of a file is the container ID, the second the ifname (plugins `ipam/host-local/backend/disk`). While it
holds a lock on the file `lock`, host-local creates the file and then writes it. If it is killed in between, the file
stays empty: DEL does not find it, and the address is never assigned again (containernetworking/plugins issue 498).
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, find_object, find_str, get_objects
from cnm_bridge.driver.recovery.artifacts.artifact import PluginArtifact

__all__ = [
    "Reservations",
    "data_directories",
    "find_reservations",
    "remove_reservation",
    "remove_unwritten",
]

_DATA_DIRECTORY: Final = Path("/var/lib/cni/networks")
"""host-local's data directory, unless its configuration has `dataDir`."""

_LOCK: Final = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The reservations of one or more networks.

    Attributes:
        owned: Reservations that contain a container ID.
        unwritten: Empty files: host-local is just writing them, or was killed.
    """

    owned: tuple[PluginArtifact, ...] = ()
    unwritten: tuple[Path, ...] = ()


def data_directories(configurations: Iterable[JsonObject]) -> frozenset[Path]:
    """Return host-local's data directories: the default, and those that network configuration lists choose."""
    plugins = (plugin for document in configurations for plugin in get_objects(document, "plugins"))
    found = (find_str(find_object(plugin, "ipam") or {}, "dataDir") for plugin in plugins)
    return frozenset({_DATA_DIRECTORY, *(Path(directory) for directory in found if directory)})


def find_reservations(directory: Path, network: str) -> Reservations:
    """Return the reservations of a network. Unreadable files are ignored.

    Args:
        directory: host-local's data directory.
        network: The CNI network's name.
    """
    try:
        files = sorted((directory / network).iterdir())
    except OSError:  # host-local has never reserved an address there
        return Reservations()
    owned, unwritten = [], []
    for file in files:
        try:
            address = str(ip_address(file.name.replace("_", ":")))  # host-local may write _ for :
            words = file.read_text("utf-8").split(maxsplit=1)
        except (ValueError, OSError):  # `lock`, `last_reserved_ip.0`, or a file removed meanwhile
            continue
        if words:
            owned.append(PluginArtifact(network=network, container_id=words[0], what=str(file), address=address))
        else:
            unwritten.append(file)
    return Reservations(owned=tuple(owned), unwritten=tuple(unwritten))


def remove_unwritten(file: Path) -> bool:
    """Remove the empty reservation of a killed host-local; return whether it was removed.

    While this function holds the lock, no host-local is between creating and writing a file, so an empty file belongs
    to no container. If a host-local holds the lock, or the file is no longer empty, it stays.

    Raises:
        OSError: The lock or the file cannot be opened or removed.
    """
    with suppress(BlockingIOError, FileNotFoundError), _lock_of(file):  # the lock is held, or the file was removed
        if file.stat().st_size == 0:
            file.unlink()
            return True
    return False


def remove_reservation(file: Path, container_id: str) -> bool:
    """Remove a reservation of a container while no host-local runs; return whether it was there.

    Raises:
        OSError: host-local holds its lock, or the file cannot be removed.
    """
    with suppress(FileNotFoundError), _lock_of(file):
        if file.read_text("utf-8").split(maxsplit=1)[:1] == [container_id]:
            file.unlink()
            return True
    return False


@contextmanager
def _lock_of(file: Path) -> Iterator[None]:
    lock = os.open(file.parent / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)
