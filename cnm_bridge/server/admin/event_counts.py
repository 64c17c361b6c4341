# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Counts calls of Docker and executions of plugins, as they are added to the journal.

An event costs a microsecond, and the memory depends on the kinds of calls and plugins, not on their number.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from cni_bridge_spec import JsonObject, get_str
from cnm_bridge.system.journal import Event

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
"""Upper bounds of the histogram's buckets. Docker waits 15 s for a driver, and a plugin may take 60 s."""


@dataclass(slots=True)
class Durations:
    """A histogram of durations.

    Attributes:
        counts: Number of durations in each class of `BOUNDS_S`; the last class has no bound.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    @property
    def cumulative(self) -> Sequence[int]:
        """Number of durations up to each bound; the last one is the total."""
        return tuple(accumulate(self.counts))


class EventCounts:
    """Counts events.

    Attributes:
        calls: (call, `answered` or `refused`) → number.
        executions: (plugin, verb, outcome) → number.
        call_durations: (call,) → durations.
        execution_durations: (plugin, verb) → durations.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, ...]] = Counter()
        self.executions: Counter[tuple[str, ...]] = Counter()
        self.call_durations: dict[tuple[str, ...], Durations] = {}
        self.execution_durations: dict[tuple[str, ...], Durations] = {}

    def note(self, event: Event) -> None:
        """Count an event; events of other kinds are ignored."""
        facts = event.facts
        match event.name:
            case "rpc.answered" | "rpc.refused":
                call = get_str(facts, "rpc")
                self.calls[call, event.name.removeprefix("rpc.")] += 1
                self.call_durations.setdefault((call,), Durations()).add(_seconds(facts))
            case "plugin.executed":
                plugin, verb = get_str(facts, "plugin"), get_str(facts, "verb")
                self.executions[plugin, verb, get_str(facts, "outcome")] += 1
                self.execution_durations.setdefault((plugin, verb), Durations()).add(_seconds(facts))


def _seconds(facts: JsonObject) -> float:
    duration = facts["durationMs"]
    assert isinstance(duration, int | float)  # noqa: S101  # the journal's own
    return duration / 1000
