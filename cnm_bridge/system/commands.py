# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs a command of the host, such as iptables-save, within a time limit."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_KILL_LIMIT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCommand:
    """A command that has ended; it succeeded if its exit status is 0.

    Attributes:
        output: What it printed; bytes that are not UTF-8 are replaced.
        error: What it printed to standard error, else its exit status.
    """

    succeeded: bool
    output: str
    error: str


async def run_command(*command: str, limit_s: float) -> CompletedCommand:
    """Run a command without standard input. One that hangs in the kernel is left there.

    Raises:
        TimeoutError: It did not end within the limit, and was killed.
        OSError: It cannot be executed, e.g. because it is not installed.
    """
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(limit_s):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                process.kill()
                async with asyncio.timeout(_KILL_LIMIT_S):
                    await process.wait()
    status = f"exit status {process.returncode}"
    text = errors.decode("utf-8", "replace").strip() or status
    return CompletedCommand(succeeded=process.returncode == 0, output=output.decode("utf-8", "replace"), error=text)
