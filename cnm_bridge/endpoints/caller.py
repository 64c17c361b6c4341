# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which process makes the call that is being answered: the engine, as a rule."""

import structlog

from cnm_bridge.kernel import Kernel, KernelError
from state import ProcessRecord

__all__ = ["CallerLookup"]

log = structlog.get_logger()


class CallerLookup:
    """Finds the process that makes a call; its start time distinguishes it from later ones of its number.

    Args:
        kernel: Knows when processes started.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def find(self, pid: int) -> ProcessRecord | None:
        """Return the process that makes a call; None if it cannot be seen, which is logged.

        Nothing is concluded from the end of a process that is not known.

        Args:
            pid: Its number, 0 if that cannot be seen.
        """
        if pid == 0:  # logged where the connection was accepted
            return None
        try:
            started = self._kernel.find_start(pid)
        except KernelError as exc:
            log.warning("caller.unknown", error=str(exc))
            return None
        if started is None:
            log.warning("caller.unknown", error=f"there is no process {pid}")
            return None
        return ProcessRecord(pid=pid, started=started)
