# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""SIGHUP: settings are read again, and those that can change while the daemon runs are used from then on.

A mistake in them is logged and changes nothing. What needs a restart is logged, until it is restarted or set back.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cnm_bridge.errors import BridgeError
from cnm_bridge.settings import LogLevel, Settings

__all__ = ["Reloading", "SettingsSource"]

log = structlog.get_logger()

_QUIET: Final = (LogLevel.WARNING, LogLevel.ERROR)
"""Levels that hide the line that tells what has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """Where the settings come from.

    Attributes:
        read: Reads them as they are now, in a thread of its own. Raises `BridgeError`, whose text names the mistake and
            its place, or `OSError`.
        options: The operator's name of each setting, e.g. `{"cni_conf_dirs": "cni-conf-dir"}`.
    """

    read: Callable[[], Settings]
    options: Mapping[str, str]


class Reloading:
    """Brings the settings of a running daemon up to date.

    Args:
        settings: Those that it was started with.
        source: Where they come from.
        asked: Set to have them read again.
        appliers: By the settings that can change now, what uses the new ones. It cannot fail.
    """

    def __init__(
        self,
        settings: Settings,
        source: SettingsSource,
        asked: asyncio.Event,
        appliers: Mapping[str, Callable[[Settings], None]],
    ) -> None:
        self._used = settings
        self._source = source
        self._appliers = appliers
        self._asked = asked

    async def run(self) -> None:
        """Work for as long as it is not cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._reload()

    async def _reload(self) -> None:
        try:
            wanted = await asyncio.to_thread(self._source.read)
        except (BridgeError, OSError) as exc:
            log.warning("daemon.not_reloaded", error=str(exc), consequence="all settings stay as they are")
            return
        different = [name for name in self._source.options if getattr(wanted, name) != getattr(self._used, name)]
        now = {name: getattr(wanted, name) for name in different if name in self._appliers}
        later = [self._source.options[name] for name in different if name not in self._appliers]
        is_quiet = self._used.log_level in _QUIET
        if not is_quiet:
            self._log(now)
        self._used = replace(self._used, **now)
        for apply in dict.fromkeys(self._appliers[name] for name in now):
            apply(self._used)
        if is_quiet:
            self._log(now)
        if later:
            log.warning("daemon.restart_needed", settings=later)

    def _log(self, changed: Mapping[str, object]) -> None:
        """Log what changes; this is done while the less quiet one of the old and the new level is set."""
        log.info(
            "daemon.reloaded", changed={self._source.options[name]: _shown(value) for name, value in changed.items()}
        )


def _shown(value: object) -> str | list[str]:
    return list(map(str, value)) if isinstance(value, tuple) else str(value)
