# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge gc`, `retry` and `release`: what is shown, and what an ID stands for."""

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.admin_client import DaemonError
from cnm_bridge.operator.cli.commands.clean_up import pick, pick_failed, show_left
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.shown import Table

LEFTOVER: JsonObject = {
    "id": "0123456789ab",
    "network": "lan",
    "containerId": "gone",
    "what": "address 10.1.2.3/24 of pool lan",
    "modifiedAt": 1,
}
OTHER: JsonObject = {**LEFTOVER, "id": "0199999999ff"}
NOTHING: JsonObject = {"isComplete": True, "isEngineUp": True, "pendingTeardowns": [], "leftovers": []}


def test_nothing_is_left() -> None:
    """Then the exit status is 0."""
    shown, status = show_left(NOTHING, is_compared=True)
    assert (shown.parts, shown.notes, status) == (["nothing is left"], [], ExitStatus.FINE)


@pytest.mark.parametrize("change", [{"isEngineUp": False}, {"isComplete": False}, {"leftovers": [LEFTOVER]}])
def test_a_comparison_that_is_incomplete_or_finds_something(change: JsonObject) -> None:
    """Both are findings."""
    _, status = show_left({**NOTHING, **change}, is_compared=True)
    assert status is ExitStatus.FINDINGS


def test_a_retry_does_not_need_the_engine() -> None:
    """Whether it answers is not shown then."""
    shown, status = show_left({**NOTHING, "isEngineUp": False})
    assert (shown.notes, status) == ([], ExitStatus.FINE)


def test_an_id_may_be_shortened() -> None:
    """As long as it is unambiguous; each is removed once."""
    document: JsonObject = {"leftovers": [LEFTOVER, OTHER]}
    assert pick(document, "leftovers", "id", ["012", "0123"]) == ("0123456789ab",)
    for wrong, reason in (("01", "ambiguous"), ("ff", "unknown")):
        with pytest.raises(DaemonError, match=f"{reason}.*0123456789ab, 0199999999ff.*nothing has been changed"):
            pick(document, "leftovers", "id", [wrong])


def test_a_leftover_has_its_age_and_what_was_examined() -> None:
    """By that an operator decides whether it may be released."""
    shown, _ = show_left({**NOTHING, "leftovers": [LEFTOVER, OTHER]})
    table, text = shown.parts
    assert isinstance(table, Table)
    assert isinstance(text, str)
    assert [str(row["age"])[-1:] for row in table.rows] == ["d", "d"]
    assert "They may be another engine's" in text
    assert text.endswith("cni-bridge release 0123456789ab 0199999999ff")
    assert shown.document == {**NOTHING, "leftovers": [LEFTOVER, OTHER]}


def test_what_was_released_is_listed() -> None:
    """Before what is left."""
    shown, status = show_left(NOTHING, removed=["address 10.1.2.3/24 of pool lan"])
    assert (shown.parts, status) == (["released address 10.1.2.3/24 of pool lan", "nothing is left"], ExitStatus.FINE)


def test_an_endpoint_without_a_failed_teardown_is_not_unknown() -> None:
    """The error of `retry` says so; the beginning of an ID may also be that of one with a failed teardown."""
    status: JsonObject = {
        "endpoints": [{"id": "77" * 32}, {"id": "78" * 32}],
        "pendingTeardowns": [{"endpointId": "78" * 32}],
    }
    assert pick_failed(status, ["7"]) == ("78" * 32,)
    with pytest.raises(DaemonError, match="endpoint 777777777777 has no failed teardown; nothing") as caught:
        pick_failed(status, ["77"])
    assert caught.value.exit_status is ExitStatus.USAGE
    with pytest.raises(DaemonError, match="99 is unknown"):
        pick_failed(status, ["99"])
