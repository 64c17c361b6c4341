# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names and messages from outside neither control the terminal nor forge lines of an output."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Final

import pytest

from cnm_bridge.operator.cli.commands.events import event_line
from cnm_bridge.operator.cli.commands.inspect import show_inspected
from cnm_bridge.operator.cli.output import Shown, Table, render
from cnm_bridge.operator.doctor.facts import Finding, Severity
from cnm_bridge.operator.doctor.report import Report
from tests.unit.cnm_bridge.operator.cli.commands.test_inspect import document
from tests.unit.cnm_bridge.operator.cli.test_terminal import printed

NAME: Final = "x\x1b[2K\r\nfine: \u202eforged\x9b"
SEEN: Final = r"x\x1b[2K\r\nfine: \u202eforged\x9b"


def shown_in(shown: Shown, *, as_json: bool = False) -> tuple[str, str]:
    """Return standard output and standard error, in a pipe."""
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        render(shown, as_json=as_json, no_trunc=True)
    return output.getvalue(), errors.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
def test_tables_and_json(*, as_json: bool) -> None:
    """And notes on standard error."""
    rows = [{"name": NAME}]
    shown = Shown(document=[{"name": NAME}], parts=[Table(columns=[("N", "name")], rows=rows)], notes=[NAME])
    output, errors = shown_in(shown, as_json=as_json)
    assert (output.replace("\n", "") + errors.replace("\n", "")).isprintable()
    assert errors == f"cni-bridge: {SEEN}\n"


def test_json_has_the_name_itself() -> None:
    """In the escapes of JSON: programs read what the daemon said."""
    output, _ = shown_in(Shown(document={"name": NAME}, parts=[]), as_json=True)
    assert json.loads(output) == {"name": NAME}


TERMINAL: Final = """
from cnm_bridge.operator.cli.output import Shown, Table, render
row = {"network": "x\\x1b[2K\\r\\n\\x9by"}
parts = [Table(columns=(("NETWORK", "network"),), rows=[row]), "text \\x1b[2K"]
render(Shown(document={}, parts=parts), as_json=False, no_trunc=True)
"""


def test_a_terminal() -> None:
    """Only the program's own colours are sent to it."""
    seen = printed(program=TERMINAL)
    assert r"x\x1b[2K\r\n\x9by" in seen
    assert r"text \x1b[2K" in seen
    assert "\x1b[2K" not in seen
    assert "\x9b" not in seen


def test_an_inspected_endpoint() -> None:
    """The message of a plugin does not make a line."""
    endpoint = document("2026-01-02T03:04:06.000+00:00")
    clean, _ = shown_in(show_inspected([{**endpoint, "notPublished": "why"}], ()))
    output, _ = shown_in(show_inspected([{**endpoint, "notPublished": NAME}], ()))
    assert len(output.splitlines()) == len(clean.splitlines())
    assert SEEN in output


def test_an_event_is_one_line() -> None:
    """The error of a plugin is in it."""
    event = {"time": "2026-01-01T00:00:00.000+00:00", "event": "rpc.refused", "error": NAME}
    assert SEEN in event_line(event)


@pytest.mark.parametrize("quick", [True, False])
def test_a_finding_of_doctor(quick: bool) -> None:
    """A link's name is part of it."""
    finding = Finding(severity=Severity.WARNING, code="x", subject=NAME, text=NAME)
    text = Report(examined=[("kernel", NAME)], findings=[finding]).render_text(quick=quick)
    assert text.replace("\n", "").isprintable()
    assert not any(line.startswith("fine:") for line in text.splitlines())
