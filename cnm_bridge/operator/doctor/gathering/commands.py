# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs commands that only read."""

import asyncio
from typing import Final

_LIMIT_S: Final = 10.0


async def read_lines(*command: str) -> tuple[str, ...] | None:
    """Return the lines that a command prints; None if it is not installed, fails or does not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return tuple(output.decode("utf-8", "replace").splitlines()) if process.returncode == 0 else None
