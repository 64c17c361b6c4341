# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge cleanup`: what is shown, what it asks of the daemon, and what an ID stands for."""

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.admin_client import DaemonError
from cnm_bridge.operator.cli.command import ExitStatus
from cnm_bridge.operator.cli.commands.cleanup import AFTER_FAILURE, pick, show_left
from cnm_bridge.operator.cli.main import main
from cnm_bridge.operator.cli.output import Table

ADDRESS: Final[JsonObject] = {
    "id": "0123456789ab",
    "network": "lan",
    "what": "address 10.1.2.3/24 of pool lan",
    "modifiedAt": 1,
}
OTHER: Final[JsonObject] = {**ADDRESS, "id": "0199999999ff"}
NOTHING: Final[JsonObject] = {"isComplete": True, "isEngineUp": True, "pendingTeardowns": [], "unclaimedAddresses": []}


def test_nothing_is_left() -> None:
    """Then the exit status is 0."""
    shown, status = show_left(NOTHING, is_compared=True)
    assert (shown.parts, shown.notes, status) == (["nothing is left"], [], ExitStatus.FINE)


@pytest.mark.parametrize("change", [{"isEngineUp": False}, {"isComplete": False}, {"unclaimedAddresses": [ADDRESS]}])
def test_a_comparison_that_is_incomplete_or_finds_something(change: JsonObject) -> None:
    """Both are findings."""
    _, status = show_left({**NOTHING, **change}, is_compared=True)
    assert status is ExitStatus.FINDINGS


def test_a_failed_teardown() -> None:
    """What to do comes last."""
    shown, _ = show_left({**NOTHING, "pendingTeardowns": [{"endpointId": "88", "attempts": 3, "error": "no plugin"}]})
    assert shown.parts[1:] == [AFTER_FAILURE]


def test_without_a_comparison_the_engine_is_not_needed() -> None:
    """Whether it answers is not shown then."""
    shown, status = show_left({**NOTHING, "isEngineUp": False})
    assert (shown.notes, status) == ([], ExitStatus.FINE)


def test_an_id_may_be_shortened() -> None:
    """As long as it is unambiguous; each counts once."""
    ids = ("0123456789ab", "0199999999ff")
    assert pick(ids, ["012", "0123"]) == ("0123456789ab",)
    for wrong, reason in (("01", "ambiguous"), ("ff", "neither a failed teardown nor an unclaimed address")):
        with pytest.raises(DaemonError, match=f"{reason}.*0123456789ab, 0199999999ff.*nothing has been changed"):
            pick(ids, [wrong])
    with pytest.raises(DaemonError, match="nothing is left; nothing has been changed") as caught:
        pick((), ["77"])
    assert caught.value.exit_status is ExitStatus.USAGE


def test_an_id_needs_run(tmp_path: Path) -> None:
    """Without --run the command only shows, and is not asked to do less."""
    result = CliRunner().invoke(main, ["cleanup", "0123", "--admin-socket", str(tmp_path / "none")])
    assert (result.exit_code, "ID needs --run" in result.output) == (2, True)


def test_an_address_has_its_age_and_the_command_that_releases_it() -> None:
    """By the age an operator decides whether it may be released."""
    shown, _ = show_left({**NOTHING, "unclaimedAddresses": [ADDRESS, OTHER]})
    table, text = shown.parts
    assert isinstance(table, Table)
    assert isinstance(text, str)
    assert [str(row["age"])[-1:] for row in table.rows] == ["d", "d"]
    assert "They may be another engine's" in text
    assert text.endswith("cni-bridge cleanup --run 0123456789ab 0199999999ff")
    assert shown.document == {**NOTHING, "unclaimedAddresses": [ADDRESS, OTHER]}


def test_what_was_released_is_listed() -> None:
    """Before what is left."""
    shown, status = show_left(NOTHING, released=["address 10.1.2.3/24 of pool lan"])
    assert (shown.parts, status) == (["released address 10.1.2.3/24 of pool lan", "nothing is left"], ExitStatus.FINE)
