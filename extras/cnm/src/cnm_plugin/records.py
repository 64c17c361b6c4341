# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugin remembers: which networks and endpoints it has made, as files.

A record is on disk before the driver is called, so that DEL and GC find whatever may exist. A driver sees a network as
it does from a swarm's node: created with the first endpoint, deleted with the last.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cni_invoker.documents.jsontypes import JsonError, JsonObject, as_object, parse_json, render_json
from cni_plugin import CallError, ErrorCode

__all__ = ["DATA_DIR", "NetworkRecords"]

DATA_DIR: Final = Path("/var/lib/cni/cnm")
_NETWORK: Final = "network.json"
_SUFFIX: Final = ".json"


class NetworkRecords:
    """The records of one network.

    Args:
        data_dir: The directory of all networks.
        network_id: The network's ID.
    """

    def __init__(self, data_dir: Path, network_id: str) -> None:
        self._directory = data_dir / network_id

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Run the body while no other process is in such a body for this network."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def network(self) -> JsonObject | None:
        """Return the network's record, None if there is none."""
        return self._read(_NETWORK)

    def put_network(self, record: JsonObject) -> None:
        """Store the network's record."""
        self._write(_NETWORK, record)

    def remove_network(self) -> None:
        """Remove the network's record; it need not exist."""
        (self._directory / _NETWORK).unlink(missing_ok=True)

    def endpoint(self, endpoint_id: str) -> JsonObject | None:
        """Return an endpoint's record, None if there is none."""
        return self._read(f"{endpoint_id}{_SUFFIX}")

    def endpoints(self) -> tuple[str, ...]:
        """Return the IDs of all endpoints that have a record."""
        if not self._directory.is_dir():
            return ()
        return tuple(sorted(file.stem for file in self._directory.glob(f"*{_SUFFIX}") if file.name != _NETWORK))

    def put_endpoint(self, endpoint_id: str, record: JsonObject) -> None:
        """Store an endpoint's record."""
        self._write(f"{endpoint_id}{_SUFFIX}", record)

    def remove_endpoint(self, endpoint_id: str) -> None:
        """Remove an endpoint's record; it need not exist."""
        (self._directory / f"{endpoint_id}{_SUFFIX}").unlink(missing_ok=True)

    def _read(self, name: str) -> JsonObject | None:
        file = self._directory / name
        try:
            return as_object(parse_json(file.read_bytes()), "it")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except JsonError as exc:
            msg = f"the record {file} is damaged"
            raise CallError(ErrorCode.IO_FAILURE, msg, f"{exc}; remove it if the driver does not know it") from exc

    def _write(self, name: str, record: JsonObject) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._directory / f"{name}.part"
        with part.open("wb") as opened:
            opened.write(render_json(record))
            opened.flush()
            os.fsync(opened.fileno())
        part.rename(self._directory / name)
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
