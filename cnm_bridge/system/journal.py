# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon has done last: calls of Docker, executions of plugins, changes of phases.

A fixed number of events is kept, in memory only, and each is passed on to listeners. Their names are those
of the log. To add one costs some microseconds, however many there are.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import EndpointRecord, Phase
from cni_invoker import Execution

_KEPT: Final = 4096
"""How many events are kept: about a megabyte."""

_UNREAD: Final = 1024
"""How many events wait for a slow reader; after that it misses some."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened: when, in seconds since 1970, and with the name and facts that the log has, too.

    A name is such as `rpc.answered`; the facts are described in `spec/admin/event.json`.
    """

    time_s: float
    name: str
    facts: JsonObject

    def as_json(self) -> JsonObject:
        """Return the event as a document."""
        at = datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds")
        return {"time": at, "event": self.name, **self.facts}


class Journal:
    """Keeps the last events, and passes new ones on to listeners."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._listeners: list[Callable[[Event], None]] = []

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events that are kept, the oldest first."""
        return iter(tuple(self._events))

    def add(self, name: str, **facts: JsonValue) -> None:
        """Add an event that happens now. Listeners are called before this returns."""
        event = Event(time.time(), name, facts)
        self._events.append(event)
        for listener in tuple(self._listeners):
            listener(event)

    def on_execution(self, execution: Execution) -> None:
        """Add an execution of a plugin."""
        self.add(
            "plugin.executed",
            plugin=execution.plugin,
            verb=execution.verb.value,
            containerId=execution.container_id or None,
            outcome=execution.outcome,
            durationMs=round(execution.duration_s * 1000, 1),
        )

    def on_phase(self, record: EndpointRecord, is_removed: bool) -> None:
        """Add that an endpoint is in another phase, with its addresses if it joins, or that its record was removed."""
        phase = None if is_removed else record.phase.value
        joined: JsonObject = {"addresses": [*record.addresses]} if phase == Phase.JOINED else {}
        self.add("endpoint.phase", endpointId=record.id, networkId=record.network_id, phase=phase, **joined)

    def add_listener(self, listener: Callable[[Event], None]) -> None:
        """Call `listener`, which must neither block nor raise, with each new event from now on."""
        self._listeners.append(listener)

    @property
    def listeners(self) -> int:
        """How many listeners there are."""
        return len(self._listeners)

    @contextmanager
    def listening(self, listener: Callable[[Event], None]) -> Iterator[None]:
        """Call `listener` as `add_listener` does, during the block."""
        self.add_listener(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def follow(self) -> AsyncGenerator[Event, None]:
        """Yield new events as they happen, until the reader stops. One that is too slow receives `events.lost`."""
        unread: deque[Event] = deque()
        arrived = asyncio.Event()
        lost = 0

        def receive(event: Event) -> None:
            nonlocal lost
            if len(unread) < _UNREAD:
                unread.append(event)
            else:
                lost += 1
            arrived.set()

        with self.listening(receive):
            while True:
                await arrived.wait()
                arrived.clear()
                while unread:
                    yield unread.popleft()
                if lost:
                    count, lost = lost, 0
                    yield Event(time.time(), "events.lost", {"count": count})
