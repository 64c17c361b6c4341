# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A state directory whose complete history is known, for tests that damage it."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cni_bridge_state import EndpointId, EndpointRecord, NetworkId, NetworkRecord, Phase
from cni_bridge_state.codec import render_value
from cni_bridge_state.store import Store

Content = Mapping[str, bytes]
Damage = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class History:
    """A state directory, and everything that it ever contained.

    Attributes:
        directory: The state directory.
        moments: Its content after each write, oldest first.
        ends: The sizes of the log after each write since the store was last opened.
    """

    directory: Path
    moments: tuple[Content, ...]
    ends: frozenset[int]

    @property
    def last(self) -> Content:
        """Return its final content."""
        return self.moments[-1]

    @property
    def written(self) -> set[tuple[str, bytes]]:
        """Return every version of every record that was ever stored."""
        return {entry for moment in self.moments for entry in moment.items()}

    def files(self) -> dict[str, bytes]:
        """Return the database's files that hold data."""
        found = {path.name: path.read_bytes() for path in sorted((self.directory / "leveldb").iterdir())}
        return {name: content for name, content in found.items() if not name.startswith("LO")}

    def damaged(self, where: Path, name: str, damage: Damage) -> Path:
        """Copy the state directory, and damage one file of the copy."""
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(self.directory, where)
        path = where / "leveldb" / name
        path.write_bytes(damage(path.read_bytes()))
        return where


def content(store: Store) -> Content:
    """Return the content of a store, as stored."""
    networks = {f"network/{record.id}": render_value(record) for record in store.networks()}
    return networks | {f"endpoint/{record.id}": render_value(record) for record in store.endpoints()}


async def make_history(directory: Path, network: NetworkRecord, endpoint: EndpointRecord) -> History:
    """Make a store that was opened three times: some records are in tables, some in the log, some are removed."""
    moments: list[Content] = []
    ends: set[int] = set()
    steps: list[list[NetworkRecord | EndpointRecord | str]] = [
        [replace(network, id=NetworkId(f"{n:064x}"), options={"cni.network": "blue"}) for n in range(3)],
        [
            replace(endpoint, id=EndpointId(f"{n + 16:064x}"), phase=phase)
            for n in range(3)
            for phase in (Phase.PENDING, Phase.READY)
        ],
        [
            replace(endpoint, id=EndpointId(f"{17:064x}"), phase=Phase.JOINED),
            replace(endpoint, id=EndpointId(f"{18:064x}"), phase=Phase.DELETING),
            EndpointId(f"{18:064x}"),
            NetworkId("0" * 64),
            replace(endpoint, id=EndpointId(f"{19:064x}")),
        ],
    ]
    for session in steps:
        store = Store.open(directory)
        ends = {0}
        for step in session:
            match step:
                case NetworkRecord():
                    await store.put_network(step)
                case EndpointRecord():
                    await store.put_endpoint(step)
                case str() if step == "0" * 64:
                    await store.remove_network(NetworkId(step))
                case str():
                    await store.remove_endpoint(EndpointId(step))
            moments.append(content(store))
            ends |= {path.stat().st_size for path in (directory / "leveldb").glob("*.log")}
        store.close()
    return History(directory, tuple(moments), frozenset(ends))
