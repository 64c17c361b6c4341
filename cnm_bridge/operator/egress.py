# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the command `cni-egress`, which knows what is in force on guarded networks. Its answers are JSON."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, parse_json
from cnm_bridge.core.errors import Refused

__all__ = ["GUARD_RECORDS", "EgressFailed", "ask_egress", "follow_egress", "list_egress"]

GUARD_RECORDS: Final = Path("/run/cni-egress/attachments")
"""What the plugin has made since the host was started: Docker networks may be guarded by their options."""
_COMMAND: Final = "cni-egress"
_LIMIT_S: Final = 120.0
"""A change of the policy of a thousand containers takes a minute or two."""
_BEGINNING: Final = "Error: "
_USAGE: Final = 2
"""Its exit status, and that of `cni-bridge`, if a name or an option is wrong."""


class EgressFailed(Refused):
    """`cni-egress` is missing, or has refused the request; the text is its own."""

    def __init__(self, text: str, exit_status: int = 1) -> None:
        super().__init__(text)
        self.exit_status = exit_status


def ask_egress(*arguments: str, expected: tuple[int, ...] = (0,)) -> JsonValue:
    """Return the document that the command prints.

    Args:
        arguments: Its arguments, without `--json`.
        expected: Exit statuses with which it prints one.

    Raises:
        EgressFailed: There is no such document.
    """
    argv = [_find_command(), *arguments, "--json"]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise EgressFailed(f"{_COMMAND} cannot be run: {exc}") from exc
    is_failure = ended.returncode != 0 and not ended.stdout.strip()  # of versions that fail with an expected status
    if is_failure or ended.returncode not in expected:
        lines = ended.stderr.strip().splitlines() or [f"{_COMMAND} has failed"]
        raise EgressFailed(lines[-1].removeprefix(_BEGINNING), _USAGE if ended.returncode == _USAGE else 1)
    return _parse(ended.stdout)


def list_egress(*arguments: str) -> tuple[JsonObject, ...]:
    """Return the objects in a list that the command prints; see `ask_egress`."""
    listed = ask_egress(*arguments)
    return tuple(as_object(one, "an item") for one in listed) if isinstance(listed, list) else ()


def follow_egress(*arguments: str) -> Generator[JsonObject]:
    """Yield the documents that the command prints, one in each line, until it ends.

    Raises:
        EgressFailed: It cannot be run, or prints something else.
    """
    with subprocess.Popen([_find_command(), *arguments, "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                yield as_object(_parse(line), "the line")
        finally:
            process.terminate()


def _parse(text: str) -> JsonValue:
    try:
        return parse_json(text.encode())
    except JsonError as exc:
        raise EgressFailed(f"{_COMMAND} prints something else than this version expects: {exc}") from exc


def _find_command() -> str:
    """Return the path of the command, which is installed beside this one, or elsewhere in PATH."""
    beside = Path(sys.executable).with_name(_COMMAND)
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(_COMMAND)
    if found is None:
        raise EgressFailed(
            f"{_COMMAND} is not installed, which guarded networks need: install it, and systemctl enable --now "
            f"{_COMMAND}"
        )
    return found
