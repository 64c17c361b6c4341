# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Keeps processes apart that share a cache directory: GC on a network runs alone, the rest together.

CNI SPEC §2, "Lifecycle & Ordering". A `Runtime` does the same for the tasks of one process; libcni does neither, so
that cnitool does not wait.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cni_invoker.errors import CacheError, NetworkBusy
from cni_invoker.names import check_network_name

__all__ = ["hold_network"]

_PAUSE_S: Final = 0.05
"""Between two attempts; plugins take some tens of milliseconds."""

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


@asynccontextmanager
async def hold_network(directory: Path, network: str, *, alone: bool, wait_s: float) -> AsyncIterator[None]:
    """Run the body while nobody else has the network, or nobody has it alone; the end of the process ends it too.

    Args:
        directory: The cache directory; below it is `locks/<network>`.
        network: The network's name.
        alone: Whether nobody else may have it.
        wait_s: How long to wait for the others, in seconds.

    Raises:
        NetworkBusy: They did not end in time; the body has not run.
        CacheError: The lock's file cannot be made.
    """
    check_network_name(network)
    file = directory / "locks" / network
    try:
        file.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    except OSError as exc:
        raise CacheError(file, f"cannot lock it: {exc.strerror}") from exc
    try:
        deadline = asyncio.get_running_loop().time() + wait_s
        while not _take(descriptor, alone=alone):
            if asyncio.get_running_loop().time() > deadline:
                raise NetworkBusy(network, waited_s=wait_s)
            await asyncio.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, *, alone: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
