# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Handles SIGHUP: reads the settings again and applies those that can change while the daemon runs.

An invalid setting is logged, and nothing changes. Changed settings that need a restart are logged at each SIGHUP.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cnm_bridge.core.errors import BridgeError
from cnm_bridge.core.settings import LogLevel, Settings

log = structlog.get_logger()

_QUIET: Final = (LogLevel.WARNING, LogLevel.ERROR)
"""Levels that would hide the log line about the changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """The source of the settings.

    Attributes:
        read: Returns the current settings; runs in a thread. Raises `OSError`, or `BridgeError`, whose text names the
            mistake and its source.
        options: Setting → the operator's name for it, e.g. `{"cni_conf_dirs": "cni-conf-dir"}`.
    """

    read: Callable[[], Settings]
    options: Mapping[str, str]


@dataclass(slots=True)
class Reloading:
    """Updates the settings of a running daemon.

    Attributes:
        current: The settings in effect.
        source: The source of the settings.
        requested: Set to request a reload.
        appliers: Setting → function that applies a new value and cannot fail. Other settings need a restart.
    """

    current: Settings
    source: SettingsSource
    requested: asyncio.Event
    appliers: Mapping[str, Callable[[Settings], None]]

    async def run(self) -> None:
        """Handle requests until cancelled."""
        while True:
            await self.requested.wait()
            self.requested.clear()
            await self._reload()

    async def _reload(self) -> None:
        try:
            wanted = await asyncio.to_thread(self.source.read)
        except (BridgeError, OSError) as exc:
            log.warning("daemon.not_reloaded", error=str(exc), consequence="all settings stay as they are")
            return
        different = [name for name in self.source.options if getattr(wanted, name) != getattr(self.current, name)]
        now = {name: getattr(wanted, name) for name in different if name in self.appliers}
        later = [self.source.options[name] for name in different if name not in self.appliers]
        is_quiet = self.current.log_level in _QUIET
        if not is_quiet:
            self._log(now)
        self.current = replace(self.current, **now)
        for apply in dict.fromkeys(self.appliers[name] for name in now):
            apply(self.current)
        if is_quiet:
            self._log(now)
        if later:
            log.warning("daemon.restart_needed", settings=later)

    def _log(self, changed: Mapping[str, object]) -> None:
        """Log the changes; called while the more verbose of the old and the new log level is set."""
        log.info(
            "daemon.reloaded",
            changed={self.source.options[name]: _to_loggable(value) for name, value in changed.items()},
        )


def _to_loggable(value: object) -> str | list[str]:
    return list(map(str, value)) if isinstance(value, tuple) else str(value)
