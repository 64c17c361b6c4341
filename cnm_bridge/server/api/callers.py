# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes the answer of a call from the function that parses its body and the one that executes it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from cni_bridge_spec import JsonObject
from cni_bridge_state import ProcessRecord
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.server.api.rpc import Answer
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

Request = TypeVar("Request")
Reply = TypeVar("Reply")


def with_caller(
    kernel: Kernel,
    parse: Callable[[JsonObject], Request],
    call: Callable[[Request, ProcessRecord | None], Awaitable[Reply]],
    render: Callable[[Reply], JsonObject],
) -> Answer:
    """Return the answer of a call that needs to know who makes it."""

    async def carry_out(request: Request, caller_pid: int) -> JsonObject:
        return render(await call(request, _find_caller(kernel, caller_pid)))

    return lambda body, caller_pid: carry_out(parse(body), caller_pid)


def done(parse: Callable[[JsonObject], Request], call: Callable[[Request], Awaitable[None]]) -> Answer:
    """Return the answer of a call whose reply is empty."""

    async def carry_out(request: Request) -> JsonObject:
        await call(request)
        return {}

    return lambda body, _: carry_out(parse(body))


def _find_caller(kernel: Kernel, pid: int) -> ProcessRecord | None:
    """Return the process that makes a call, usually dockerd; None if it is not visible, which is logged.

    Its start time distinguishes it from later processes with the same ID.

    Args:
        kernel: Finds start times of processes.
        pid: Its process ID, 0 if that is not visible.
    """
    if pid == 0:  # logged where the connection was accepted
        return None
    try:
        started = kernel.find_start(pid)
    except KernelError as exc:
        log.warning("caller.unknown", error=str(exc))
        return None
    if started is None:
        log.warning("caller.unknown", error=f"there is no process {pid}")
        return None
    return ProcessRecord(pid=pid, started=started)
