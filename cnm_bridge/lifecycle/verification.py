# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoints the kernel has nothing of any more, so that they can never be used again."""

from collections.abc import Iterable
from pathlib import Path

from cnm_bridge.kernel import Kernel
from cnm_bridge.lifecycle.judgement import ATTACHED
from cnm_bridge.lifecycle.naming import alternative_name, host_link_name
from state import EndpointRecord, Phase

__all__ = ["find_abandoned", "find_dead", "find_without_link"]


async def find_dead(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints whose sandbox is gone and whose link is not in the host namespace either.

    libnetwork removes a sandbox after it has taken the links out, and makes it before it moves them in. So the sandbox
    is looked for before the links and once more after them: no link is missed on its way.

    Raises:
        KernelError: The links cannot be listed.
    """
    suspects = [record for record in endpoints if _has_no_sandbox(kernel, record)]
    if not suspects:
        return ()
    at_home = {name for link in await kernel.host_links() for name in (link.state.name, *link.altnames)}
    return tuple(
        record
        for record in suspects
        if at_home.isdisjoint({host_link_name(record.id), alternative_name(record.id)})
        and _has_no_sandbox(kernel, record)
    )


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
    wanted = [record for record in endpoints if record.phase in ATTACHED]
    callers = {record.id: record.caller for record in wanted if record.caller and record.sandbox_key}
    ended = {caller for caller in set(callers.values()) if kernel.find_start(caller.pid) != caller.started}
    orphans = {endpoint_id for endpoint_id, caller in callers.items() if caller in ended}
    suspects = [record for record in wanted if record.phase is Phase.JOINED or record.id in orphans]
    if not suspects:
        return ()
    before = await kernel.find_inhabited()
    at_home = {name for link in await kernel.host_links() for name in (link.state.name, *link.altnames)}
    after = await kernel.find_inhabited()  # no link is missed on its way
    inside = before.altnames | after.altnames
    return tuple(
        record
        for record in suspects
        if alternative_name(record.id) not in inside
        and (record.id in orphans or at_home.isdisjoint({host_link_name(record.id), alternative_name(record.id)}))
        and not (record.sandbox_key and after.includes(Path(record.sandbox_key)))
    )


async def find_without_link(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the joined endpoints whose sandbox exists and whose link is neither there nor in the host namespace.

    Somebody with the right to do so has deleted it, or taken its alternative name away. The container is left alone.

    Raises:
        KernelError: A namespace cannot be looked into.
    """
    joined = [
        (record, Path(record.sandbox_key))
        for record in endpoints
        if record.phase is Phase.JOINED and record.sandbox_key and not kernel.sandbox_is_gone(Path(record.sandbox_key))
    ]
    away = [
        record for record, sandbox in joined if not await kernel.is_in_sandbox(sandbox, alternative_name(record.id))
    ]
    if not away:
        return ()
    at_home = {name for link in await kernel.host_links() for name in link.altnames}
    return tuple(record for record in away if alternative_name(record.id) not in at_home)


def _has_no_sandbox(kernel: Kernel, record: EndpointRecord) -> bool:
    """Tell whether an endpoint is in no sandbox: it was never handed over to one, or that one is gone."""
    if record.phase not in ATTACHED:
        return False
    if record.sandbox_key is None:  # where it is joined to, the record of a rebuilt endpoint does not tell
        return record.phase is Phase.READY
    return kernel.sandbox_is_gone(Path(record.sandbox_key))
