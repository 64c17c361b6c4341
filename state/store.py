# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The store of networks and endpoints; it survives restarts of the daemon, the engine and the host.

| key                   | value                                           |
| --------------------- | ----------------------------------------------- |
| `meta/schema`         | schema version, e.g. `1`                        |
| `meta/engine`         | the engine's own ID                             |
| `meta/engine-version` | the engine's version, e.g. `28.5`               |
| `network/<id>`        | a `NetworkRecord`, see `state/codec.py`         |
| `endpoint/<id>`       | an `EndpointRecord`, likewise                   |
| `pool/<id>`           | an `AddressPoolRecord`, see `address_store.py`  |
| `address/<id>`        | an `AddressRecord`, likewise                    |
| `memory/<list>/<key>` | a `MemoryRecord`; see `memories.py`             |
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, parse_json
from cni_bridge_state.address_store import AddressStore
from cni_bridge_state.codec import SCHEMA_KEY, SCHEMA_VERSION, parse_export, render_export
from cni_bridge_state.db import Database
from cni_bridge_state.directory import find_copies
from cni_bridge_state.errors import ImportRefused, RecordDamaged, RecordNotFound, UnknownSchema, WrongPhase
from cni_bridge_state.memories import Memories
from cni_bridge_state.phases import TRANSITIONS, Phase, refuse_step
from cni_bridge_state.records import AttachmentId, EndpointId, EndpointRecord, NetworkId, NetworkRecord
from cni_bridge_state.table import Table

_ENGINE_KEY: Final = "meta/engine"
_VERSION_KEY: Final = "meta/engine-version"


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
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.ipam = AddressStore(db)
        self.memories = Memories(db)
        self._networks = Table(db, "network", NetworkRecord)
        self._endpoints = Table(db, "endpoint", EndpointRecord)
        self._by_address = self._endpoints.index(lambda record: record.addresses)
        self._by_mac = self._endpoints.index(lambda record: ((record.attachment.network, record.mac),))
        self._by_sandbox = self._endpoints.index(lambda record: (record.sandbox,) if record.sandbox_key else ())
        self._by_attachment = self._endpoints.index(lambda record: (record.attachment.id,))
        self._on_removed: list[Callable[[EndpointId], None]] = []
        self._on_phase: list[Callable[[EndpointRecord, bool], None]] = []
        self._meta = {key: value.decode("utf-8", "replace") for key, value in db.scan("meta/")}
        damaged = (
            *self._networks.load(),
            *self._endpoints.load(_sharing_configurations()),
            *self.ipam.load(),
            *self.memories.load(),
        )
        self.findings = (*db.findings, *db.set_aside(damaged))

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the store in `directory`, or create it.

        Damaged parts are set aside, and intact records are kept; `findings` describes the damage.

        Raises:
            StateLocked: Another process has it.
            UnknownSchema: A cni-bridge with another schema wrote it; nothing has been changed.
            StateUnusable: Its files cannot be opened.
            RecordDamaged: Its schema version is not a number from 1 on; nothing has been changed.
        """
        db = Database.open(directory, lambda get: _refuse_other_schema(directory, get(SCHEMA_KEY)))
        try:
            _refuse_other_schema(directory, db.get(SCHEMA_KEY))
            if db.get(SCHEMA_KEY) is None:
                db.write_now({SCHEMA_KEY: str(SCHEMA_VERSION).encode()})
            return cls(db)
        except BaseException:
            db.close()
            raise

    @classmethod
    def open_imported(cls, directory: Path, document: JsonValue, *, replace: bool = False) -> Self:
        """Open the store with a document of `export_document` as its content, which is stored atomically.

        With `replace` it takes the place of the present content, whichever version wrote that; that is forgotten
        without any DEL.

        Raises:
            ImportRefused: It is not such a document, or there is content; nothing has been changed.
            StateLocked: Another process has the directory.
            StateUnusable: Its files cannot be opened or written.
        """
        entries = parse_export(document)
        db = Database.open(directory, lambda _: None)
        try:
            present = [key for key, _ in db.scan("")]
            records = [key for key in present if not key.startswith("meta/")]
            if records and not replace:
                raise ImportRefused(
                    f"there is a state in {directory} already, of {len(records)} records; export it, and import with "
                    "--replace to forget it"
                )
            db.write_now({**dict.fromkeys(present), **entries})
            return cls(db)
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
        return self._meta.get(_ENGINE_KEY)

    async def put_engine_identity(self, identity: str) -> None:
        """Store the ID of the engine that our networks belong to."""
        await self._put_meta(_ENGINE_KEY, identity)

    def engine_version(self) -> str | None:
        """Return the version that the engine reported last, e.g. `28.5`; None if none has."""
        return self._meta.get(_VERSION_KEY)

    async def put_engine_version(self, version: str) -> None:
        """Store the version that the engine has reported."""
        await self._put_meta(_VERSION_KEY, version)

    async def _put_meta(self, key: str, value: str) -> None:
        await self._db.write({key: value.encode()}, on_written=lambda: self._meta.update({key: value}))

    def export_document(self) -> JsonObject:
        """Return the whole state, as `spec/state/export.json`."""
        return as_object(parse_json(b"".join(self.export_in_parts())), "the export")

    def export_in_parts(self) -> Iterator[bytes]:
        """Return `export_document` as JSON in small parts, which another thread may render."""
        records = {
            "network": self.networks(),
            "endpoint": self.endpoints(),
            "pool": self.ipam.pools.all(),
            "address": self.ipam.addresses(),
            "memory": self.memories.all(),
        }
        return render_export(self._meta, records)

    def networks(self) -> tuple[NetworkRecord, ...]:
        """Return all networks, by ID."""
        return self._networks.all()

    def find_network(self, network_id: NetworkId) -> NetworkRecord | None:
        """Return the network's record, None if there is none."""
        return self._networks.find(network_id)

    async def put_network(self, record: NetworkRecord) -> None:
        """Store a network's record, in place of an earlier one."""
        await self._networks.put(record)

    async def remove_network(self, network_id: NetworkId) -> None:
        """Remove a network's record, if there is one."""
        await self._networks.remove(network_id)

    def endpoints(self) -> tuple[EndpointRecord, ...]:
        """Return all endpoints, by ID."""
        return self._endpoints.all()

    def endpoints_with_address(self, addresses: Iterable[str]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that have any of some addresses in `EndpointRecord.addresses`, by ID."""
        return tuple(sorted(self._by_address.find(*addresses), key=lambda record: record.id))

    def endpoints_with_mac(self, network: str, mac: str) -> tuple[EndpointId, ...]:
        """Return the endpoints on a CNI network whose link has, or will have, a MAC, in lower case.

        Those that are being torn down are left out: a container that starts again may get the MAC that it had.
        """
        records = self._by_mac.find((network, mac))
        return tuple(sorted(record.id for record in records if record.phase is not Phase.DELETING))

    def endpoints_in_sandbox(self, sandbox: Path) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that were joined to a sandbox, by ID."""
        return tuple(sorted(self._by_sandbox.find(sandbox), key=lambda record: record.id))

    def find_endpoint(self, endpoint_id: EndpointId) -> EndpointRecord | None:
        """Return the endpoint's record, None if there is none."""
        return self._endpoints.find(endpoint_id)

    def find_attachment(self, attachment_id: AttachmentId) -> EndpointRecord | None:
        """Return the record of the endpoint that has an attachment, None if there is none."""
        return next(iter(self._by_attachment.find(attachment_id)), None)

    def get_endpoint(self, endpoint_id: EndpointId) -> EndpointRecord:
        """Return the endpoint's record."""
        record = self.find_endpoint(endpoint_id)
        if record is None:
            raise RecordNotFound("endpoint", endpoint_id)
        return record

    async def put_endpoint(self, record: EndpointRecord, *, sync: bool = True) -> None:
        """Store an endpoint's next phase, or another change of its record; `sync` is that of `Database.write`.

        Raises:
            WrongPhase: `TRANSITIONS` does not lead from the stored phase to the record's.
        """
        self._check(record.id, record.phase)
        await self._write_endpoint(record, sync=sync)

    async def put_found_endpoint(self, record: EndpointRecord) -> None:
        """Store an endpoint that was found, not made, in whatever phase it is."""
        stored = self._endpoints.find(record.id)
        if stored is not None:
            raise WrongPhase(record.id, stored.phase, record.phase)
        await self._write_endpoint(record)

    async def remove_endpoint(self, endpoint_id: EndpointId) -> None:
        """Remove an endpoint's record, which must be in DELETING (or `WrongPhase`): its DEL is done."""
        self._check(endpoint_id, None)

        def announce(record: EndpointRecord | None) -> None:
            if record is not None:
                for note in self._on_phase:
                    note(record, True)
            for forget in self._on_removed:
                forget(endpoint_id)

        await self._endpoints.remove(endpoint_id, announce)

    def when_removed(self, forget: Callable[[EndpointId], None]) -> None:
        """Have `forget` called in the event loop with the ID of each endpoint whose record has been removed."""
        self._on_removed.append(forget)

    def when_phase_changed(self, note: Callable[[EndpointRecord, bool], None]) -> None:
        """Have `note` called in the event loop for each new record, each change of a phase and each removal.

        It takes the record that is stored now, or that was removed, and whether it was removed. It must not raise.
        """
        self._on_phase.append(note)

    def _check(self, endpoint_id: EndpointId, phase: Phase | None) -> None:
        stored = self._endpoints.find(endpoint_id)
        refuse_step(TRANSITIONS, endpoint_id, None if stored is None else stored.phase, phase, "endpoint")

    async def _write_endpoint(self, record: EndpointRecord, *, sync: bool = True) -> None:
        memory = self.memories.next_of(self._endpoints.find(record.id), record)

        def keep() -> None:
            before = self._endpoints.keep(record)
            if memory is not None:
                self.memories.keep(memory)
            if before is None or before.phase is not record.phase:
                for note in self._on_phase:
                    note(record, False)

        changes = {**self._endpoints.changes(record), **self.memories.changes(memory)}
        await self._db.write(changes, on_written=keep, sync=sync)


def _sharing_configurations() -> Callable[[EndpointRecord], EndpointRecord]:
    """Return a function that gives records with equal lists the same one: thousands of endpoints have a few."""
    known: dict[str, JsonObject] = {}

    def share(record: EndpointRecord) -> EndpointRecord:
        own = record.attachment.configuration
        shared = known.setdefault(record.attachment.network, own)
        if shared is own or shared != own:
            return record
        return replace(record, attachment=replace(record.attachment, configuration=shared))

    return share


def _refuse_other_schema(directory: Path, stored: bytes | None) -> None:
    """Refuse a state that a version with another schema wrote, or whose version is not a number from 1 on."""
    if stored is None:
        return
    try:
        version = parse_json(stored)
    except JsonError as exc:
        raise RecordDamaged(SCHEMA_KEY, exc) from exc
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RecordDamaged(SCHEMA_KEY, "not a number from 1 on")
    if version != SCHEMA_VERSION:
        raise UnknownSchema(directory, version, SCHEMA_VERSION)
