# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The store keeps records over restarts, allows only legal steps, and belongs to one process."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import ParamSpec, TypeVar

import plyvel
import pytest

from state import (
    SCHEMA_VERSION,
    TRANSITIONS,
    AttachmentId,
    EndpointId,
    EndpointRecord,
    NetworkRecord,
    Phase,
    RecordDamaged,
    RecordNotFound,
    SchemaTooNew,
    StateLocked,
    StateUnusable,
    Store,
    WrongPhase,
)

P = ParamSpec("P")
T = TypeVar("T")

PHASES: tuple[Phase | None, ...] = (None, *Phase)


class AtOnce(ThreadPoolExecutor):
    """A writer that is done before anybody can look."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Wait for the end of what is begun."""
        future = super().submit(fn, *args, **kwargs)
        wait([future])
        return future


async def test_a_disk_that_is_faster_than_the_event_loop(tmp_path: Path, endpoint: EndpointRecord) -> None:
    """A record that has been stored is there at once; Python 3.14 does not turn to other tasks before that."""
    store = Store.open(tmp_path)
    store._db._writer.shutdown()
    store._db._writer = AtOnce(max_workers=1)
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED):
        await store.put_endpoint(replace(endpoint, phase=phase))
        assert store.get_endpoint(endpoint.id).phase is phase
    store.close()


async def test_records_outlive_the_store(tmp_path: Path, network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """What was stored is there when the store is opened again."""
    store = Store.open(tmp_path)
    await store.put_network(network)
    await store.put_endpoint(endpoint)
    store.close()
    store = Store.open(tmp_path)
    assert store.networks() == (network,)
    assert store.find_network(network.id) == network
    assert store.endpoints() == (endpoint,)
    assert store.get_endpoint(endpoint.id) == endpoint
    store.close()


async def test_records_are_parsed_once(store: Store, network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """Reading again gives the same object, until the record changes."""
    await store.put_network(network)
    await store.put_endpoint(endpoint)
    assert store.find_network(network.id) is store.networks()[0]
    before = store.endpoints()
    assert store.endpoints() is before
    assert store.find_endpoint(endpoint.id) is before[0]
    await store.put_endpoint(replace(endpoint, phase=Phase.READY))
    assert [record.phase for record in store.endpoints()] == [Phase.READY]


async def test_a_record_that_fails_to_be_written_stays(store: Store, endpoint: EndpointRecord) -> None:
    """Memory has what the disk has."""
    await store.put_endpoint(endpoint)
    stored = store.find_endpoint(endpoint.id)
    with pytest.raises(ValueError, match="Out of range float"):
        await store.put_endpoint(replace(endpoint, phase=Phase.READY, result={"x": float("nan")}))
    assert store.find_endpoint(endpoint.id) is stored


async def test_a_write_whose_caller_goes_away(tmp_path: Path, endpoint: EndpointRecord) -> None:
    """It is done all the same, on the disk and in memory."""
    store = Store.open(tmp_path)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.put_endpoint(endpoint))
        await asyncio.sleep(0)  # it has begun
        writing.cancel()
    await store.put_endpoint(replace(endpoint, id=EndpointId("f" * 64)))  # one at a time: the first is done then
    assert writing.cancelled()
    assert [record.id for record in store.endpoints()] == ["e" * 64, "f" * 64]
    store.close()


async def test_endpoints_are_found_by_what_they_hold(store: Store, endpoint: EndpointRecord) -> None:
    """By any of their addresses and by their sandbox, until they change or go."""
    other = replace(endpoint, id=EndpointId("f" * 64), addresses=("10.0.0.2", "fd00::2"))
    await store.put_endpoint(replace(endpoint, addresses=("10.0.0.1", "10.0.0.2"), sandbox_key="/run/x"))
    await store.put_endpoint(other)

    def found(*addresses: str) -> list[str]:
        return [record.id[0] for record in store.endpoints_with_address(addresses)]

    assert (found("10.0.0.1"), found("10.0.0.2"), found("fd00::2", "10.0.0.1")) == (["e"], ["e", "f"], ["e", "f"])
    assert found("10.0.0.3") == []
    assert [record.id for record in store.endpoints_in_sandbox("/run/x")] == [endpoint.id]
    await store.put_endpoint(replace(other, addresses=("10.0.0.1",), phase=Phase.DELETING))
    assert (found("10.0.0.1"), found("10.0.0.2"), found("fd00::2")) == (["e", "f"], ["e"], [])
    await store.remove_endpoint(other.id)
    assert found("10.0.0.1") == ["e"]


async def test_an_attachment_has_an_id_of_its_own(store: Store, endpoint: EndpointRecord) -> None:
    """An endpoint is found by the ID that CNI knows, which need not be Docker's, until its record is removed."""
    other = AttachmentId("abcdef012345")
    endpoint = replace(endpoint, attachment=replace(endpoint.attachment, id=other))
    await store.put_endpoint(endpoint)
    assert store.find_attachment(AttachmentId(endpoint.id)) is None
    assert store.find_attachment(other) == endpoint
    await store.put_endpoint(replace(endpoint, phase=Phase.DELETING))
    await store.remove_endpoint(endpoint.id)
    assert store.find_attachment(other) is None


async def test_removed_network_is_gone(store: Store, network: NetworkRecord) -> None:
    """A network can be removed, and removed again."""
    await store.put_network(network)
    await store.remove_network(network.id)
    await store.remove_network(network.id)
    assert store.find_network(network.id) is None
    assert store.networks() == ()


def test_unknown_endpoint_is_named(store: Store, endpoint: EndpointRecord) -> None:
    """Asking for what is not there says what was asked for."""
    assert store.find_endpoint(endpoint.id) is None
    with pytest.raises(RecordNotFound, match=endpoint.id):
        store.get_endpoint(endpoint.id)


async def _bring_to(store: Store, endpoint: EndpointRecord, phase: Phase | None) -> None:
    """Lead a new endpoint along legal steps."""
    ways: dict[Phase | None, tuple[Phase, ...]] = {
        None: (),
        Phase.PENDING: (Phase.PENDING,),
        Phase.READY: (Phase.PENDING, Phase.READY),
        Phase.JOINED: (Phase.PENDING, Phase.READY, Phase.JOINED),
        Phase.DELETING: (Phase.PENDING, Phase.DELETING),
    }
    for step in ways[phase]:
        await store.put_endpoint(replace(endpoint, phase=step))


@pytest.mark.parametrize(("start", "end"), [(s, e) for s, e in product(PHASES, PHASES) if s or e])
async def test_only_legal_steps(store: Store, endpoint: EndpointRecord, start: Phase | None, end: Phase | None) -> None:
    """From each phase the table's steps succeed, and any other leaves the record untouched."""
    await _bring_to(store, endpoint, start)
    before = store.find_endpoint(endpoint.id)

    async def step() -> None:
        if end is None:
            await store.remove_endpoint(endpoint.id)
        else:
            await store.put_endpoint(replace(endpoint, phase=end))

    if end in TRANSITIONS[start]:
        await step()
        after = store.find_endpoint(endpoint.id)
        assert (after.phase if after else None) == end
    else:
        with pytest.raises(WrongPhase):
            await step()
        assert store.find_endpoint(endpoint.id) == before


async def test_a_removal_is_announced(store: Store, endpoint: EndpointRecord) -> None:
    """Whoever keeps something of an endpoint in memory learns that its record is gone, and not before."""
    removed: list[str] = []
    store.when_removed(removed.append)
    await _bring_to(store, endpoint, Phase.READY)
    with pytest.raises(WrongPhase):
        await store.remove_endpoint(endpoint.id)
    assert removed == []
    await store.put_endpoint(replace(endpoint, phase=Phase.DELETING))
    await store.remove_endpoint(endpoint.id)
    assert removed == [endpoint.id]


def test_no_endpoint_is_removed_before_its_del() -> None:
    """The only way to "no record" leads through DELETING."""
    assert {phase for phase, ends in TRANSITIONS.items() if None in ends} == {Phase.DELETING}


def test_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    """A state directory in use is refused, naming its holder, and is free afterwards."""
    store = Store.open(tmp_path)
    with pytest.raises(StateLocked, match=f"process {os.getpid()}"):
        Store.open(tmp_path)
    store.close()
    Store.open(tmp_path).close()


def test_newer_schema_is_left_alone(tmp_path: Path) -> None:
    """State of a newer version is refused and not changed."""
    Store.open(tmp_path).close()
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        db.put(b"meta/schema", str(SCHEMA_VERSION + 1).encode())
    with pytest.raises(SchemaTooNew, match=f"schema version {SCHEMA_VERSION + 1}"):
        Store.open(tmp_path)
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        assert db.get(b"meta/schema") == str(SCHEMA_VERSION + 1).encode()


@pytest.mark.parametrize("value", [b"one", b'"1"', b"true", b""])
def test_unreadable_schema_version_is_damage(tmp_path: Path, value: bytes) -> None:
    """A schema version that is no number is refused."""
    Store.open(tmp_path).close()
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        db.put(b"meta/schema", value)
    with pytest.raises(RecordDamaged, match="meta/schema"):
        Store.open(tmp_path)


def test_files_that_are_no_database(tmp_path: Path) -> None:
    """A directory that LevelDB cannot open is an error that names it, and gives the lock back."""
    (tmp_path / "leveldb").write_text("not a directory")
    with pytest.raises(StateUnusable, match=str(tmp_path)):
        Store.open(tmp_path)
    (tmp_path / "leveldb").unlink()
    Store.open(tmp_path).close()


def test_state_is_private(tmp_path: Path) -> None:
    """Configurations may hold credentials: only the owner can look, also where the directory was there before."""
    (tmp_path / "state").mkdir(mode=0o755)
    Store.open(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_what_is_written_after_a_failure_is_kept(tmp_path: Path) -> None:
    """A write that failed half-way, as on a full disk, takes nothing with it that is acknowledged later."""
    directory = tmp_path / "state"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, directory], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["StateUnusable", "stored"], done.stderr
    store = Store.open(directory)
    assert [network.id for network in store.networks()] == ["1" * 64, "3" * 64]
    store.close()


FULL_DISK = """
import asyncio, resource, signal, sys
from pathlib import Path
from state import NetworkRecord, StateUnusable, Store

def network(name, options):
    return NetworkRecord(id=name, configuration=None, name=None, internal=False, options=options)

async def main():
    store = Store.open(Path(sys.argv[1]))
    await store.put_network(network("1" * 64, {}))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, unlimited[1]))  # a write ends in the middle, as without space
    try:
        await store.put_network(network("2" * 64, {"x": "y" * 100_000}))
    except StateUnusable:
        print("StateUnusable")
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await store.put_network(network("3" * 64, {}))
    print("stored")
    store.close()

asyncio.run(main())
"""
