# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is known of the engine: its version, also while it boots, and whether it answers."""

import asyncio
from typing import Final

from cni_bridge_state import StateError
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts.engine import EngineVersion

_FIRST_ANSWER_S: Final = 1.0
"""How long the first calls after a start wait for an engine that answers; one that boots accepts connections."""
_GIVEN_UP_AFTER_S: Final = 10.0
"""How long an engine may be silent after the daemon's start before it counts as down."""


class KnownVersion:
    """The version that the engine reported last, in this run of the daemon or in an earlier one.

    Attributes:
        current: The version, None if no engine has ever reported one.
        is_up: Whether the engine answers; None if that is not known since the daemon's start. While it boots it does
            not, although it starts containers.
        ups: How often the engine has come up since the daemon's start: what one says of itself holds until the next.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        stored = store.engine_version()
        self.current = None if stored is None else EngineVersion.parse(stored)
        self.is_up: bool | None = None
        self.ups = 0
        self._looked = asyncio.Event()

    async def wait_looked(self) -> None:
        """Wait until the engine has answered, was not there, or has not answered in a second; then it boots."""
        try:
            async with asyncio.timeout(_FIRST_ANSWER_S):
                await self._looked.wait()
        except TimeoutError:
            self._looked.set()

    def note(self, version: EngineVersion | None) -> None:
        """Remember what the engine reports now."""
        self.current = version
        self.is_up = True
        self.ups += 1
        self._looked.set()

    async def give_up(self) -> None:
        """Count the engine as down if it is still silent some time after the daemon's start."""
        await asyncio.sleep(_GIVEN_UP_AFTER_S)
        if self.is_up is None:
            self.lose()

    def lose(self) -> None:
        """Remember that the engine does not answer, or not any more."""
        self.is_up = False
        self._looked.set()

    async def keep(self) -> None:
        """Store the version, if it differs from the stored one. A full disk is no error: it is asked for again."""
        text = str(self.current) if self.current else None
        if text is not None and text != self._store.engine_version():
            try:
                await self._store.put_engine_version(text)
            except StateError:
                return
