# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-egress` as others run it: its documents, its errors, and where it is found."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cnm_bridge.operator.egress import EgressFailed, ask_egress, follow_egress, list_egress


@pytest.fixture(name="install")
def make_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a script as the command, beside the interpreter."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def install(script: str) -> None:
        path = tmp_path / "cni-egress"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return install


def test_a_document(install: Callable[[str], None]) -> None:
    """It is asked for JSON."""
    install("""printf '[{"arguments": "%s"}]' "$*" """)
    assert ask_egress("ls", "--network", "a") == [{"arguments": "ls --network a --json"}]
    assert list_egress("ls") == ({"arguments": "ls --json"},)


def test_an_error(install: Callable[[str], None]) -> None:
    """The last line of its errors is the text; an exit status that is expected is none."""
    install("""echo '{}'; echo 'Usage: x' >&2; echo 'Error: bad entry' >&2; exit 1""")
    with pytest.raises(EgressFailed, match=r"^bad entry$"):
        ask_egress("allow")
    assert ask_egress("check", expected=(0, 1)) == {}
    install("""echo 'Usage: x' >&2; echo 'Error: write NAME:PORT' >&2; exit 1""")
    with pytest.raises(EgressFailed, match=r"^write NAME:PORT$"):
        ask_egress("check", expected=(0, 1))


def test_something_else(install: Callable[[str], None]) -> None:
    """A command that prints no JSON is another program, or another version."""
    install("echo hello")
    with pytest.raises(EgressFailed, match="something else"):
        ask_egress("ls")


@pytest.mark.usefixtures("install")
def test_it_is_missing() -> None:
    """The text says what to do."""
    with pytest.raises(EgressFailed, match="systemctl enable --now cni-egress"):
        ask_egress("ls")


def test_lines(install: Callable[[str], None]) -> None:
    """They are yielded as they come; the command ends with its reader."""
    install("""echo '{"a": 1}'; echo '{"a": 2}'; exec sleep 100""")
    lines = follow_egress("log")
    assert [next(lines), next(lines)] == [{"a": 1}, {"a": 2}]
    lines.close()
