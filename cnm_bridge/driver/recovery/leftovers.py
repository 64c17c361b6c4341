# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds and removes what is left of endpoints without a record: namespaces, links, and what plugins made for their IDs.

A staging namespace or a link is ours if its name says so, unless another instance of cni-bridge has a namespace for
the same container ID in its own run directory. Reservations and rules are ours if they have the ID of such a leftover.
Those of any other container may be another runtime's.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointId, NetworkId, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.core.endpoint import (
    alternative_name,
    attachment_of,
    attachments_of_others,
    is_attachment_id,
    pin_directory,
    pin_path,
    staging_directory,
    staging_path,
)
from cnm_bridge.core.errors import KernelError, Refused
from cnm_bridge.core.planning.records import rebuilt_record
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.recovery.artifacts import (
    PluginArtifact,
    Reservations,
    data_directories,
    find_reservations,
    owned_rules,
    read_rules,
)
from cnm_bridge.driver.recovery.rebuild_endpoint import find_pinned_link
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel, Link
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_UNKNOWN: Final = NetworkId("0" * 64)
"""Stored as the Docker network of such an endpoint. The teardown does not use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is left of an endpoint whose record was lost."""

    attachment_id: AttachmentId
    is_mounted: bool
    """Whether its staging namespace or its pin exists."""
    link: Link | None
    """Its link in the host namespace, None if there is none."""
    artifacts: tuple[PluginArtifact, ...]
    """The objects that its plugins created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverFinder:
    """Finds and removes leftovers."""

    store: Store
    lists: NetworkLists
    kernel: Kernel
    teardowns: TeardownQueue
    locks: KeyedLocks[EndpointId]
    run_dir: Path
    boot_id: str

    async def find(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> Mapping[AttachmentId, Leftovers]:
        """Return the leftovers; `KernelError` if links or staging namespaces cannot be listed.

        `networks` are the names of the CNI networks in use, and `configurations` their current lists. Reservations on
        other networks are ignored. They are also searched for where the lists in the records say.
        """
        # Records are read first and last, so that they include what is created or removed meanwhile.
        known = self._known()
        others = await self._find_others()
        links = _by_attachment(await self.kernel.host_links())
        directories = staging_directory(self.run_dir), pin_directory(self.run_dir)
        paths = [path for directory in directories for path in await self.kernel.namespaces_in(directory)]
        mounted = {AttachmentId(path.name) for path in paths if is_attachment_id(path.name)}
        rules = owned_rules(await read_rules())
        reservations = await self._find_reservations(networks, configurations)
        ours = (mounted | links.keys()) - known - self._known() - others - await self._find_others()
        artifacts: dict[str, list[PluginArtifact]] = {}
        for artifact in (*await asyncio.to_thread(tuple, rules), *reservations.owned):
            if artifact.container_id in ours:
                artifacts.setdefault(artifact.container_id, []).append(artifact)
        return {
            attachment_id: Leftovers(
                attachment_id=attachment_id,
                is_mounted=attachment_id in mounted,
                link=links.get(attachment_id),
                artifacts=tuple(artifacts.get(attachment_id, ())),
            )
            for attachment_id in ours
        }

    async def find_unwritten(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> tuple[Path, ...]:
        """Return the empty reservations; see `artifacts.remove_unwritten`. Arguments as above."""
        return (await self._find_reservations(networks, configurations)).unwritten

    def _known(self) -> set[AttachmentId]:
        reserved = (AttachmentId(record.id) for record in self.store.ipam.reservations())
        return {*(record.attachment.id for record in self.store.endpoints()), *reserved}

    async def _find_reservations(self, networks: Iterable[str], configurations: Iterable[JsonObject]) -> Reservations:
        records, addresses = self.store.endpoints(), self.store.ipam.reservations()
        pools = self.store.ipam.pools.all()
        sections = (*(pool.section for pool in pools), *(address.section for address in addresses))
        names = {*networks, *sections, *filter(None, (record.attachment.network for record in records))}
        reserved = (address.reservation.configuration for address in addresses if address.reservation is not None)
        stored = (*configurations, *(record.attachment.configuration for record in records), *reserved)

        def find() -> Reservations:
            found = [
                find_reservations(path, name) for path in sorted(data_directories(stored)) for name in sorted(names)
            ]
            return Reservations(
                owned=tuple(artifact for reservations in found for artifact in reservations.owned),
                unwritten=tuple(file for reservations in found for file in reservations.unwritten),
            )

        return await asyncio.to_thread(find)

    async def _find_others(self) -> frozenset[AttachmentId]:
        return attachments_of_others(await self.kernel.mounted_namespaces(), self.run_dir)

    async def remove(self, leftovers: Leftovers) -> None:
        """Remove the leftovers of an endpoint, unless its link may be in a sandbox.

        If the artifacts identify the CNI network, the endpoint gets a new record and is torn down: its plugins find
        what they made by its ID and addresses. Errors are logged; the next round finds the leftovers again.
        """
        attachment_id = leftovers.attachment_id
        endpoint_id = EndpointId(attachment_id)
        try:
            async with self.locks.hold(endpoint_id):
                if self.store.find_attachment(attachment_id) is not None or await self._is_in_use(attachment_id):
                    return
                if attachment_id in await self._find_others():
                    return
                log.warning(
                    "endpoint.leftovers",
                    endpoint_id=endpoint_id,
                    artifacts=[artifact.what for artifact in leftovers.artifacts],
                )
                configuration = await self._find_configuration(leftovers)
                if configuration is None:
                    await self._remove(leftovers)
                    return
                known = tuple(artifact.address for artifact in leftovers.artifacts if artifact.address is not None)
                link, addresses = await find_pinned_link(self.kernel, self.run_dir, endpoint_id)
                record = rebuilt_record(
                    endpoint_id,
                    network_id=_UNKNOWN,
                    phase=Phase.DELETING,
                    internal=False,
                    configuration=configuration,
                    addresses=addresses or known,
                    mac=None,
                    run_dir=self.run_dir,
                    boot_id=self.boot_id,
                    pinned_link=link,
                )
                await self.store.put_found_endpoint(record)
            self.teardowns.add(endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.leftovers_kept", endpoint_id=endpoint_id, error=str(exc))
        except Exception:  # a bug is logged, and must not keep the round from handling the other endpoints
            log.exception("endpoint.leftovers_kept", endpoint_id=endpoint_id)

    async def _is_in_use(self, attachment_id: AttachmentId) -> bool:
        """Return whether the link is in a sandbox, or may be in one that cannot be read now."""
        seen = await self.kernel.look_into_sandboxes()
        return bool(seen.unread) or alternative_name(attachment_id) in seen.links

    async def _find_configuration(self, leftovers: Leftovers) -> NetworkConfigurationList | None:
        for name in dict.fromkeys(artifact.network for artifact in leftovers.artifacts):
            try:
                return await self.lists.find_named(name)
            except (CniError, Refused) as exc:
                log.warning("endpoint.leftovers_unknown", attachment_id=leftovers.attachment_id, error=str(exc))
        return None

    async def _remove(self, leftovers: Leftovers) -> None:
        if leftovers.link is not None:
            await self.kernel.delete_host_link(leftovers.link, alternative_name(leftovers.attachment_id))
        if leftovers.is_mounted:
            attachment_id = leftovers.attachment_id
            await self.kernel.remove_staging(
                staging_path(self.run_dir, attachment_id), pin_path(self.run_dir, attachment_id)
            )


def _by_attachment(links: Iterable[Link]) -> Mapping[AttachmentId, Link]:
    found = ((attachment_of(altname), link) for link in links for altname in link.altnames)
    return {attachment_id: link for attachment_id, link in found if attachment_id is not None}
