# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The store keeps records across restarts, allows only legal phase changes, and belongs to one process."""

import asyncio
from dataclasses import replace
from itertools import product
from pathlib import Path

import plyvel
import pytest

from cni_bridge_spec import JsonValue
from cni_bridge_state import (
    TRANSITIONS,
    AttachmentId,
    EndpointId,
    EndpointRecord,
    NotJoined,
    Phase,
    RecordDamaged,
    RequestedInterface,
    StateUnusable,
    WrongPhase,
)
from cni_bridge_state.store import Store

PHASES: tuple[Phase | None, ...] = (None, *Phase)


async def test_values_are_stored_uncompressed(tmp_path: Path, endpoint: EndpointRecord) -> None:
    """Decompressing takes longer than all else that LevelDB does to read thousands of records."""
    store = Store.open(tmp_path)
    long = replace(endpoint.attachment, args=(("K8S_POD_NAME", "x" * 1000),))
    await store.put_endpoint(replace(endpoint, attachment=long))
    store.close()
    Store.open(tmp_path).close()  # moves it from the log into a table
    assert any(b"x" * 1000 in table.read_bytes() for table in (tmp_path / "leveldb").glob("*.ldb"))


async def test_a_failed_write_keeps_the_record(store: Store, endpoint: EndpointRecord) -> None:
    """The record in memory stays the one on disk."""
    await store.put_endpoint(endpoint)
    stored = store.find_endpoint(endpoint.id)
    with pytest.raises(ValueError, match="Out of range float"):
        await store.put_endpoint(replace(endpoint, phase=Phase.READY, result={"x": float("nan")}))
    assert store.find_endpoint(endpoint.id) is stored


async def test_a_listener_that_fails_does_not_hold_up_the_caller(store: Store, endpoint: EndpointRecord) -> None:
    """The record is stored, so the write has not failed; the error is reported, also if the caller is cancelled."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    error = KeyError("listener")

    def fail(*_: object) -> None:
        raise error

    store.when_phase_changed(fail)
    async with asyncio.timeout(10):
        await store.put_endpoint(endpoint)
    assert reported == [error]
    assert store.find_endpoint(endpoint.id) is not None
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.put_endpoint(replace(endpoint, phase=Phase.READY)))
        await asyncio.sleep(0)  # the write has begun
        writing.cancel()
    async with asyncio.timeout(10):
        while len(reported) < 2:  # noqa: ASYNC110  # no event reports it
            await asyncio.sleep(0.01)
    assert reported == [error, error]


async def test_a_write_whose_caller_is_cancelled_completes(tmp_path: Path, endpoint: EndpointRecord) -> None:
    """The record is written on disk and in memory."""
    store = Store.open(tmp_path)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.put_endpoint(endpoint))
        await asyncio.sleep(0)  # the write has begun
        writing.cancel()
    await store.put_endpoint(replace(endpoint, id=EndpointId("f" * 64)))  # after the first, which has completed
    assert writing.cancelled()
    assert [record.id for record in store.endpoints()] == ["e" * 64, "f" * 64]
    store.close()


async def test_endpoints_are_found_by_address_and_sandbox(store: Store, endpoint: EndpointRecord) -> None:
    """The indexes follow changes and removals."""
    other = replace(endpoint, id=EndpointId("f" * 64), addresses=("10.0.0.2", "fd00::2"))
    await store.put_endpoint(replace(endpoint, addresses=("10.0.0.1", "10.0.0.2"), sandbox_key="/run/x"))
    await store.put_endpoint(other)

    def found(*addresses: str) -> list[str]:
        return [record.id[0] for record in store.endpoints_with_address(addresses)]

    assert (found("10.0.0.1"), found("10.0.0.2"), found("fd00::2", "10.0.0.1")) == (["e"], ["e", "f"], ["e", "f"])
    assert found("10.0.0.3") == []
    assert [record.id for record in store.endpoints_in_sandbox(Path("/run/x"))] == [endpoint.id]
    await store.put_endpoint(replace(other, addresses=("10.0.0.1",), phase=Phase.DELETING))
    assert (found("10.0.0.1"), found("10.0.0.2"), found("fd00::2")) == (["e", "f"], ["e"], [])
    await store.remove_endpoint(other.id)
    assert found("10.0.0.1") == ["e"]


async def test_a_mac_that_several_links_have(store: Store, endpoint: EndpointRecord) -> None:
    """Given by Docker or in the snapshot, on the same CNI network, and not of an endpoint that is being torn down."""
    mac = "02:00:00:00:00:0a"
    given = replace(endpoint, requested=RequestedInterface(mac=mac.upper()))
    made = replace(endpoint, requested=RequestedInterface(), snapshot={"link": {"mac": mac}})
    elsewhere = replace(made.attachment, configuration={"name": "elsewhere"})
    ids = (one, two, three, four) = [EndpointId(digit * 64) for digit in "1234"]
    await store.put_endpoint(replace(given, id=one))
    await store.put_endpoint(replace(made, id=two))
    await store.put_endpoint(replace(made, id=three, attachment=elsewhere))
    await store.put_endpoint(replace(made, id=four, snapshot=None))
    name = endpoint.attachment.network
    assert store.endpoints_with_mac(name, mac) == (one, two)
    assert store.endpoints_with_mac("elsewhere", mac) == (three,)
    for endpoint_id in ids[:2]:
        await store.put_endpoint(replace(store.get_endpoint(endpoint_id), phase=Phase.DELETING))
    assert store.endpoints_with_mac(name, mac) == ()


@pytest.mark.parametrize("link", [7, [], {"mac": 7}, {"mac": ["02:00:00:00:00:0a"]}])
async def test_a_snapshot_without_a_readable_mac(tmp_path: Path, endpoint: EndpointRecord, link: JsonValue) -> None:
    """The record is stored and found again: its DEL needs no snapshot."""
    odd = replace(endpoint, requested=RequestedInterface(), snapshot={"link": link})
    store = Store.open(tmp_path)
    await store.put_endpoint(odd)
    assert store.endpoints() == (odd,)
    store.close()
    store = Store.open(tmp_path)
    assert store.endpoints() == (odd,)
    store.close()


def test_the_sandbox_of_an_endpoint(endpoint: EndpointRecord) -> None:
    """It is a path; without one there is an error that names the endpoint, and never the working directory."""
    assert replace(endpoint, sandbox_key="/run/x").sandbox == Path("/run/x")
    for none in (None, ""):
        with pytest.raises(NotJoined, match=f"endpoint {endpoint.id} has no sandbox"):
            _ = replace(endpoint, sandbox_key=none).sandbox


async def test_an_endpoint_is_found_by_its_attachment_id(store: Store, endpoint: EndpointRecord) -> None:
    """That ID, which CNI knows, may differ from Docker's endpoint ID; the index follows the removal."""
    other = AttachmentId("abcdef012345")
    endpoint = replace(endpoint, attachment=replace(endpoint.attachment, id=other))
    await store.put_endpoint(endpoint)
    assert store.find_attachment(AttachmentId(endpoint.id)) is None
    assert store.find_attachment(other) == endpoint
    await store.put_endpoint(replace(endpoint, phase=Phase.DELETING))
    await store.remove_endpoint(endpoint.id)
    assert store.find_attachment(other) is None


async def _advance_to(store: Store, endpoint: EndpointRecord, phase: Phase | None) -> None:
    """Take a new endpoint to a phase by legal steps."""
    steps: dict[Phase | None, tuple[Phase, ...]] = {
        None: (),
        Phase.PENDING: (Phase.PENDING,),
        Phase.READY: (Phase.PENDING, Phase.READY),
        Phase.JOINING: (Phase.PENDING, Phase.READY, Phase.JOINING),
        Phase.JOINED: (Phase.PENDING, Phase.READY, Phase.JOINED),
        Phase.DELETING: (Phase.PENDING, Phase.DELETING),
    }
    for step in steps[phase]:
        await store.put_endpoint(replace(endpoint, phase=step))


@pytest.mark.parametrize(("start", "end"), [(s, e) for s, e in product(PHASES, PHASES) if s or e])
async def test_only_legal_phase_changes_succeed(
    store: Store, endpoint: EndpointRecord, start: Phase | None, end: Phase | None
) -> None:
    """Every other change raises WrongPhase, and keeps the record."""
    await _advance_to(store, endpoint, start)
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


async def test_removal_callbacks(store: Store, endpoint: EndpointRecord) -> None:
    """Callbacks of `when_removed` receive the endpoint's ID when its record is removed, and not before."""
    removed: list[str] = []
    store.when_removed(removed.append)
    await _advance_to(store, endpoint, Phase.READY)
    with pytest.raises(WrongPhase):
        await store.remove_endpoint(endpoint.id)
    assert removed == []
    await store.put_endpoint(replace(endpoint, phase=Phase.DELETING))
    await store.remove_endpoint(endpoint.id)
    assert removed == [endpoint.id]


def test_a_record_is_only_removed_from_deleting() -> None:
    """Every other phase must pass through DELETING, which means that DEL has completed."""
    assert {phase for phase, ends in TRANSITIONS.items() if None in ends} == {Phase.DELETING}


@pytest.mark.parametrize("value", [b"one", b'"1"', b"true", b"", b"0", b"-1"])
def test_an_invalid_schema_version_is_damage(tmp_path: Path, value: bytes) -> None:
    """A schema version that is not a number from 1 on is rejected."""
    Store.open(tmp_path).close()
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        db.put(b"meta/schema", value)
    with pytest.raises(RecordDamaged, match="meta/schema"):
        Store.open(tmp_path)


def test_a_path_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    """The error names the path, and the lock is released."""
    (tmp_path / "leveldb").write_text("not a directory")
    with pytest.raises(StateUnusable, match=str(tmp_path)):
        Store.open(tmp_path)
    (tmp_path / "leveldb").unlink()
    Store.open(tmp_path).close()
