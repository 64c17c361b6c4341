# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The journal keeps the last events, and a slow reader holds up nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cni_bridge_spec import JsonValue, load_validator
from cni_bridge_state import Phase
from cni_bridge_state.store import Store
from cni_invoker import Execution, Verb
from cnm_bridge.system.journal import Event, Journal
from tests.records import endpoint, put


def facts(journal: Journal) -> list[tuple[str, Mapping[str, JsonValue]]]:
    """Return all events without their time."""
    return [(event.name, event.facts) for event in journal]


def test_the_last_events_are_kept() -> None:
    """However many there were."""
    journal = Journal()
    for number in range(10_000):
        journal.add("rpc.answered", number=number)
    kept = [event.facts["number"] for event in journal]
    assert kept == list(range(10_000 - len(kept), 10_000))
    assert 1000 < len(kept) < 10_000


def test_an_execution_is_an_event() -> None:
    """It fits the schema."""
    journal = Journal()
    journal.on_execution(
        Execution(plugin="bridge", verb=Verb.ADD, container_id="c1", outcome="success", duration_s=0.01234)
    )
    (event,) = journal
    document = load_validator("admin/event")(event.as_json())
    assert document["event"] == "plugin.executed"
    assert (document["plugin"], document["verb"], document["containerId"]) == ("bridge", "ADD", "c1")
    assert (document["outcome"], document["durationMs"]) == ("success", 12.3)


async def test_phases_are_events(tmp_path: Path) -> None:
    """A change of the phase and the removal are; a record that is stored again in its phase is not."""
    store, journal = Store.open(tmp_path), Journal()
    try:
        store.when_phase_changed(journal.on_phase)
        await put(store, endpoint("e" * 64, phase=Phase.READY))
        joined = replace(endpoint("e" * 64, phase=Phase.JOINED), addresses=("10.1.2.3",))
        await store.put_endpoint(joined)
        await store.put_endpoint(joined)
        await store.put_endpoint(endpoint("e" * 64, phase=Phase.DELETING))
        await store.remove_endpoint(endpoint("e" * 64).id)
    finally:
        store.close()
    assert [event.name for event in journal] == ["endpoint.phase"] * len(list(journal))
    assert [event.facts["phase"] for event in journal][-3:] == ["joined", "deleting", None]
    assert [event.facts.get("addresses") for event in journal][-3:] == [["10.1.2.3"], None, None]
    for event in journal:
        load_validator("admin/event")(event.as_json())


async def test_a_slow_reader_misses_events() -> None:
    """It learns how many; the daemon keeps a limited number for it."""
    journal = Journal()
    reader = journal.follow()
    seen: list[Event] = []
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(anext(reader))
        await asyncio.sleep(0)  # until it listens
        for number in range(5000):
            journal.add("rpc.answered", number=number)
        seen.append(await first)
        while seen[-1].name != "events.lost":
            seen.append(await anext(reader))
    await reader.aclose()
    lost = seen.pop()
    load_validator("admin/event")(lost.as_json())
    assert [event.facts["number"] for event in seen] == list(range(len(seen)))
    assert lost.facts == {"count": 5000 - len(seen)}
