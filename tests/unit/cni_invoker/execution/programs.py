# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs small shell scripts as programs, and waits for what becomes of their processes."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from cni_invoker.execution.limits import Limits
from cni_invoker.execution.process import Ended, run_program
from tests.unit.cni_invoker.processes import is_alive

ENVIRONMENT = {"PATH": os.environ["PATH"], "GREETING": "hello"}
GRACE_S = 0.3
DEADLINE_S = 1.0
"""A shell reads its script in less time, also on a busy machine."""
HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""
LONG_S = 60.0
"""A program or a grace that must not be waited for."""


def script(directory: Path, *lines: str) -> Path:
    """Write a shell script."""
    path = directory / "program"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return path


async def run(
    program: Path,
    stdin: bytes = b"",
    *,
    timeout_s: float = 10.0,
    grace_s: float = GRACE_S,
    stdout_bytes: int = 1000,
    stderr_bytes: int = 1000,
    on_started: Callable[[int], None] = lambda _: None,
) -> Ended:
    """Run a program under small limits."""
    return await run_program(
        [str(program)],
        ENVIRONMENT,
        stdin,
        Limits(grace_s=grace_s, stdout_bytes=stdout_bytes, stderr_bytes=stderr_bytes),
        deadline=asyncio.get_running_loop().time() + timeout_s,
        on_started=on_started,
    )


def is_reaped(pid: int) -> bool:
    """Return whether a process has been reaped; a zombie has not."""
    return not Path(f"/proc/{pid}").exists()


def written_pid(file: Path) -> int:
    """Return the process ID that a program has written to a file, 0 if it has not done so yet."""
    text = file.read_text() if file.exists() else ""
    return int(text) if text.endswith("\n") else 0


async def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for a change that another process makes."""
    async with asyncio.timeout(HANG_LIMIT_S):
        while not happened():  # noqa: ASYNC110  # no event reports it
            await asyncio.sleep(0.005)


async def wait_for_pid(file: Path) -> int:
    """Wait until a program has written a process ID."""
    await wait_until(lambda: written_pid(file) != 0)
    return written_pid(file)


async def wait_until_gone(pid: int) -> None:
    """Wait until a process does not run any more."""
    await wait_until(lambda: not is_alive(pid))
