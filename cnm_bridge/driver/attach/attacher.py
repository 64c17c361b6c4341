# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The protocol that every attach mode implements.

```
CreateEndpoint ─▶ prepare, create_reply     Join ─▶ attach, join_reply     Leave ─▶ leave     teardown ─▶ detach
```

The endpoint's record has its mode (`state.AttachMode`), so one daemon can serve endpoints of several modes. An attacher
keeps no state about an endpoint outside its record: any call may come after a restart of the daemon.
"""

from collections.abc import Mapping
from typing import Protocol

from cni_bridge_state import AttachMode, EndpointRecord
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import ChosenInterface, Joined


class DeleteProgress(Protocol):
    """The progress of DEL of an endpoint's plugins. The teardown stores it, or keeps it in memory on a full disk."""

    deleted: frozenset[int]
    """The indexes of the plugins in the list whose DEL must not run, because it has completed or is not wanted."""

    async def save(self, record: EndpointRecord) -> None:
        """Store the record and the progress. A full disk is not an error."""

    async def is_needed(self, record: EndpointRecord, plugin: str) -> bool:
        """Return whether another endpoint needs what a plugin's DEL would remove, because it has the same address.

        `CniError` and `KernelError` say that it is not certain yet.
        """


class Attacher(Protocol):
    """One attach mode. The caller holds the endpoint's lock in every call that takes a single record."""

    async def prepare(self, record: EndpointRecord, plan: Plan) -> EndpointRecord:
        """Execute CreateEndpoint; return the record in READY, which has been stored.

        The given record has been stored in PENDING. Every result is stored before the next effect. After a failure
        `detach` undoes what was done.

        Raises:
            Refused: The plugins made something that this mode cannot move into the container.
            CniError: A plugin failed.
            KernelError: An operation on a namespace or a link failed.
            StateError: The record cannot be written.
        """

    def create_reply(self, record: EndpointRecord) -> ChosenInterface:
        """Return the reply to CreateEndpoint: the values that Docker did not choose."""

    async def attach(self, record: EndpointRecord) -> EndpointRecord:
        """Execute Join; return the record in JOINED, which has been stored. Its mode may have changed.

        The given record is in READY, or in JOINED if the call is repeated, and has its sandbox. After a failure the
        stored record is in JOINING if plugins may have run; then `detach` undoes what was done.

        Raises:
            WrongPhase: The endpoint cannot be joined; nothing is stored.
            Refused: The plugins changed what had been reserved.
            CniError, KernelError, StateError: As `prepare`.
        """

    def join_reply(self, record: EndpointRecord) -> Joined:
        """Return the reply to Join."""

    def joined_record(self, record: EndpointRecord) -> EndpointRecord:
        """Return the record in JOINED of an endpoint on which a container runs, although its record is older."""

    async def leave(self, record: EndpointRecord) -> EndpointRecord:
        """Remove from the sandbox what libnetwork does not remove; return the record in READY, not yet stored.

        Errors are only logged: nothing may block a Leave.
        """

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Undo everything, in any phase; return where the link was, for the log.

        May be repeated after a failure or a crash at any point: plugins in `progress.deleted` do not run again.

        Raises:
            CniError: A plugin's DEL failed.
            KernelError: An operation on the link or the namespace failed.
        """

    def prepare_again(self, record: EndpointRecord) -> None:
        """Do again what an undone Join has removed and `prepare` had made, so that `attach` can be called again."""


Attachers = Mapping[AttachMode, Attacher]
