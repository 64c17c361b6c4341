# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How endpoints were attached, from the daemon's log."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cnm_bridge.settings import AttachOption

__all__ = ["Attached", "describe", "read_attached"]

_CREATED: Final = '"endpoint.created"'
_MOVED: Final = '"endpoint.moved_instead"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """How endpoints were attached.

    Attributes:
        modes: How many, by the value of their mode in the end.
        reasons: Why each of those that were to be attached in the sandbox was moved.
    """

    modes: Counter[str]
    reasons: Sequence[str]


def read_attached(log: str) -> Attached:
    """Return how the endpoints in a part of the daemon's log were attached."""
    events = [json.loads(line) for line in log.splitlines() if _CREATED in line or _MOVED in line]
    modes = Counter(str(event["mode"]) for event in events if event["event"] == "endpoint.created")
    reasons = [str(event["reason"]) for event in events if event["event"] == "endpoint.moved_instead"]
    modes[AttachOption.HYBRID.value] -= len(reasons)
    modes[AttachOption.MOVE.value] += len(reasons)
    return Attached(modes=+modes, reasons=reasons)


def describe(modes: Mapping[str, int]) -> str:
    """Return a line with the numbers of endpoints."""
    counts = ", ".join(f"{mode} {count}" for mode, count in sorted(modes.items()))
    return f"endpoints by attach mode: {counts or 'none'}"
