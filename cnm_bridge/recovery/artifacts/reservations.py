# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""host-local's reservations: one file per address, `<data directory>/<network>/<address>`.

Its first line is the container ID, its second the link's name (plugins `ipam/host-local/backend/disk`). host-local
creates the file and then writes it, with a lock on the file `lock`. Killed in between, it leaves an empty file: its DEL
does not find that, and the address is never assigned again (containernetworking/plugins issue 498).
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cnm_bridge.recovery.artifacts.artifact import PluginArtifact

__all__ = ["Reservations", "find_reservations", "remove_unwritten"]

_LOCK: Final = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The reservations of a network.

    Attributes:
        owned: Those of containers.
        unwritten: The empty files: of a host-local that runs now, or that was killed.
    """

    owned: tuple[PluginArtifact, ...] = ()
    unwritten: tuple[Path, ...] = ()


def find_reservations(directory: Path, network: str) -> Reservations:
    """Return the reservations of a network; unreadable ones are ignored.

    Args:
        directory: host-local's data directory, `/var/lib/cni/networks` unless the configuration has `dataDir`.
        network: The CNI network's name.
    """
    try:
        files = sorted((directory / network).iterdir())
    except OSError:  # nothing was ever reserved there
        return Reservations()
    owned, unwritten = [], []
    for file in files:
        try:
            address = str(ip_address(file.name.replace("_", ":")))  # some file systems take no colons
            words = file.read_text("utf-8").split(maxsplit=1)
        except (ValueError, OSError):  # the lock, the last address, a file that was removed a moment ago
            continue
        if words:
            owned.append(PluginArtifact(network=network, container_id=words[0], what=str(file), address=address))
        else:
            unwritten.append(file)
    return Reservations(owned=tuple(owned), unwritten=tuple(unwritten))


def remove_unwritten(files: Iterable[Path]) -> Iterator[Path]:
    """Remove reservations that a killed host-local has not written, and yield their files.

    While this function holds host-local's lock, no host-local is between creating and writing a file. So a file that is
    empty then belongs to no container. If the lock is taken, the file stays.

    Raises:
        OSError: The lock or the file cannot be opened or removed.
    """
    for file in files:
        with suppress(BlockingIOError, FileNotFoundError), _lock_of(file):  # it is taken, or a plugin removed the file
            if file.stat().st_size == 0:
                file.unlink()
                yield file


@contextmanager
def _lock_of(file: Path) -> Iterator[None]:
    lock = os.open(file.parent / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)
