# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The stream of events: one line of JSON for each (`spec/admin/event.json`)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from cni_bridge_spec import render_json
from cnm_bridge.server.admin.errors import AdminError, ErrorKind
from cnm_bridge.system.journal import Event, Journal

_AT_ONCE: Final = 64
"""How many of the kept events are rendered in one turn of the event loop."""


async def open_events(journal: Journal, parameters: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """Return the last `last` events, and with `follow=1` all that happen later.

    Args:
        journal: Where they come from.
        parameters: Those of the request.

    Raises:
        AdminError: `last` is not a number.
    """
    last = parameters.get("last", "0")
    if not last.isascii() or not last.isdigit():
        raise AdminError(ErrorKind.BAD_REQUEST, f"last must be a number, not {last!r}")
    return _stream(journal, int(last), follow=parameters.get("follow") == "1")


async def _stream(journal: Journal, last: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    kept = tuple(journal)[-last:] if last else ()
    following = journal.follow()
    try:
        for start in range(0, len(kept), _AT_ONCE):
            yield b"".join(map(_line, kept[start : start + _AT_ONCE]))
            await asyncio.sleep(0)
        if follow:
            async for event in following:
                yield _line(event)
    finally:
        await following.aclose()


def _line(event: Event) -> bytes:
    return render_json(event.as_json()) + b"\n"
