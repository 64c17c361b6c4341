# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that a killed daemon has left behind."""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from cni_invoker import PluginStillRuns, find_orphaned_plugins, kill_orphaned_plugins
from state import AttachmentId

__all__ = ["OrphanedPlugins"]

log = structlog.get_logger()

_LIMIT_S: Final = 2.0
"""How long their end is waited for, however many they are: no call is answered before."""


class OrphanedPlugins:
    """Ends the plugins of the previous run, and knows for which attachments that was without success.

    Args:
        directory: Where the previous run kept which plugins it ran.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._attachments: frozenset[str] = frozenset()

    async def end(self) -> None:
        """End the plugins that are still at work, whatever for; returns after two seconds at the latest.

        So too those that were to publish ports of a joined endpoint: they would disturb what publishes them once more.
        """
        try:
            ended = await asyncio.to_thread(kill_orphaned_plugins, self._directory, None, limit_s=_LIMIT_S)
            if ended:
                log.warning("plugins.ended", pids=ended)
                running = await asyncio.to_thread(find_orphaned_plugins, self._directory, None)
                self._attachments = frozenset(stray.container_id for stray in running)
        except OSError as exc:
            log.warning("plugins.not_ended", directory=str(self._directory), error=str(exc))

    async def refuse(self, attachment_id: AttachmentId) -> None:
        """Refuse to detach an endpoint as long as a plugin is at work for it; that plugin is killed once more.

        Raises:
            PluginStillRuns: It does not end, because it hangs in the kernel.
        """
        if attachment_id in self._attachments:
            await asyncio.to_thread(kill_orphaned_plugins, self._directory, [attachment_id], limit_s=_LIMIT_S)
            running = await asyncio.to_thread(find_orphaned_plugins, self._directory, [attachment_id])
            if running:
                raise PluginStillRuns(attachment_id, [str(stray) for stray in running])
            self._attachments -= {attachment_id}
