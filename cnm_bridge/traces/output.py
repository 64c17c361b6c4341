# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the commands print that show the host's rules."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Final

import structlog

__all__ = ["LIMIT_S", "read_output"]

log = structlog.get_logger()

LIMIT_S: Final = 10.0
"""How long such a command may take, in seconds."""

_KILL_LIMIT_S: Final = 1.0


async def read_output(*argv: str, limit_s: float) -> str:
    """Return what a command prints; nothing where there is no such command, it fails, or does not end in time."""
    command = argv[0]
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except OSError as exc:  # a host without the command has no rules of it
        log.debug("rules.unread", command=command, error=str(exc))
        return ""
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await process.communicate()
    except TimeoutError:
        log.warning("rules.unread", command=command, error=f"no answer within {limit_s:g} s")
        return ""
    finally:
        await _end(process)
    if process.returncode:
        log.debug("rules.unread", command=command, status=process.returncode)
        return ""
    return output.decode("utf-8", "replace")  # a comment may be of any bytes


async def _end(process: Process) -> None:
    """End a process that has not ended; one that the kernel does not let go is not waited for."""
    if process.returncode is None:
        with suppress(ProcessLookupError, TimeoutError):
            process.kill()
            async with asyncio.timeout(_KILL_LIMIT_S):
                await process.wait()
