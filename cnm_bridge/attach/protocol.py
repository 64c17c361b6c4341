# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a way of attaching must do.

```
CreateEndpoint ─▶ prepare, create_reply     Join ─▶ attach, join_reply     Leave ─▶ leave     teardown ─▶ detach
```

The endpoint's record tells its way (`state.AttachMode`), so that one daemon serves endpoints of several. An attacher
keeps nothing of an endpoint in memory that its record does not tell: any call may come after a restart of the daemon.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from cnm_bridge.planning.plan import Plan
from cnm_bridge.wire import ChosenInterface, Joined
from state import AttachMode, EndpointRecord

__all__ = ["Attacher", "Attachers", "DeleteProgress", "SaveRecord"]

SaveRecord = Callable[[EndpointRecord], Awaitable[None]]
"""Stores an endpoint's record; when it returns, the record is on disk."""


class DeleteProgress(Protocol):
    """How far the DEL of an endpoint's plugins has come. The teardown keeps it, on a full disk in memory."""

    deleted: frozenset[int]
    """The indexes of the plugins in the list whose DEL has completed; they must not run again."""

    @property
    def place(self) -> Callable[[], AbstractAsyncContextManager[None]] | None:
        """What limits how many plugins run at once, None if nothing does."""

    async def save(self, record: EndpointRecord) -> None:
        """Store what was learned of the endpoint, and the progress. A full disk is no error."""

    async def is_needed(self, record: EndpointRecord, plugin: str) -> bool:
        """Return whether another endpoint needs what a plugin's DEL would remove by the address alone.

        Raises:
            AddressClaimed: That is not certain yet.
        """


class Attacher(Protocol):
    """One way of attaching. The caller holds the endpoint's lock in every call that takes one record."""

    async def prepare(self, record: EndpointRecord, plan: Plan, save: SaveRecord) -> EndpointRecord:
        """Do what CreateEndpoint asks for; return the record in READY, which is stored.

        The record is stored in PENDING already. Every result is stored before the next effect.

        Raises:
            Refused: The plugins made what this way cannot give to the container.
            CniError: A plugin failed.
            KernelError: A namespace or a link cannot be had.
            StateError: The record cannot be written.

        After a failure `detach` undoes what was done.
        """

    def create_reply(self, record: EndpointRecord) -> ChosenInterface:
        """Return what CreateEndpoint answers: what Docker did not choose itself."""

    async def attach(self, record: EndpointRecord, save: SaveRecord) -> EndpointRecord:
        """Do what Join asks for; return the record as it is stored then.

        The record comes in JOINED, with its sandbox. It is stored before the first effect.

        Raises:
            WrongPhase: The endpoint cannot be joined; nothing is stored.
            StateError: The record cannot be written.
        """

    def join_reply(self, record: EndpointRecord) -> Joined:
        """Return what Join answers."""

    async def leave(self, record: EndpointRecord) -> None:
        """Take out of the sandbox what would outlast the link. Errors are logged: nothing may block a Leave."""

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Undo all that was done, in whatever phase that was; return where the link was, for the log.

        May be repeated at any point, after a failure and after a crash: plugins in `progress.deleted` do not run again.

        Raises:
            CniError: A plugin's DEL failed.
            KernelError: The link or the namespace cannot be had.
        """

    async def find_dead(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that can never be used again, because the kernel has nothing of them any more.

        Raises:
            KernelError: The links cannot be listed.
        """

    async def find_abandoned(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that belong to no container that runs or is being started.

        Raises:
            KernelError: Links or processes cannot be looked at.
        """

    async def find_without_link(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the joined endpoints whose sandbox exists and whose link does not.

        Raises:
            KernelError: A namespace cannot be looked into.
        """


Attachers = Mapping[AttachMode, Attacher]
