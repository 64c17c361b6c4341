# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Kills the plugins that a killed daemon left running."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import AttachmentId
from cni_invoker.advanced import find_orphaned_plugins, kill_orphaned_plugins
from cni_invoker.errors import PluginStillRuns

log = structlog.get_logger()

_LIMIT_S: Final = 2.0
"""Limit for all of them together: the daemon answers no call before."""


@dataclass(slots=True)
class OrphanedPlugins:
    """Kills the plugins of the previous run, and remembers the attachments of those that still run.

    Attributes:
        directory: The directory in which the daemon records its running plugins.
    """

    directory: Path
    _attachments: frozenset[str] = field(default=frozenset(), init=False)

    async def kill(self) -> None:
        """Kill all plugins that still run; returns after two seconds at the latest.

        This includes plugins that publish ports of a joined endpoint: they would interfere with publishing them again.
        """
        try:
            killed = await asyncio.to_thread(kill_orphaned_plugins, self.directory, None, limit_s=_LIMIT_S)
            if killed:
                log.warning("plugins.ended", pids=killed)
                running = await asyncio.to_thread(find_orphaned_plugins, self.directory, None)
                self._attachments = frozenset(plugin.container_id for plugin in running)
        except OSError as exc:
            log.warning("plugins.not_ended", directory=str(self.directory), error=str(exc))

    async def ensure_none(self, attachment_id: AttachmentId) -> None:
        """Ensure that no plugin of the previous run is still running for an attachment; kill it again if one is.

        Raises:
            PluginStillRuns: The plugin does not end, because it hangs in the kernel.
        """
        if attachment_id in self._attachments:
            await asyncio.to_thread(kill_orphaned_plugins, self.directory, [attachment_id], limit_s=_LIMIT_S)
            running = await asyncio.to_thread(find_orphaned_plugins, self.directory, [attachment_id])
            if running:
                raise PluginStillRuns(attachment_id, [str(plugin) for plugin in running])
            self._attachments -= {attachment_id}
