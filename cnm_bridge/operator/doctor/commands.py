# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs commands that only read."""

from typing import Final

from cnm_bridge.system.commands import run_command

_LIMIT_S: Final = 10.0


async def read_lines(*command: str) -> tuple[str, ...] | None:
    """Return the lines that a command prints; None if it is not installed, fails or does not end in time."""
    try:
        done = await run_command(*command, limit_s=_LIMIT_S)
    except OSError:
        return None
    return tuple(done.output.splitlines()) if done.succeeded else None
