# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds endpoints that no container can use any more, and those on which a container runs; only the kernel is asked.

A record may be out of date, because its last write was lost or an older export was imported. The engine may list fewer
endpoints than it has, or may not be the only engine that uses this driver.

In mode *move* the link may be in the host namespace: before libnetwork moves it into the sandbox, and afterwards. In
mode *sandbox* it is in the sandbox only, and the pin does not count, which keeps the namespace until
DEL.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, NotJoined, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import alternative_name, host_link_name
from cnm_bridge.core.errors import KernelError
from cnm_bridge.system.kernel import Kernel, Sandboxes

log = structlog.get_logger()

DEAD: Final = "its sandbox and its link are gone"
"""Why a dead endpoint is torn down, for the log."""

_IN_USE: Final = (
    "a container starts or runs on it, so it stays until that container ends; did dockerd lose it in a crash, or does "
    "another engine use this driver too?"
)


@dataclass(slots=True)
class Liveness:
    """Finds endpoints that are dead or in use. Searches raise `KernelError` if links or sandboxes cannot be read."""

    store: Store
    kernel: Kernel
    _logged: set[EndpointId] = field(default_factory=set, init=False)
    """Endpoints whose use has been logged."""

    def __post_init__(self) -> None:
        self.store.when_removed(self._logged.discard)

    async def find_dead(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints of which neither the sandbox nor the link exists.

        An endpoint that has only a reservation is not returned: only Docker knows whether it will join it.

        libnetwork creates a sandbox before it moves links in, and removes it after it has moved them out. So sandboxes
        are checked before and after the links in the host namespace; otherwise a link in transit could be missed.
        """
        suspects = await self._without_sandbox(records)
        if all(record.attachment.mode.in_sandbox for record in suspects):
            return suspects
        in_host_netns = await self._names_in_host_netns()
        return await self._without_sandbox(
            record
            for record in suspects
            if record.attachment.mode.in_sandbox or not _is_in_host_netns(record, in_host_netns)
        )

    async def find_without_container(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that belong to no container that runs or is being started.

        These are joined endpoints without a process in their sandbox, and unjoined ones whose caller has ended. A
        container whose first process is known runs as long as that process, which may have left the sandbox.

        The sandbox of a starting or running container has a process: runc's exists before libnetwork moves the first
        link. A dockerd that was killed leaves mounted sandboxes, which the next dockerd removes within a minute.

        An endpoint whose link is in the host namespace is not returned while the engine may still move the link or
        delete the endpoint, that is, unless the process that sent both CreateEndpoint and Join has ended. A new dockerd
        joins an existing endpoint only for a running container (moby, `Sandbox.Refresh`). A caller of which no Join is
        known may be a process that a proxy has made for one call; nothing follows from its end.

        The engine does neither after it has removed the sandbox, which comes last (moby, `Sandbox.Delete`). Before
        Engine 28 the sandbox of a new endpoint does not exist yet, so this counts only after Leave, or if the
        container's first process has ended.

        Raises `KernelError` also if not all processes are visible.
        """
        attached = [record for record in records if record.phase.is_attached]
        engines = {record.caller for record in attached if record.caller and record.sandbox_key}
        callers = {
            record.id: record.caller
            for record in attached
            if record.caller in engines and (record.sandbox_key or record.attachment.mode.in_sandbox)
        }
        ended = {caller for caller in engines if not self._runs(caller)}
        gone = await self.kernel.gone_sandboxes(
            {record.sandbox_key for record in attached if record.sandbox_key is not None}
        )
        unwanted = {endpoint_id for endpoint_id, caller in callers.items() if caller in ended}
        unwanted |= {record.id for record in attached if record.sandbox_key in gone and self._was_joined(record)}
        suspects = [record for record in attached if record.phase is Phase.JOINED or record.id in unwanted]
        if not suspects:
            return ()
        before = after = await self._look(suspects)
        in_host_netns = frozenset[str]()
        if not all(record.attachment.mode.in_sandbox for record in suspects):
            in_host_netns = await self._names_in_host_netns()
            after = await self._look(suspects)  # again, so that no link in transit is missed

        def has_no_container(record: EndpointRecord) -> bool:
            may_be_moved = (
                not record.attachment.mode.in_sandbox
                and record.id not in unwanted
                and _is_in_host_netns(record, in_host_netns)
            )
            return (
                not may_be_moved
                and not any(_is_in_use(record, seen) for seen in (before, after))
                and not (record.sandbox_key and after.is_inhabited(record.sandbox_key))
                and not (record.first_process and self._runs(record.first_process))
            )

        return await asyncio.to_thread(lambda: tuple(filter(has_no_container, suspects)))

    async def has_ended(self, record: EndpointRecord) -> bool:
        """Return whether the container of an endpoint has certainly ended; looks at each process of the host.

        Its first process may be known. If so, another container that shares the sandbox does not count: it loses the
        link when Docker removes the sandbox.
        """
        try:
            if record.first_process is not None:
                return not self._runs(record.first_process)
            return not await self.kernel.is_inhabited(record.sandbox)
        except (KernelError, NotJoined):  # it cannot be read, or is not known
            return False

    async def find_in_use(self, records: Iterable[EndpointRecord]) -> frozenset[EndpointId]:
        """Return the endpoints whose link is in their sandbox, in which a process runs; see `own_sandboxes`."""
        wanted = tuple(records)
        if not wanted:
            return frozenset()
        seen = await self.kernel.look_into_sandboxes(path for record in wanted for path in own_sandboxes(record))
        return frozenset(record.id for record in wanted if _is_in_use(record, seen))

    async def find_in_place(self, records: Iterable[EndpointRecord]) -> frozenset[EndpointId]:
        """Return the endpoints whose link is in the sandbox that Docker named, whether processes run there or not."""
        joined = [record for record in records if record.sandbox_key is not None]
        if not joined:
            return frozenset()
        seen = await self.kernel.look_into_sandboxes(str(record.sandbox) for record in joined)
        return frozenset(
            record.id for record in joined if seen.has(alternative_name(record.attachment.id), str(record.sandbox))
        )

    async def without_in_use(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that are not in use. On a kernel error, all count as in use.

        Each endpoint in use is logged once.
        """
        wanted = tuple(records)
        try:
            in_use = await self.find_in_use(wanted)
        except KernelError as exc:
            log.warning("endpoint.in_use_unknown", endpoints=[record.id for record in wanted], error=str(exc))
            return ()
        for endpoint_id in sorted(in_use - self._logged):
            log.warning("endpoint.in_use", endpoint_id=endpoint_id, consequence=_IN_USE)
            await asyncio.sleep(0)
        self._logged.update(in_use)
        return tuple(record for record in wanted if record.id not in in_use)

    async def _without_sandbox(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that were not joined or whose sandbox no longer exists."""
        suspects = [
            record
            for record in records
            if record.phase is Phase.JOINED or (record.phase.is_attached and not record.attachment.mode.in_sandbox)
        ]
        gone = await self.kernel.gone_sandboxes(
            {record.sandbox_key for record in suspects if record.sandbox_key is not None}
        )
        return tuple(
            record
            for record in suspects
            if (record.phase is Phase.READY if record.sandbox_key is None else record.sandbox_key in gone)
        )

    def _was_joined(self, record: EndpointRecord) -> bool:
        """Return whether the container of an endpoint has been started, and has ended or left it since."""
        if record.first_process is not None:
            return not self._runs(record.first_process)
        return record.phase is Phase.READY and record.sandbox_key is not None

    def _runs(self, process: ProcessRecord) -> bool:
        return self.kernel.find_start(process.pid) == process.started

    async def _look(self, suspects: Iterable[EndpointRecord]) -> Sandboxes:
        seen = await self.kernel.look_into_sandboxes(path for record in suspects for path in own_sandboxes(record))
        if seen.inhabited is None:
            raise KernelError("look at", "processes", "not all of them are visible from here")
        return seen

    async def _names_in_host_netns(self) -> frozenset[str]:
        return frozenset(name for link in await self.kernel.host_links() for name in (link.state.name, *link.altnames))


def own_sandboxes(record: EndpointRecord) -> tuple[str, ...]:
    """Return the paths of the sandbox in which the link of an endpoint is: Docker's, and our pin. None stand for any.

    The record may be from before Join.
    """
    if record.sandbox_key is None:
        return ()
    return (record.sandbox_key, *((record.attachment.netns,) if record.attachment.mode.in_sandbox else ()))


def _is_in_host_netns(record: EndpointRecord, in_host_netns: frozenset[str]) -> bool:
    return not in_host_netns.isdisjoint((host_link_name(record.attachment.id), alternative_name(record.attachment.id)))


def _is_in_use(record: EndpointRecord, seen: Sandboxes) -> bool:
    """Return whether a process runs, or may run, in a sandbox with the link of an endpoint."""
    return seen.has_in_use(alternative_name(record.attachment.id), own_sandboxes(record))
