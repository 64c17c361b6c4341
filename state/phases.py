# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The phases of an endpoint, and of an address that Docker has requested, as literal tables.

```
                      ┌──▶ JOINING ──┐
(none) ─▶ PENDING ─▶ READY ◀──────▶ JOINED
             │         │     ↕        │
             └─────────┴─────┴────────┴──▶ DELETING ─▶ (none)
```

PENDING becomes JOINED if a container is found that runs on the endpoint, because a later record was lost. An endpoint
of mode *direct* is PENDING only while the daemon looks for what its plugins will need: none of them runs before Join.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from cni_bridge_state.errors import WrongPhase

P = TypeVar("P", bound=StrEnum)


class Phase(StrEnum):
    """The phase of an endpoint."""

    PENDING = "pending"
    """The intent is stored; plugins may have run. After a crash it is torn down."""
    READY = "ready"
    """Ready to be joined. Mode *move*: the link is in the host namespace. *hybrid*: the addresses are reserved."""
    JOINING = "joining"
    """The plugins run in the sandbox, or may run again after an attempt was undone. After a crash it is torn down."""
    JOINED = "joined"
    DELETING = "deleting"
    """The teardown is pending. Docker may have forgotten the endpoint already."""

    @property
    def is_attached(self) -> bool:
        """Whether CreateEndpoint or Join has completed, and no teardown has begun."""
        return self in {Phase.READY, Phase.JOINED}


TRANSITIONS: Final[Mapping[Phase | None, frozenset[Phase | None]]] = {
    None: frozenset({Phase.PENDING}),
    Phase.PENDING: frozenset({Phase.PENDING, Phase.READY, Phase.JOINED, Phase.DELETING}),
    Phase.READY: frozenset({Phase.READY, Phase.JOINING, Phase.JOINED, Phase.DELETING}),
    Phase.JOINING: frozenset({Phase.JOINING, Phase.JOINED, Phase.DELETING}),
    Phase.JOINED: frozenset({Phase.JOINED, Phase.READY, Phase.DELETING}),
    Phase.DELETING: frozenset({Phase.DELETING, Phase.JOINING, None}),
}
"""From → to; None means "no record". A phase that leads to itself may be stored again with other content."""


class AddressPhase(StrEnum):
    """The phase of an address."""

    PENDING = "pending"
    """The intent is stored; the IPAM plugin may have run. After a crash it is released: Docker has no answer."""
    RESERVED = "reserved"
    """Docker has the address."""
    RELEASING = "releasing"
    """Docker has released it; DEL of the IPAM plugin is pending."""


ADDRESS_TRANSITIONS: Final[Mapping[AddressPhase | None, frozenset[AddressPhase | None]]] = {
    None: frozenset({AddressPhase.PENDING, AddressPhase.RESERVED}),
    AddressPhase.PENDING: frozenset({AddressPhase.RESERVED, AddressPhase.RELEASING}),
    AddressPhase.RESERVED: frozenset({AddressPhase.RELEASING}),
    AddressPhase.RELEASING: frozenset({None}),
}
"""From → to; None means "no record". An address without a plugin begins as RESERVED."""


def refuse_step(
    transitions: Mapping[P | None, frozenset[P | None]], record_id: str, before: P | None, after: P | None, kind: str
) -> None:
    """Refuse a step that a table of transitions does not have; `kind` is `endpoint` or `address`, for the error.

    Raises:
        WrongPhase: The table has no such step.
    """
    if after not in transitions[before]:
        raise WrongPhase(record_id, before, after, kind)
