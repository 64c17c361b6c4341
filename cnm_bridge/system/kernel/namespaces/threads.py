# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Short-lived threads for work in another namespace; see `cni_invoker.worker_threads`."""

from collections.abc import Callable
from typing import TypeVar

from cni_invoker import worker_threads
from cnm_bridge.core.link_state import KernelError

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = lambda: None) -> T:
    """Run `work` in a thread of its own, as `cni_invoker.worker_threads.run_in_thread` does.

    Raises:
        KernelError: No further thread can be started.
    """
    try:
        return await worker_threads.run_in_thread(work, stop=stop)
    except BlockingIOError as exc:
        raise KernelError("start", "a thread", str(exc.strerror), exc.errno) from exc
