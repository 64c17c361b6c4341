# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lines of the log, and its size."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cni_egress.refusals import SCHEMA, Kind, Refusal, RefusalLog, Why, render

TIME = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
CONNECTION = Refusal(
    kind=Kind.CONNECTION,
    why=Why.PORT,
    source="10.66.0.5",
    container="5a4d",
    network="agents",
    name="api.example.com",
    address="192.0.2.7",
    port=22,
    protocol="tcp",
)
NAME = Refusal(kind=Kind.NAME, why=Why.NAME, source="10.66.0.5", container="5a4d", name="evil.example", type=16)


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.time = TIME

    def __call__(self) -> datetime:
        """Return the time."""
        return self.time


@pytest.fixture(name="clock")
def make_clock() -> Clock:
    """A clock."""
    return Clock()


@pytest.fixture(name="log")
def open_log(tmp_path: Path, clock: Clock) -> Iterator[RefusalLog]:
    """A log in an empty directory."""
    with closing(RefusalLog(tmp_path / "refusals.jsonl", now=clock)) as opened:
        yield opened


def test_a_line() -> None:
    """It has a version, and a key for each thing that is known."""
    assert json.loads(render(CONNECTION, TIME)) == {
        "schema": 1,
        "time": "2026-01-02T03:04:05.678Z",
        "kind": "connection",
        "why": "port not allowed",
        "container": "5a4d",
        "network": "agents",
        "source": "10.66.0.5",
        "name": "api.example.com",
        "address": "192.0.2.7",
        "port": 22,
        "protocol": "tcp",
    }
    keys = {"schema", "time", "kind", "why", "container", "source", "name", "type"}
    assert set(json.loads(render(NAME, TIME))) == keys
    assert render(CONNECTION, TIME).count(b"\n") == 1


SCHEMA_FILE = Path(__file__).parents[2] / "refusals.schema.json"


@pytest.mark.parametrize("why", Why)
@pytest.mark.parametrize("kind", Kind)
def test_the_schema(kind: Kind, why: Why) -> None:
    """Each line is as it says, and it has every key that a line may have, and no others."""
    schema = json.loads(SCHEMA_FILE.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    line = json.loads(render(replace(CONNECTION, kind=kind, why=why, type=65535, audit=True), TIME))
    Draft202012Validator(schema).validate(line)
    assert set(line) == set(schema["properties"])
    Draft202012Validator(schema).validate(json.loads(render(Refusal(kind=kind, why=why, source="fd66::1"), TIME)))


def test_another_version_of_the_schema() -> None:
    """The lines of another version are refused."""
    schema = json.loads(SCHEMA_FILE.read_text("utf-8"))
    line = json.loads(render(NAME, TIME))
    assert not Draft202012Validator(schema).is_valid({**line, "schema": SCHEMA + 1})
    assert Draft202012Validator(schema).is_valid({**line, "other": 1})
    assert {*schema["properties"]["kind"]["enum"]} == {*Kind}
    assert {*schema["properties"]["why"]["enum"]} == {*Why}


def test_names_are_not_repeated(tmp_path: Path, log: RefusalLog, clock: Clock) -> None:
    """A name that a program asks for without end is one line in half a minute; all are counted."""
    for _ in range(10):
        log.add(NAME)
        log.add(CONNECTION)  # the kernel limits them
    lines = (tmp_path / "refusals.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines].count("name") == 1
    assert len(lines) == 11
    assert log.counts == {
        ("", "name", "name not allowed", False): 10,
        ("agents", "connection", "port not allowed", False): 10,
    }
    clock.time += timedelta(seconds=31)
    log.add(NAME)
    assert len((tmp_path / "refusals.jsonl").read_text().splitlines()) == 12


def test_random_names(tmp_path: Path, log: RefusalLog, clock: Clock) -> None:
    """A container that asks for new names all the time gets ten lines a second; those of others are written."""
    for number in range(100):
        log.add(replace(NAME, name=f"n{number}.evil.example"))
    log.add(replace(NAME, source="10.66.0.6"))
    path = tmp_path / "refusals.jsonl"
    assert len(path.read_text().splitlines()) == 11
    clock.time += timedelta(seconds=1)
    log.add(replace(NAME, name="later.evil.example"))
    assert len(path.read_text().splitlines()) == 12


def test_the_size_is_limited(tmp_path: Path, log: RefusalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full file is kept as FILE.1; there are never more than two."""
    monkeypatch.setattr("cni_egress.refusals._FILE_BYTES", 2000)
    for _ in range(50):
        log.add(CONNECTION)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"refusals.jsonl", "refusals.jsonl.1"}
    assert max(sizes.values()) <= 2000


def test_it_goes_on_after_a_restart(tmp_path: Path, log: RefusalLog) -> None:
    """Lines are appended to those that are there."""
    log.add(CONNECTION)
    with closing(RefusalLog(tmp_path / "refusals.jsonl")) as again:
        again.add(CONNECTION)
    assert len((tmp_path / "refusals.jsonl").read_text().splitlines()) == 2
