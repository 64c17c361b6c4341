# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's records, read while it runs."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import get_objects, get_str
from cni_bridge_state import AddressRecord, EndpointRecord, Phase, StateError
from cni_bridge_state.store import Store
from tests.soak.shortage import Taken

_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What the daemon has on disk."""

    networks: frozenset[str]
    endpoints: tuple[EndpointRecord, ...]
    addresses: tuple[AddressRecord, ...]

    def pending_addresses(self) -> frozenset[Taken]:
        """Return the addresses of endpoints whose teardown is pending, whether they are still reserved or not."""
        return frozenset(
            (get_str(record.attachment.configuration, "name"), get_str(ip, "address").partition("/")[0])
            for record in self.endpoints
            if record.phase is Phase.DELETING and record.result is not None
            for ip in get_objects(record.result, "ips")
        )


def read_records(directory: Path) -> Records:
    """Read a copy of the daemon's state, as the daemon holds the lock on the original.

    Raises:
        AssertionError: No copy can be read.
    """
    for _ in range(_ATTEMPTS):
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / "state"
            try:
                shutil.copytree(directory, copy)
                store = Store.open(copy)
            except (StateError, OSError, shutil.Error):  # the daemon wrote meanwhile
                continue
            try:
                if not store.findings:
                    networks = frozenset(record.id for record in store.networks())
                    addresses = tuple(store.ipam.addresses())
                    return Records(networks=networks, endpoints=tuple(store.endpoints()), addresses=addresses)
            finally:
                store.close()
    raise AssertionError(f"the copy of {directory} cannot be read, {_ATTEMPTS} times")
