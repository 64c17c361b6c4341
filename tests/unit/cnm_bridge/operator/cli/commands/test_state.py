# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge state`, run as an operator runs it."""

import json
import os
from dataclasses import replace
from pathlib import Path

import plyvel
import pytest
from click.testing import CliRunner, Result

from cni_bridge_state import NetworkId, Phase
from cni_bridge_state.codec import SCHEMA_VERSION
from cni_bridge_state.store import Store
from cnm_bridge.operator.cli.main import main
from tests.records import endpoint, network_record

NETWORK = network_record(configuration="blue", name=None, internal=True)

ENDPOINT = replace(
    endpoint("e" * 64, Phase.PENDING),
    network_id=NETWORK.id,
    added_plugins=1,
    result={"ips": [{"address": "10.1.2.3/24"}]},
)


def command(*arguments: str, where: Path, given: bytes = b"") -> Result:
    """Run `cni-bridge state …` on a state directory."""
    env: dict[str, str | None] = {key: None for key in os.environ if key.startswith("CNI_BRIDGE_")}
    done = CliRunner().invoke(main, ["state", *arguments], input=given, env=env | {"CNI_BRIDGE_STATE_DIR": str(where)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def error_of(*arguments: str, where: Path, given: bytes = b"") -> str:
    """Return what `cni-bridge state …` prints when it fails."""
    done = command(*arguments, where=where, given=given)
    assert done.exit_code != 0
    return " ".join(done.stderr.split())


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """A state directory with one network and one endpoint."""
    store = Store.open(tmp_path / "state")
    await store.put_network(NETWORK)
    await store.put_endpoint(ENDPOINT)
    store.close()
    return tmp_path / "state"


def content(directory: Path) -> tuple[object, object]:
    """Return the stored networks and endpoints."""
    store = Store.open(directory)
    try:
        return store.networks(), store.endpoints()
    finally:
        store.close()


def test_an_export_does_not_replace_a_file(directory: Path, tmp_path: Path) -> None:
    """It may be the only copy of an earlier state."""
    file = tmp_path / "export.json"
    file.write_text("precious")
    refused = command("export", str(file), where=directory)
    assert (refused.exit_code, file.read_text()) == (2, "precious")


def test_export_and_import(directory: Path, tmp_path: Path) -> None:
    """An export, by file or by pipe, gives the same state elsewhere; the file is private."""
    file = tmp_path / "export.json"
    assert command("export", str(file), where=directory).exit_code == 0
    assert file.stat().st_mode & 0o077 == 0
    piped = command("export", where=directory).stdout_bytes
    assert piped == file.read_bytes()
    by_file, by_pipe = tmp_path / "by-file", tmp_path / "by-pipe"
    assert command("import", str(file), where=by_file).exit_code == 0
    assert command("import", "-", where=by_pipe, given=piped).exit_code == 0
    assert content(by_file) == content(by_pipe) == content(directory) == ((NETWORK,), (ENDPOINT,))
    assert command("export", where=by_file).stdout_bytes == piped


def test_an_import_needs_replace_if_there_is_state(directory: Path) -> None:
    """Without --replace nothing is changed; with it nothing of the old state remains."""
    exported = json.loads(command("export", where=directory).stdout)
    other = json.dumps({**exported, "networks": [], "endpoints": []}).encode()
    assert "already, of 2 records" in error_of("import", "-", where=directory, given=other)
    assert content(directory) == ((NETWORK,), (ENDPOINT,))
    assert command("import", "--replace", "-", where=directory, given=other).exit_code == 0
    assert content(directory) == ((), ())


def test_going_back_to_an_older_version(directory: Path) -> None:
    """The state of a newer version is refused, and the text says how to go back; an export then takes its place."""
    exported = command("export", where=directory).stdout_bytes
    with plyvel.DB(str(directory / "leveldb")) as db:
        db.put(b"meta/schema", str(SCHEMA_VERSION + 1).encode())
        db.put(f"network/{'b' * 64}".encode(), b"of a newer version")
    assert "state import --replace FILE" in error_of("export", where=directory)
    assert "--replace" in error_of("import", "-", where=directory, given=exported)
    assert "not an exported state" in error_of("import", "--replace", "-", where=directory, given=b"null")
    assert "schema version" in error_of("export", where=directory)
    assert command("import", "--replace", "-", where=directory, given=exported).exit_code == 0
    assert content(directory) == ((NETWORK,), (ENDPOINT,))
    assert command("export", where=directory).stdout_bytes == exported


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_an_invalid_document_changes_nothing(directory: Path, change: dict[str, object], message: str) -> None:
    """The error has the position of the fault, and nothing is imported."""
    exported = json.loads(command("export", where=directory).stdout)
    given = json.dumps({**exported, **change}).encode()
    assert message in error_of("import", "--replace", "-", where=directory, given=given)
    assert content(directory) == ((NETWORK,), (ENDPOINT,))


def test_one_invalid_record_rejects_the_import(directory: Path) -> None:
    """An invalid record, or one that occurs twice, rejects the whole document."""
    exported = json.loads(command("export", where=directory).stdout)
    one = exported["endpoints"][0]
    for endpoints, message in (
        ([one, {**one, "id": "f" * 64, "phase": "asleep"}], "phase: a string is not one of"),
        ([one, one], "there twice"),
    ):
        given = json.dumps({**exported, "endpoints": endpoints}).encode()
        assert message in error_of("import", "--replace", "-", where=directory, given=given)
    assert "line 1" in error_of("import", "--replace", "-", where=directory, given=b"{")
    assert content(directory) == ((NETWORK,), (ENDPOINT,))


@pytest.mark.parametrize("arguments", [("export",), ("import", "-")])
def test_state_in_use_is_not_touched(directory: Path, arguments: tuple[str, ...]) -> None:
    """The error names the process of the daemon."""
    given = command("export", where=directory).stdout_bytes
    store = Store.open(directory)
    assert f"in use by process {os.getpid()}" in error_of(*arguments, where=directory, given=given)
    store.close()


def test_an_export_creates_no_state(tmp_path: Path) -> None:
    """A missing directory is an error."""
    assert "there is no state in" in error_of("export", where=tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_an_export_that_cannot_be_written_leaves_no_file(directory: Path, tmp_path: Path) -> None:
    """The error names the file."""
    assert "cannot write" in error_of("export", str(tmp_path / "none" / "x"), where=directory)
    (tmp_path / "file").mkdir()
    assert "file" in error_of("export", str(tmp_path / "file"), where=directory)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "state"]


async def test_damage_is_reported(directory: Path) -> None:
    """It is printed on standard error; the remaining records are exported."""
    store = Store.open(directory)
    await store.put_network(replace(NETWORK, id=NetworkId("b" * 64), configuration="green"))
    store.close()
    (directory / "leveldb" / "CURRENT").unlink()
    done = command("export", where=directory)
    assert "CURRENT is missing" in done.stderr
    assert "green" in done.stdout
