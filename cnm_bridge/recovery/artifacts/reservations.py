# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""host-local's reservations: one file per address, `<data directory>/<network>/<address>`.

Its first line is the container ID, its second the link's name (plugins `ipam/host-local/backend/disk`).
"""

from ipaddress import ip_address
from pathlib import Path

from cnm_bridge.recovery.artifacts.artifact import PluginArtifact

__all__ = ["find_reservations"]


def find_reservations(directory: Path, network: str) -> tuple[PluginArtifact, ...]:
    """Return the reservations of a network; unreadable ones have no owner.

    Args:
        directory: host-local's data directory, `/var/lib/cni/networks` unless the configuration has `dataDir`.
        network: The CNI network's name.
    """
    try:
        files = sorted((directory / network).iterdir())
    except OSError:  # nothing was ever reserved there
        return ()
    return tuple(trace for file in files if (trace := _read(file, network)) is not None)


def _read(file: Path, network: str) -> PluginArtifact | None:
    try:
        address = str(ip_address(file.name.replace("_", ":")))  # some file systems take no colons
        container_id = file.read_text("utf-8").split(maxsplit=1)[0]
    except (ValueError, IndexError, OSError):  # the lock, the last address, a file that was removed a moment ago
        return None
    return PluginArtifact(network=network, container_id=container_id, what=str(file), address=address)
