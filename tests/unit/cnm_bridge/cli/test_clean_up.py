# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge gc`, `retry` and `release`: what is shown, and what an ID stands for."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cni_bridge_spec import JsonObject
from cnm_bridge.cli.admin_client import DaemonError
from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.cli.leftovers import pick, show_left
from cnm_bridge.cli.main import main

LEFTOVER: JsonObject = {"id": "0123456789ab", "network": "lan", "containerId": "gone", "what": "/var/lib/cni/x"}
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


def test_a_malformed_template_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    """Even before the daemon is asked."""
    result = CliRunner().invoke(main, ["retry", "--format", "{{.Id", "--admin-socket", str(tmp_path / "none")])
    assert (result.exit_code, "neither table nor json" in result.output) == (2, True)
