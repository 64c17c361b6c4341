# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lines of `cni-bridge events`."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.commands import events
from cnm_bridge.operator.cli.commands.events import Names, event_line
from cnm_bridge.operator.cli.containers import Container, Inventory

GONE: JsonObject = {
    "time": "2026-01-02T03:04:05.678+00:00",
    "event": "endpoint.phase",
    "endpointId": "77" * 32,
    "networkId": "6f" * 32,
    "phase": None,
}


def test_the_last_phase_is_deleted() -> None:
    """The document has null."""
    assert event_line(GONE, "web") == "03:04:05.678  web  endpoint.phase  deleted"


def test_a_joined_endpoint_has_its_addresses() -> None:
    """Docker may not know them."""
    line = event_line({**GONE, "phase": "joined", "addresses": ["10.1.2.3", "fd00::3"]}, "web")
    assert line == "03:04:05.678  web  endpoint.phase  joined  10.1.2.3 fd00::3"


def test_what_happened() -> None:
    """A call, and an execution that has failed, with their durations."""
    call: JsonObject = {**GONE, "event": "rpc.answered", "rpc": "NetworkDriver.Join", "durationMs": 1816.4}
    assert event_line(call, "web") == "03:04:05.678  web  rpc.answered  Join  1816 ms"
    failed: JsonObject = {
        "time": GONE["time"],
        "event": "plugin.executed",
        "plugin": "bridge",
        "verb": "ADD",
        "containerId": "77" * 32,
        "outcome": "PluginFailed",
        "durationMs": 3.2,
    }
    assert event_line(failed, "web") == "03:04:05.678  web  plugin.executed  bridge ADD  3 ms  PluginFailed"


def test_events_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that has just started is asked for again, and keeps its name when it has gone."""
    listed: dict[str, Container] = {}
    endpoints: list[JsonObject] = [{"id": "77" * 32, "networkId": "6f" * 32}]

    def take(*_: object, limit_s: float) -> Inventory:
        assert limit_s <= 2.0
        document: JsonObject = {"networks": [{"id": "6f" * 32, "name": "blue"}], "endpoints": [*endpoints]}
        return Inventory(document=document, containers={**listed}, network_names={}, notes=())

    monkeypatch.setattr(events, "take_inventory", take)
    monkeypatch.setattr(events, "_PAUSE_S", 0.0)
    names = Names(AdminClient(Path("/none")), "unix:///none")
    plugin: JsonObject = {"time": "", "event": "plugin.executed", "containerId": "77" * 32}
    assert names.of(plugin) == "777777777777"
    assert names.of(GONE) == "777777777777 on blue"
    assert names.of({"time": "", "event": "rpc.answered", "networkId": "6f" * 32}) == "network blue"
    assert names.of({"time": "", "event": "events.lost"}) == "cni-bridge"
    listed["77" * 32] = Container(id="aa", name="web", image="busybox", state="running")
    assert names.of(plugin) == "777777777777 web on blue"
    endpoints.clear()
    listed.clear()
    assert names.of({**plugin, "containerId": "78" * 32}) == "787878787878"
    assert names.of(plugin) == "777777777777 web on blue"


@pytest.mark.parametrize("note", ["no answer", ""])
def test_how_often_names_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], note: str
) -> None:
    """Not for each event; an engine that does not answer is left alone for longer, and the note is shown once."""
    asked: list[float] = []
    now = [100.0]

    def take(*_: object, limit_s: float) -> Inventory:
        asked.append(limit_s)
        notes = (note,) if note else ()
        return Inventory(document={"networks": [], "endpoints": []}, containers={}, network_names={}, notes=notes)

    monkeypatch.setattr(events, "take_inventory", take)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    names = Names(AdminClient(Path("/none")), "unix:///none")
    for now[0] in (100.0, 100.5, 101.5, 161.5):
        names.of(GONE)
    assert len(asked) == (2 if note else 3)
    assert capsys.readouterr().err == (f"cni-bridge: {note}\n" if note else "")
