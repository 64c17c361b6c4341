# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names in templates are declared once for each command: help, check and documents agree."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from cnm_bridge.operator.cli.main import main

SCHEMAS: Final = Path(__file__).parents[6] / "spec" / "admin"


def declared(command: str) -> tuple[frozenset[str], ...]:
    """Return the names in a command's help, and those with its flag."""
    sentence = re.search(r"Templates have ([^.]*)\.", " ".join((main.commands[command].help or "").split()))
    assert sentence is not None
    return tuple(frozenset(re.sub(r"with --\w+ ", "", part).split(", ")) for part in sentence[1].split("; "))


def capitalized(keys: Iterable[str]) -> frozenset[str]:
    """Return keys as templates name them."""
    return frozenset(key[:1].upper() + key[1:] for key in keys)


def properties(schema: str, *path: str) -> frozenset[str]:
    """Return the keys of the objects that a schema describes."""
    found = json.loads((SCHEMAS / f"{schema}.json").read_text())
    for name in path:
        found = found["properties"][name]["items"]
    return capitalized(found["properties"])


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("events", properties("event")),
        ("gc", properties("leftovers", "leftovers")),
        ("retry", properties("leftovers", "leftovers")),
        ("release", properties("leftovers", "leftovers")),
        ("status", properties("status", "endpoints") | {"Network"}),
        ("inspect", properties("endpoint") | {"Container"}),
    ],
)
def test_the_help_has_what_the_documents_have(command: str, names: frozenset[str]) -> None:
    """And what the command adds."""
    assert declared(command) == (names,)


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["ls"],
            ["ls", "--networks"],
            ["ls", "--addresses"],
            ["status"],
            ["gc"],
            ["retry"],
            ["release", "0"],
            ["inspect", "web"],
        ),
        ["events"],
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_done(command: list[str], tmp_path: Path) -> None:
    """Without a row, and before the daemon is asked; a known name is not."""
    socket = ("--admin-socket", str(tmp_path / "none.sock"))
    result = CliRunner().invoke(main, [*command, "--format", "{{.Nope}}", *socket])
    assert (result.exit_code, "there is no Nope; there are " in result.output) == (2, True), result.output
    known = " ".join(
        f"{{{{.{name}}}}}"
        for name in declared(command[0])[1 if "--networks" in command else 2 if "--addresses" in command else 0]
    )
    result = CliRunner().invoke(main, [*command, "--format", known, *socket])
    assert result.exit_code == 3, result.output
