# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How endpoints were attached, from the daemon's log."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cnm_bridge.core.settings import AttachOption

__all__ = ["Attached", "describe", "has_moved_too_many", "read_attached"]

_CREATED: Final = '"endpoint.created"'
_MOVED: Final = '"endpoint.moved_instead"'
_BY_DESIGN: Final = frozenset(
    {
        "the container has further networks",
        "the container runs already, and only Docker knows whether --link-local-ip is given",
        "the sandbox has a link that this driver made in it already",
        "the container's networks are not known: the Docker Engine is booting",
    }
)
"""Reasons to move a link that are no fault of a test; the last one follows a restart of dockerd."""
_MANY: Final = 50
"""From so many endpoints on, a third of them must be attached in the sandbox; a whole run has almost half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """How endpoints were attached.

    Attributes:
        modes: How many, by the value of their mode in the end.
        doubts: Why links were moved although nothing was found that demands it.
    """

    modes: Counter[str]
    doubts: Sequence[str]


def read_attached(log: str) -> Attached:
    """Return how the endpoints in a part of the daemon's log were attached."""
    events = [json.loads(line) for line in log.splitlines() if _CREATED in line or _MOVED in line]
    modes = Counter(str(event["mode"]) for event in events if event["event"] == "endpoint.created")
    reasons = [str(event["reason"]) for event in events if event["event"] == "endpoint.moved_instead"]
    modes[AttachOption.SANDBOX.value] -= len(reasons)
    modes[AttachOption.MOVE.value] += len(reasons)
    return Attached(modes=+modes, doubts=[reason for reason in reasons if reason not in _BY_DESIGN])


def has_moved_too_many(modes: Mapping[str, int]) -> bool:
    """Return whether a run, in which links should be made in sandboxes, has moved too many to have tested that."""
    total = sum(modes.values())
    return total >= _MANY and 3 * modes.get(AttachOption.MOVE, 0) > 2 * total


def describe(modes: Mapping[str, int]) -> str:
    """Return a line with the numbers of endpoints."""
    counts = ", ".join(f"{mode} {count}" for mode, count in sorted(modes.items()))
    return f"endpoints by attach mode: {counts or 'none'}"
