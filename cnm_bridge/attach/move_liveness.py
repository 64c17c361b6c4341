# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds endpoints that are dead: neither their sandbox nor their link exists."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from cnm_bridge.kernel import Kernel
from cnm_bridge.model.naming import alternative_name, host_link_name
from state import EndpointRecord, Phase

__all__ = ["find_abandoned", "find_dead", "find_without_link"]


async def find_dead(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints whose sandbox is gone and whose link is not in the host namespace either.

    libnetwork removes a sandbox after it has taken the links out, and makes it before it moves them in. So the sandbox
    is looked for before the links and once more after them: no link is missed on its way.

    Raises:
        KernelError: The links cannot be listed.
    """
    suspects = await _without_sandbox(kernel, endpoints)
    if not suspects:
        return ()
    at_home = await _names_at_home(kernel)
    away = [record for record in suspects if not _is_at_home(record, at_home)]
    return await _without_sandbox(kernel, away)


async def find_abandoned(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints that were joined, without a process in their sandbox, whose link is in no container either.

    A dockerd that was killed leaves the sandboxes of its containers mounted, and the next one removes them within a
    minute. No sandbox is without a process as long as its container starts or runs: runc's is there before libnetwork
    moves the first link in. One whose link is in the host namespace yet, or again, is spared for the engine that is
    about to move it, or to delete the endpoint, unless the process that asked for both endpoint and join has ended.
    Only of a container that runs may the next one join an endpoint that it has not made (moby, `Sandbox.Refresh`).

    Raises:
        KernelError: Links or processes cannot be looked at.
    """
    wanted = [record for record in endpoints if record.phase.is_attached]
    callers = {record.id: record.caller for record in wanted if record.caller and record.sandbox_key}
    ended = {caller for caller in set(callers.values()) if kernel.find_start(caller.pid) != caller.started}
    orphans = {endpoint_id for endpoint_id, caller in callers.items() if caller in ended}
    suspects = [record for record in wanted if record.phase is Phase.JOINED or record.id in orphans]
    if not suspects:
        return ()
    before = await kernel.find_process_namespaces()
    at_home = await _names_at_home(kernel)
    after = await kernel.find_process_namespaces()  # no link is missed on its way
    inside = before.altnames | after.altnames

    def is_abandoned(record: EndpointRecord) -> bool:
        return (
            alternative_name(record.attachment_id) not in inside
            and (record.id in orphans or not _is_at_home(record, at_home))
            and not (record.sandbox_key and after.includes(Path(record.sandbox_key)))
        )

    return await asyncio.to_thread(lambda: tuple(filter(is_abandoned, suspects)))


async def find_without_link(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the joined endpoints whose sandbox exists and whose link is neither there nor in the host namespace.

    Somebody with the right to do so has deleted it, or taken its alternative name away. The container is left alone.

    Raises:
        KernelError: A namespace cannot be looked into.
    """
    joined = {alternative_name(record.attachment_id): record for record in endpoints if record.phase is Phase.JOINED}
    sandboxes = {name: record.sandbox_key for name, record in joined.items() if record.sandbox_key}
    away = await kernel.find_without_link(sandboxes)
    if not away:
        return ()
    at_home = await _names_at_home(kernel)
    return tuple(record for name, record in joined.items() if name in away and name not in at_home)


async def _without_sandbox(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints that are in no sandbox: they were never handed over to one, or that one is gone.

    Where it is joined to, the record of a rebuilt endpoint does not tell.
    """
    attached = [record for record in endpoints if record.phase.is_attached]
    gone = await kernel.gone_sandboxes({record.sandbox_key for record in attached if record.sandbox_key is not None})
    return tuple(
        record
        for record in attached
        if (record.phase is Phase.READY if record.sandbox_key is None else record.sandbox_key in gone)
    )


async def _names_at_home(kernel: Kernel) -> frozenset[str]:
    """Return all names of the links in the host namespace."""
    return frozenset(name for link in await kernel.host_links() for name in (link.state.name, *link.altnames))


def _is_at_home(record: EndpointRecord, at_home: frozenset[str]) -> bool:
    return not at_home.isdisjoint((host_link_name(record.attachment_id), alternative_name(record.attachment_id)))
