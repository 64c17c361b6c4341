# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Identifies the process that makes a call, usually dockerd."""

import structlog

from cni_bridge_state import ProcessRecord
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel

__all__ = ["CallerLookup"]

log = structlog.get_logger()


class CallerLookup:
    """Finds the process that makes a call; its start time distinguishes it from later processes with the same ID.

    Args:
        kernel: Finds start times of processes.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def find(self, pid: int) -> ProcessRecord | None:
        """Return the process that makes a call; None if it is not visible, which is logged.

        Args:
            pid: Its process ID, 0 if that is not visible.
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
