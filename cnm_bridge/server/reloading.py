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


class Reloading:
    """Updates the settings of a running daemon.

    Args:
        settings: The settings at start.
        source: The source of the settings.
        requested: Set to request a reload.
        appliers: Setting → function that applies a new value and cannot fail. Other settings need a restart.
    """

    def __init__(
        self,
        settings: Settings,
        source: SettingsSource,
        requested: asyncio.Event,
        appliers: Mapping[str, Callable[[Settings], None]],
    ) -> None:
        self._current = settings
        self._source = source
        self._appliers = appliers
        self._requested = requested

    @property
    def current(self) -> Settings:
        """The settings in effect."""
        return self._current

    async def run(self) -> None:
        """Handle requests until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            await self._reload()

    async def _reload(self) -> None:
        try:
            wanted = await asyncio.to_thread(self._source.read)
        except (BridgeError, OSError) as exc:
            log.warning("daemon.not_reloaded", error=str(exc), consequence="all settings stay as they are")
            return
        different = [name for name in self._source.options if getattr(wanted, name) != getattr(self._current, name)]
        now = {name: getattr(wanted, name) for name in different if name in self._appliers}
        later = [self._source.options[name] for name in different if name not in self._appliers]
        is_quiet = self._current.log_level in _QUIET
        if not is_quiet:
            self._log(now)
        self._current = replace(self._current, **now)
        for apply in dict.fromkeys(self._appliers[name] for name in now):
            apply(self._current)
        if is_quiet:
            self._log(now)
        if later:
            log.warning("daemon.restart_needed", settings=later)

    def _log(self, changed: Mapping[str, object]) -> None:
        """Log the changes; called while the more verbose of the old and the new log level is set."""
        log.info(
            "daemon.reloaded",
            changed={self._source.options[name]: _to_loggable(value) for name, value in changed.items()},
        )


def _to_loggable(value: object) -> str | list[str]:
    return list(map(str, value)) if isinstance(value, tuple) else str(value)
