# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The store of networks and endpoints; it survives restarts of the daemon, the engine and the host.

| key                   | value                                           |
| --------------------- | ----------------------------------------------- |
| `meta/schema`         | schema version, e.g. `1`                        |
| `meta/engine`         | the engine's own ID                             |
| `meta/engine-release` | the engine's release, e.g. `28.5`               |
| `network/<id>`        | a `NetworkRecord`, see `state/codec.py`         |
| `endpoint/<id>`       | an `EndpointRecord`, likewise                   |
| `pool/<id>`           | an `AddressPoolRecord`, see `address_store.py`  |
| `address/<id>`        | an `AddressRecord`, likewise                    |
| `memory/<list>/<key>` | a `MemoryRecord`; see `memories.py`             |
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Self

from cni_bridge_spec import JsonObject, JsonValue, as_object, parse_json
from cni_bridge_state.address_store import ADDRESSES, POOLS, AddressStore
from cni_bridge_state.codec import render_value
from cni_bridge_state.damage import find_copies
from cni_bridge_state.damaged_records import leave, load_all, set_aside
from cni_bridge_state.db import Database
from cni_bridge_state.errors import (
    ImportRefused,
    RecordNotFound,
    WrongPhase,
)
from cni_bridge_state.index import Index
from cni_bridge_state.memories import MEMORIES, Memories
from cni_bridge_state.migrations import MIGRATIONS, SCHEMA_KEY, Migrations, migrate_all, refuse_newer
from cni_bridge_state.phases import TRANSITIONS, Phase
from cni_bridge_state.records import AttachmentId, EndpointId, EndpointRecord, NetworkId, NetworkRecord
from cni_bridge_state.transfer import parse_export, render_export

_ENGINE_KEY: Final = "meta/engine"
_RELEASE_KEY: Final = "meta/engine-release"
_NETWORKS: Final = "network/"
_ENDPOINTS: Final = "endpoint/"


class Store:
    """Typed records in a `Database`.

    A change is on disk when its method returns; if the method raises, nothing has changed. The caller serializes the
    steps of one endpoint with a lock; different endpoints are independent.

    Records are parsed once, when the store is opened. Reads are free and return the same object until the record
    changes.

    Attributes:
        findings: The damage that was met when it was opened, and what was done about it.
        ipam: The pools and addresses that Docker has requested.
        memories: What the last containers with keys had.
        not_migrated: Why the records of an earlier version could not be written as this version's, None if they could.
            Nothing else can be written before, and everything can be read.
    """

    def __init__(self, db: Database, migrations: Migrations, not_migrated: str | None = None) -> None:
        self._db = db
        self._migrations = migrations
        self.findings = db.findings
        self.not_migrated = not_migrated
        self.ipam = AddressStore(db)
        self.memories = Memories()
        self._networks: dict[NetworkId, NetworkRecord] = {}
        self._endpoints: dict[EndpointId, EndpointRecord] = {}
        self._in_order: tuple[EndpointRecord, ...] | None = None
        self._by_address = Index[EndpointRecord](lambda record: record.addresses)
        self._by_mac = Index[EndpointRecord](lambda record: ((record.attachment.network, record.mac),))
        self._by_sandbox = Index[EndpointRecord](lambda record: (record.sandbox,) if record.sandbox_key else ())
        self._by_attachment: dict[AttachmentId, EndpointId] = {}
        self._on_removed: list[Callable[[EndpointId], None]] = []
        self._on_phase: list[Callable[[EndpointRecord, bool], None]] = []
        self._load()

    @classmethod
    def open(cls, directory: Path, migrations: Migrations = MIGRATIONS) -> Self:
        """Open the store in `directory`, or create it; records of an earlier version are migrated.

        Damaged parts are set aside, and intact records are kept; `findings` describes the damage.

        Raises:
            StateLocked: Another process has it.
            SchemaTooNew: A newer cni-bridge wrote it; nothing has been changed.
            StateUnusable: Its files cannot be opened.
            RecordDamaged: Its schema version is not a number from 1 on; nothing has been changed.
        """
        known = migrations.version
        db = Database.open(directory, lambda repaired: refuse_newer(directory, repaired.get(SCHEMA_KEY), known))
        try:
            refuse_newer(directory, db.get(SCHEMA_KEY), known)
            if db.get(SCHEMA_KEY) is None:
                db.write_now({SCHEMA_KEY: str(known).encode()})
            return cls(db, migrations, migrate_all(db, (_NETWORKS, _ENDPOINTS, POOLS, ADDRESSES, MEMORIES), migrations))
        except BaseException:
            db.close()
            raise

    @classmethod
    def open_replaced(cls, directory: Path, document: JsonValue, migrations: Migrations = MIGRATIONS) -> Self:
        """Open the store with a document of `export_document` in place of its content, whichever version wrote that.

        The content is forgotten atomically, and without any DEL.

        Raises:
            ImportRefused: It is not such a document; nothing has been changed.
            StateLocked: Another process has the directory.
            StateUnusable: Its files cannot be opened or written.
        """
        entries = parse_export(document, migrations)
        db = Database.open(directory, lambda _: None)
        try:
            forgotten = dict.fromkeys(key for key, _ in db.scan(""))
            db.write_now({**forgotten, **entries, SCHEMA_KEY: str(migrations.version).encode()})
            return cls(db, migrations)
        except BaseException:
            db.close()
            raise

    def close(self) -> None:
        """Wait for pending writes and release the directory."""
        self._db.close()

    def damaged_copies(self) -> tuple[Path, ...]:
        """Return the copies of damaged files that still exist; they may mention running containers."""
        return find_copies(self._db.path)

    def engine_identity(self) -> str | None:
        """Return the ID of the engine that our networks belong to, None if it is not known yet."""
        value = self._db.get(_ENGINE_KEY)
        return None if value is None else value.decode("utf-8", "replace")

    async def put_engine_identity(self, identity: str) -> None:
        """Store the ID of the engine that our networks belong to."""
        await self._db.write({_ENGINE_KEY: identity.encode()})

    def engine_release(self) -> str | None:
        """Return the release that the engine reported last, e.g. `28.5`; None if none has."""
        value = self._db.get(_RELEASE_KEY)
        return None if value is None else value.decode("utf-8", "replace")

    async def put_engine_release(self, release: str) -> None:
        """Store the release that the engine has reported."""
        await self._db.write({_RELEASE_KEY: release.encode()})

    def export_document(self) -> JsonObject:
        """Return the whole state, as `spec/state/export.json`."""
        return as_object(parse_json(b"".join(self.export_in_parts())), "the export")

    def export_in_parts(self) -> Iterator[bytes]:
        """Yield `export_document` as JSON in small parts; may run in another thread."""
        return render_export(self._db.scan(""), self._migrations.version)

    def import_document(self, document: JsonValue) -> None:
        """Load a document of `export_document` atomically into the empty state; blocks until it is on disk.

        Raises:
            ImportRefused: It is not such a document, or the state is not empty.
            StateUnusable: It cannot be written.
        """
        entries = parse_export(document, self._migrations)
        present = [key for key, _ in self._db.scan("") if key != SCHEMA_KEY]
        if present:
            raise ImportRefused(
                f"there is a state in {self._db.path} already: {len(self.networks())} networks, "
                f"{len(self.endpoints())} endpoints; export it, and import with --replace to forget it"
            )
        self._db.write_now(entries)
        self._load()

    def networks(self) -> tuple[NetworkRecord, ...]:
        """Return all networks, by ID."""
        return tuple(self._networks[network_id] for network_id in sorted(self._networks))

    def find_network(self, network_id: NetworkId) -> NetworkRecord | None:
        """Return the network's record, None if there is none."""
        return self._networks.get(network_id)

    async def put_network(self, record: NetworkRecord) -> None:
        """Store a network's record, in place of an earlier one."""
        kept = partial(self._keep_network, record)
        await self._db.write({f"{_NETWORKS}{record.id}": render_value(record)}, on_written=kept)

    async def remove_network(self, network_id: NetworkId) -> None:
        """Remove a network's record, if there is one."""
        removed = partial(self._forget_network, network_id)
        await self._db.write({f"{_NETWORKS}{network_id}": None}, on_written=removed)

    def endpoints(self) -> tuple[EndpointRecord, ...]:
        """Return all endpoints, by ID."""
        if self._in_order is None:
            self._in_order = tuple(self._endpoints[endpoint_id] for endpoint_id in sorted(self._endpoints))
        return self._in_order

    def endpoints_with_address(self, addresses: Iterable[str]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that have any of some addresses in `EndpointRecord.addresses`, by ID."""
        return tuple(sorted(self._by_address.find(*addresses), key=lambda record: record.id))

    def endpoints_with_mac(self, network: str, mac: str) -> tuple[EndpointId, ...]:
        """Return the endpoints on a CNI network whose link has, or will have, a MAC, in lower case.

        Those that are being torn down are left out: a container that starts again often gets the MAC that it had.
        """
        found = self._by_mac.find((network, mac))
        return tuple(sorted(one.id for one in found if one.phase is not Phase.DELETING))

    def endpoints_in_sandbox(self, sandbox: Path) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that were joined to a sandbox, by ID."""
        return tuple(sorted(self._by_sandbox.find(sandbox), key=lambda record: record.id))

    def find_endpoint(self, endpoint_id: EndpointId) -> EndpointRecord | None:
        """Return the endpoint's record, None if there is none."""
        return self._endpoints.get(endpoint_id)

    def find_attachment(self, attachment_id: AttachmentId) -> EndpointRecord | None:
        """Return the record of the endpoint that has an attachment, None if there is none."""
        endpoint_id = self._by_attachment.get(attachment_id)
        return None if endpoint_id is None else self._endpoints[endpoint_id]

    def get_endpoint(self, endpoint_id: EndpointId) -> EndpointRecord:
        """Return the endpoint's record.

        Raises:
            RecordNotFound: There is none.
        """
        record = self.find_endpoint(endpoint_id)
        if record is None:
            raise RecordNotFound("endpoint", endpoint_id)
        return record

    async def put_endpoint(self, record: EndpointRecord, *, sync: bool = True) -> None:
        """Store an endpoint's next phase, or another change of its record.

        Args:
            record: The record.
            sync: Whether it must survive a crash of the host. Without it, it survives the end of the process.

        Raises:
            WrongPhase: `TRANSITIONS` does not lead from the stored phase to the record's.
        """
        self._check(record.id, record.phase)
        await self._write_endpoint(record, sync=sync)

    async def put_found_endpoint(self, record: EndpointRecord) -> None:
        """Store an endpoint that was found, not made, in whatever phase it is.

        Raises:
            WrongPhase: There is a record of it.
        """
        stored = self._endpoints.get(record.id)
        if stored is not None:
            raise WrongPhase(record.id, stored.phase, record.phase)
        await self._write_endpoint(record)

    async def remove_endpoint(self, endpoint_id: EndpointId) -> None:
        """Remove an endpoint's record, which must be in DELETING: its DEL is done.

        Raises:
            WrongPhase: It is in another phase.
        """
        self._check(endpoint_id, None)
        removed = partial(self._remove_endpoint, endpoint_id)
        await self._db.write({f"{_ENDPOINTS}{endpoint_id}": None}, on_written=removed)

    def when_removed(self, forget: Callable[[EndpointId], None]) -> None:
        """Have `forget` called in the event loop with the ID of each endpoint whose record has been removed."""
        self._on_removed.append(forget)

    def when_phase_changed(self, note: Callable[[EndpointRecord, bool], None]) -> None:
        """Have `note` called in the event loop for each new record, each change of a phase and each removal.

        It takes the record that is stored now, or that was removed, and whether it was removed. It must not raise.
        """
        self._on_phase.append(note)

    def _check(self, endpoint_id: EndpointId, wanted: Phase | None) -> None:
        stored = self._endpoints.get(endpoint_id)
        phase = None if stored is None else stored.phase
        if wanted not in TRANSITIONS[phase]:
            raise WrongPhase(endpoint_id, phase, wanted)

    async def _write_endpoint(self, record: EndpointRecord, *, sync: bool = True) -> None:
        memory = self.memories.next_of(self._endpoints.get(record.id), record)
        changes = {f"{_ENDPOINTS}{record.id}": render_value(record), **self.memories.render_changes(memory)}

        def keep() -> None:
            self._store_endpoint(record)
            if memory is not None:
                self.memories.keep(memory)

        await self._db.write(changes, on_written=keep, sync=sync)

    def _load(self) -> None:
        """Parse the content of the database; set damaged records aside."""
        self._networks.clear()
        for endpoint_id in tuple(self._endpoints):
            self._forget_endpoint(endpoint_id)
        damaged = (
            *load_all(self._db, _NETWORKS, NetworkRecord, self._keep_network),
            *load_all(self._db, _ENDPOINTS, EndpointRecord, self._keep_endpoint),
            *self.ipam.load(),
            *self.memories.load(self._db),
        )
        # Without space for the migration nothing can be written: the next start sets damaged records aside.
        put = set_aside if self.not_migrated is None else leave
        self.findings = (*self.findings, *put(self._db, damaged))

    def _keep_network(self, record: NetworkRecord) -> None:
        self._networks[record.id] = record

    def _forget_network(self, network_id: NetworkId) -> None:
        self._networks.pop(network_id, None)

    def _keep_endpoint(self, record: EndpointRecord) -> None:
        if record.id in self._endpoints:
            self._forget_endpoint(record.id)
        self._in_order = None
        self._endpoints[record.id] = record
        self._by_address.add(record)
        self._by_mac.add(record)
        self._by_sandbox.add(record)
        self._by_attachment[record.attachment.id] = record.id

    def _store_endpoint(self, record: EndpointRecord) -> None:
        before = self._endpoints.get(record.id)
        self._keep_endpoint(record)
        if before is None or before.phase is not record.phase:
            for note in self._on_phase:
                note(record, False)

    def _remove_endpoint(self, endpoint_id: EndpointId) -> None:
        record = self._endpoints.get(endpoint_id)
        self._forget_endpoint(endpoint_id)
        if record is not None:
            for note in self._on_phase:
                note(record, True)
        for forget in self._on_removed:
            forget(endpoint_id)

    def _forget_endpoint(self, endpoint_id: EndpointId) -> None:
        self._in_order = None
        record = self._endpoints.pop(endpoint_id, None)
        if record is not None:
            self._by_address.discard(record)
            self._by_mac.discard(record)
            self._by_sandbox.discard(record)
            self._by_attachment.pop(record.attachment.id, None)
