# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge state`, run as an operator runs it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from state import (
    SCHEMA_VERSION,
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    RequestedInterface,
    Store,
)

COMMAND = (sys.executable, "-m", "cnm_bridge", "state")
LIMIT_S = 20.0

NETWORK = NetworkRecord(id=NetworkId("a" * 64), configuration="blue", name=None, internal=True, options={})
ENDPOINT = EndpointRecord(
    id=EndpointId("e" * 64),
    network_id=NETWORK.id,
    phase=Phase.PENDING,
    boot_id="0c1f",
    internal=True,
    requested=RequestedInterface(),
    attachment=AttachmentRecord(
        id=AttachmentId("e" * 64),
        ifname="eth0",
        netns="/run/e",
        configuration={"name": "blue", "password": "secret"},
        cni_version="1.0.0",
        args=(),
        capability_args={},
    ),
    added_plugins=1,
    result={"ips": [{"address": "10.1.2.3/24"}]},
)


def command(*arguments: str, where: Path, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run `cni-bridge state …` on a state directory."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CNI_BRIDGE_")}
    return subprocess.run(
        [*COMMAND, *arguments],
        env=env | {"CNI_BRIDGE_STATE_DIR": str(where)},
        input=given,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )


def refusal(*arguments: str, where: Path, given: bytes = b"") -> str:
    """Return what `cni-bridge state …` says when it refuses."""
    done = command(*arguments, where=where, given=given)
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
    return " ".join(done.stderr.decode().split())


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """A state directory with one network and one endpoint."""
    store = Store.open(tmp_path / "state")
    await store.put_network(NETWORK)
    await store.put_endpoint(ENDPOINT)
    store.close()
    return tmp_path / "state"


def content(directory: Path) -> tuple[object, object]:
    """What is stored."""
    store = Store.open(directory)
    try:
        return store.networks(), store.endpoints()
    finally:
        store.close()


def test_show_is_a_table(directory: Path) -> None:
    """Networks and endpoints, a line each, with phase and address."""
    lines = command("show", where=directory).stdout.decode().splitlines()
    assert [line.split() for line in lines] == [
        ["NETWORK", "NAME", "CONFIGURATION"],
        ["a" * 12, "-", "blue,", "internal"],
        [],
        ["ENDPOINT", "NETWORK", "PHASE", "ADDRESSES", "SANDBOX"],
        ["e" * 12, "a" * 12, "pending", "10.1.2.3/24", "-"],
    ]


def test_show_one(directory: Path) -> None:
    """All that is stored of one record, by the beginning of its ID."""
    done = command("show", "eee", where=directory)
    assert json.loads(done.stdout)["attachment"]["configuration"]["password"] == "secret"
    assert "begins with f" in refusal("show", "f", where=directory)


def test_export_and_import(directory: Path, tmp_path: Path) -> None:
    """What is exported can be imported elsewhere, by file and by pipe, and is the same; the file is private."""
    file = tmp_path / "export.json"
    assert command("export", str(file), where=directory).returncode == 0
    assert file.stat().st_mode & 0o077 == 0
    piped = command("export", where=directory).stdout
    assert piped == file.read_bytes()
    by_file, by_pipe = tmp_path / "by-file", tmp_path / "by-pipe"
    assert command("import", str(file), where=by_file).returncode == 0
    assert command("import", "-", where=by_pipe, given=piped).returncode == 0
    assert content(by_file) == content(by_pipe) == content(directory) == ((NETWORK,), (ENDPOINT,))
    assert command("export", where=by_file).stdout == piped


def test_a_state_is_replaced_only_when_told(directory: Path) -> None:
    """An import does not mix with what is there."""
    exported = json.loads(command("export", where=directory).stdout)
    other = json.dumps({**exported, "networks": [], "endpoints": []}).encode()
    assert "1 networks, 1 endpoints" in refusal("import", "-", where=directory, given=other)
    assert content(directory) == ((NETWORK,), (ENDPOINT,))
    assert command("import", "--replace", "-", where=directory, given=other).returncode == 0
    assert content(directory) == ((), ())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": SCHEMA_VERSION + 1}, f"schema version {SCHEMA_VERSION + 1}"),
        ({"schema": 0}, "schema"),
        ({"surprise": 1}, "surprise"),
        ({"networks": [{"id": "../x"}]}, "networks[0].id"),
        ({"networks": [{"id": "a" * 64}]}, "network/aaa"),
        ({"meta": {"meta/schema": "9"}}, "meta/schema"),
        ({"meta": {"endpoint/x": "9"}}, "endpoint/x"),
    ],
)
def test_a_bad_document_changes_nothing(directory: Path, change: dict[str, object], says: str) -> None:
    """A document is taken whole, or refused with the place of its fault."""
    exported = json.loads(command("export", where=directory).stdout)
    given = json.dumps({**exported, **change}).encode()
    assert says in refusal("import", "--replace", "-", where=directory, given=given)
    assert content(directory) == ((NETWORK,), (ENDPOINT,))


def test_one_bad_record_refuses_all(directory: Path) -> None:
    """A record that does not fit, and one that is there twice."""
    exported = json.loads(command("export", where=directory).stdout)
    endpoint = exported["endpoints"][0]
    for endpoints, says in (
        ([endpoint, {**endpoint, "id": "f" * 64, "phase": "asleep"}], "asleep"),
        ([endpoint, endpoint], "there twice"),
    ):
        given = json.dumps({**exported, "endpoints": endpoints}).encode()
        assert says in refusal("import", "--replace", "-", where=directory, given=given)
    assert "line 1" in refusal("import", "--replace", "-", where=directory, given=b"{")
    assert content(directory) == ((NETWORK,), (ENDPOINT,))


@pytest.mark.parametrize("arguments", [("show",), ("export",), ("import", "-")])
def test_the_holder_is_named(directory: Path, arguments: tuple[str, ...]) -> None:
    """While a daemon runs, nothing touches its state."""
    store = Store.open(directory)
    given = command("export", where=directory.with_name("none")).stdout or b"{}"
    assert f"in use by process {os.getpid()}" in refusal(*arguments, where=directory, given=given)
    store.close()


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    """A directory that is not there is an error, not a new state."""
    for arguments in (("show",), ("export",)):
        assert "there is no state in" in refusal(*arguments, where=tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_file_that_cannot_be_written(directory: Path, tmp_path: Path) -> None:
    """The file is named, and nothing half is left."""
    assert "cannot write" in refusal("export", str(tmp_path / "none" / "x"), where=directory)
    (tmp_path / "file").mkdir()
    assert "file" in refusal("export", str(tmp_path / "file"), where=directory)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "state"]


async def test_damage_is_said(directory: Path) -> None:
    """What was found damaged is told on standard error; the rest is shown."""
    store = Store.open(directory)
    await store.put_network(replace(NETWORK, id=NetworkId("b" * 64), configuration="green"))
    store.close()
    (directory / "leveldb" / "CURRENT").unlink()
    done = command("show", where=directory)
    assert b"CURRENT is missing" in done.stderr
    assert b"green" in done.stdout
