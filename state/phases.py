# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The phases of an endpoint, as one literal table.

```
(none) ─▶ PENDING ─▶ READY ⇄ JOINED
             │         │       │
             └─────────┴───────┴──▶ DELETING ─▶ (none)
```
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["TRANSITIONS", "Phase"]


class Phase(StrEnum):
    """How far an endpoint has come."""

    PENDING = "pending"
    """The intent is stored; plugins may have run. After a crash: tear down."""
    READY = "ready"
    """Attached; the link waits in the host namespace for libnetwork, or came back to it."""
    JOINED = "joined"
    """Handed over to a sandbox."""
    DELETING = "deleting"
    """A DEL is owed. Docker may have forgotten the endpoint already."""

    @property
    def is_attached(self) -> bool:
        """Whether all plugins have run, and none has to undo it."""
        return self in {Phase.READY, Phase.JOINED}


TRANSITIONS: Final[Mapping[Phase | None, frozenset[Phase | None]]] = {
    None: frozenset({Phase.PENDING}),
    Phase.PENDING: frozenset({Phase.PENDING, Phase.READY, Phase.DELETING}),
    Phase.READY: frozenset({Phase.READY, Phase.JOINED, Phase.DELETING}),
    Phase.JOINED: frozenset({Phase.JOINED, Phase.READY, Phase.DELETING}),
    Phase.DELETING: frozenset({Phase.DELETING, None}),
}
"""From → to; None stands for "no record". A phase that leads to itself may be stored again with other contents."""
