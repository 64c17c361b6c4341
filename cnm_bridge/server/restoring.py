# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes the run directory, its lock and the admin socket again if they are removed while the daemon runs.

Everything else in the run directory is made by the modules that need it. Namespaces are mounted in it, and a directory
with a mount point cannot be removed: while one is mounted, the lock stays.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from cnm_bridge.core.errors import Refused
from cnm_bridge.system.log import RateLimit
from cnm_bridge.system.process import RunDirectory
from cnm_bridge.system.sockets import Listener, SocketFile

log = structlog.get_logger()

_EVERY_S: Final = 1.0
"""Pause between two looks, which are two system calls each."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """Looks at the run directory and the admin socket once a second.

    Attributes:
        run_directory: The run directory.
        admin: The admin socket.
    """

    run_directory: RunDirectory
    admin: SocketFile
    _failures: RateLimit = field(default_factory=RateLimit, init=False)

    async def run(self, renew: Callable[[Listener], None]) -> None:
        """Look, and restore what is lost, until cancelled.

        Args:
            renew: Called with the new admin socket; it answers there and closes the old one.
        """
        while True:
            try:
                self._look(renew)
            except (Refused, OSError) as exc:
                if count := self._failures.count():
                    log.warning("daemon.not_restored", error=str(exc), count=count)
            await asyncio.sleep(_EVERY_S)

    def _look(self, renew: Callable[[Listener], None]) -> None:
        if self.run_directory.is_lost:
            self.run_directory.restore()
            log.warning("daemon.restored", what="the run directory and its lock", path=str(self.run_directory.path))
        if self.admin.is_lost:
            listener = Listener(self.admin.renew())
            renew(listener)
            log.warning("daemon.restored", what="the admin socket", path=listener.address)
