# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds endpoints of mode *move* that are dead, abandoned, or without their link.

Dead: its sandbox does not exist, and its link is not in the host namespace. Abandoned: no process is in its sandbox.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_state import EndpointRecord, Phase
from cnm_bridge.core.model.naming import alternative_name, host_link_name
from cnm_bridge.system.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLiveness:
    """Finds endpoints that no container can use any more.

    Attributes:
        kernel: Knows sandboxes, links and processes.
    """

    kernel: Kernel

    async def find_dead(self, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints whose sandbox does not exist and whose link is not in the host namespace.

        libnetwork creates a sandbox before it moves links in, and removes it after it has moved them out. So sandboxes
        are checked before and after the links; otherwise a link in transit could be missed.

        Raises:
            KernelError: The links cannot be listed.
        """
        suspects = await _without_sandbox(self.kernel, endpoints)
        if not suspects:
            return ()
        in_host_netns = await _names_in_host_netns(self.kernel)
        away = [record for record in suspects if not _is_in_host_netns(record, in_host_netns)]
        return await _without_sandbox(self.kernel, away)

    async def find_abandoned(self, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that were joined, have no process in their sandbox, and whose link is in no container.

        A dockerd that was killed leaves the sandboxes of its containers mounted; the next dockerd removes them within a
        minute. The sandbox of a starting or running container has a process: runc's exists before libnetwork moves the
        first link.

        An endpoint whose link is in the host namespace is not returned while the engine may still move the link or
        delete the endpoint, that is, unless the process that sent both CreateEndpoint and Join has ended. A new dockerd
        joins an existing endpoint only for a running container (moby, `Sandbox.Refresh`).

        Raises:
            KernelError: Links or processes cannot be read.
        """
        wanted = [record for record in endpoints if record.phase.is_attached]
        callers = {record.id: record.caller for record in wanted if record.caller and record.sandbox_key}
        ended = {caller for caller in set(callers.values()) if self.kernel.find_start(caller.pid) != caller.started}
        without_caller = {endpoint_id for endpoint_id, caller in callers.items() if caller in ended}
        suspects = [record for record in wanted if record.phase is Phase.JOINED or record.id in without_caller]
        if not suspects:
            return ()
        before = await self.kernel.find_process_namespaces()
        in_host_netns = await _names_in_host_netns(self.kernel)
        after = await self.kernel.find_process_namespaces()  # again, so that no link in transit is missed
        inside = before.altnames | after.altnames

        def is_abandoned(record: EndpointRecord) -> bool:
            return (
                alternative_name(record.attachment.id) not in inside
                and (record.id in without_caller or not _is_in_host_netns(record, in_host_netns))
                and not (record.sandbox_key and after.includes(Path(record.sandbox_key)))
            )

        return await asyncio.to_thread(lambda: tuple(filter(is_abandoned, suspects)))

    async def find_without_link(self, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the joined endpoints whose sandbox exists and whose link is neither there nor in the host namespace.

        The link, or its alternative name, was removed by an operator or by the container.

        Raises:
            KernelError: A namespace cannot be read.
        """
        joined = {
            alternative_name(record.attachment.id): record for record in endpoints if record.phase is Phase.JOINED
        }
        sandboxes = {name: record.sandbox_key for name, record in joined.items() if record.sandbox_key}
        away = await self.kernel.find_without_link(sandboxes)
        if not away:
            return ()
        in_host_netns = await _names_in_host_netns(self.kernel)
        return tuple(record for name, record in joined.items() if name in away and name not in in_host_netns)


async def _without_sandbox(kernel: Kernel, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints that were not joined or whose sandbox no longer exists.

    The sandbox of a rebuilt record is unknown; such an endpoint is not returned.
    """
    attached = [record for record in endpoints if record.phase.is_attached]
    gone = await kernel.gone_sandboxes({record.sandbox_key for record in attached if record.sandbox_key is not None})
    return tuple(
        record
        for record in attached
        if (record.phase is Phase.READY if record.sandbox_key is None else record.sandbox_key in gone)
    )


async def _names_in_host_netns(kernel: Kernel) -> frozenset[str]:
    """Return all names of the links in the host namespace."""
    return frozenset(name for link in await kernel.host_links() for name in (link.state.name, *link.altnames))


def _is_in_host_netns(record: EndpointRecord, in_host_netns: frozenset[str]) -> bool:
    return not in_host_netns.isdisjoint((host_link_name(record.attachment.id), alternative_name(record.attachment.id)))
