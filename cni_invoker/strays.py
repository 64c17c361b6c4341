# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ends plugins that have outlived their runtime.

A runtime that is killed leaves the plugins behind that it was waiting for. They would go on with an ADD while it is
undone, or after that. They are known by what they were given: the container's ID in their environment.
"""

import os
import select
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["end_strays"]

_VARIABLE: Final = b"CNI_CONTAINERID="


def end_strays(container_ids: Collection[str], *, limit_s: float) -> tuple[int, ...]:
    """Kill every other process that works for one of these containers, and wait until it has ended.

    For the start of a runtime, before anything else of these containers is done.

    Args:
        container_ids: Containers that no live runtime is at work for.
        limit_s: How long to wait for the end of each, in seconds.

    Returns:
        The process IDs.
    """
    wanted = {_VARIABLE + container_id.encode() for container_id in container_ids}
    return tuple(pid for pid in _processes() if wanted and _end(pid, wanted, limit_s))


def _processes() -> Iterator[int]:
    """Give all but this one, which may be a plugin itself."""
    found = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return (pid for pid in found if pid != os.getpid())


def _end(pid: int, wanted: set[bytes], limit_s: float) -> bool:
    with suppress(OSError):  # it has ended meanwhile, or is none of ours to look at
        pidfd = os.pidfd_open(pid)
        try:
            # Read after the descriptor was opened: it is this process's environment that is looked at.
            if not wanted.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                ended = select.poll()  # unlike select(2), it takes descriptors of any number
                ended.register(pidfd, select.POLLIN)
                ended.poll(limit_s * 1000)
                return True
        finally:
            os.close(pidfd)
    return False
