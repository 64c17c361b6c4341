# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lines of `cni-bridge events`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import ExitStatus
from cnm_bridge.operator.cli.commands import events
from cnm_bridge.operator.cli.commands.events import Names, batches_of, by_subject, event_line, with_words
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
    shown = with_words(GONE)
    line = event_line(shown)
    assert line == "  03:04:05.678  endpoint.phase  deleted"


def test_other_events_are_unchanged() -> None:
    """One without a phase gets none."""
    for event in ({**GONE, "phase": "joined"}, {"time": "", "event": "plugin.executed", "plugin": "bridge"}):
        assert with_words(event) == event


def test_a_joined_endpoint_has_its_addresses() -> None:
    """Docker may not know them."""
    line = event_line({**GONE, "phase": "joined", "addresses": ["10.1.2.3", "fd00::3"]})
    assert line == "  03:04:05.678  endpoint.phase  joined  10.1.2.3 fd00::3"


def test_a_line_has_at_most_80_columns() -> None:
    """The longest call, with its duration; only an error makes a line longer."""
    call: JsonObject = {
        **GONE,
        "event": "rpc.answered",
        "rpc": "NetworkDriver.ProgramExternalConnectivity",
        "durationMs": 1816.4,
    }
    line = event_line(call)
    assert line == "  03:04:05.678  rpc.answered    ProgramExternalConnectivity  1816 ms"
    assert len(line) <= 80
    failed: JsonObject = {
        "time": GONE["time"],
        "event": "plugin.executed",
        "plugin": "bridge",
        "verb": "ADD",
        "containerId": "77" * 32,
        "outcome": "PluginFailed",
        "durationMs": 3.2,
    }
    assert event_line(failed) == "  03:04:05.678  plugin.executed bridge ADD  3 ms  PluginFailed"


def test_each_endpoint_has_one_block() -> None:
    """In the order of their first events; an event of a plugin has the endpoint's ID as that of its container."""
    one, other = GONE, {**GONE, "endpointId": "88" * 32}
    plugin: JsonObject = {"time": "", "event": "plugin.executed", "containerId": "77" * 32}
    assert [*by_subject([one, other, plugin, other])] == [one, plugin, other, other]


def test_what_follows_at_once_is_shown_together() -> None:
    """Nothing is lost when the daemon ends, and its error follows."""

    def stream() -> Iterator[JsonObject]:
        yield from (GONE, GONE)
        raise DaemonError("it has ended", ExitStatus.NO_DAEMON)

    found: list[Sequence[JsonObject]] = []
    with pytest.raises(DaemonError, match="it has ended"):
        found.extend(batches_of(stream()))
    assert found == [[GONE, GONE]]
    assert [*batches_of(())] == []


def test_titles_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that has just started is asked for again; an event of a plugin does not have its network."""
    listed: list[Container] = []

    def take(*_: object, limit_s: float) -> Inventory:
        assert limit_s <= 2.0
        found = {"77" * 32: listed.pop()} if listed else {}
        return Inventory(
            document={"networks": [{"id": "6f" * 32, "name": "blue"}]}, containers=found, network_names={}, notes=()
        )

    monkeypatch.setattr(events, "take_inventory", take)
    names = Names(AdminClient(Path("/none")), "unix:///none", follows=True)
    plugin: JsonObject = {"time": "", "event": "plugin.executed", "containerId": "77" * 32}
    call: JsonObject = {"time": "", "event": "rpc.answered", "networkId": "6f" * 32}
    names.learn([GONE, plugin, call])
    assert names.title(plugin) == "endpoint 777777777777 on blue"
    assert names.title(call) == "network blue"
    assert names.title({"time": "", "event": "events.lost"}) == "cni-bridge"
    listed.append(Container(id="aa", name="web", image="busybox", state="running"))
    names.learn([{**GONE, "phase": "joined"}])
    assert names.title(plugin) == "web (777777777777) on blue"


@pytest.mark.parametrize(("note", "follows", "expected"), [("no answer", True, 1), ("", False, 2), ("", True, 7)])
def test_how_often_names_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], note: str, follows: bool, expected: int
) -> None:
    """An engine that does not answer is left alone, and the note is shown once; what is over is not waited for."""
    asked: list[float] = []

    def take(*_: object, limit_s: float) -> Inventory:
        asked.append(limit_s)
        notes = (note,) if note else ()
        return Inventory(document={"networks": []}, containers={}, network_names={}, notes=notes)

    monkeypatch.setattr(events, "take_inventory", take)
    monkeypatch.setattr(events, "_PAUSE_S", 0.0)
    names = Names(AdminClient(Path("/none")), "unix:///none", follows=follows)
    names.learn([{**GONE, "phase": "joined"}])
    assert len(asked) == expected
    assert capsys.readouterr().err == (f"cni-bridge: {note}\n" if note else "")
