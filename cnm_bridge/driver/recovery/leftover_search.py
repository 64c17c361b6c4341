# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds what is left of endpoints without a record: staging namespaces, links, and what plugins made for the same ID.

A staging namespace or a link is ours if its name says so, unless another instance of cni-bridge has a namespace for
the same container ID in its own run directory. Reservations and rules are ours if they have the ID of such a leftover,
or that of an endpoint that this run of the daemon has torn down: the state was replaced by an older one, which does not
have, for example, the ports that the endpoint published. Those of any other container may be another runtime's.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.model.naming import (
    attachment_of,
    attachments_of_others,
    is_attachment_id,
    pin_directory,
    staging_directory,
)
from cnm_bridge.driver.recovery.artifacts import (
    PluginArtifact,
    Reservations,
    data_directories,
    find_reservations,
    owned_rules,
    read_rules,
)
from cnm_bridge.system.kernel import Kernel, Link

_REMEMBERED: Final = 2000
"""How many of the endpoints that have been torn down are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is left of an endpoint whose record was lost.

    Attributes:
        attachment_id: The ID that all its objects share.
        is_mounted: Whether its staging namespace or its pin exists.
        link: Its link in the host namespace, None if there is none.
        artifacts: The objects that its plugins created.
    """

    attachment_id: AttachmentId
    is_mounted: bool
    link: Link | None
    artifacts: tuple[PluginArtifact, ...]


class LeftoverSearch:
    """Finds leftovers.

    Args:
        run_dir: The parent directory of the staging namespaces.
    """

    def __init__(self, store: Store, kernel: Kernel, run_dir: Path) -> None:
        self._store = store
        self._kernel = kernel
        self._run_dir = run_dir
        self._directories = staging_directory(run_dir), pin_directory(run_dir)
        self._torn_down: dict[str, bool] = {}
        """Endpoint → whether what is left of it is ours. That is so once: another attempt would not help."""
        store.when_removed(self._note_torn_down)
        store.when_phase_changed(self._note_phase)

    async def find(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> Mapping[AttachmentId, Leftovers]:
        """Return the leftovers.

        Args:
            networks: The names of the CNI networks in use. Reservations on other networks are ignored.
            configurations: Their current lists. Reservations are also searched for where the lists in the records say.

        Raises:
            KernelError: Links or staging namespaces cannot be listed.
        """
        # Records are read first and last, so that they include what is created or removed meanwhile.
        known = self._known()
        torn_down = {AttachmentId(endpoint_id) for endpoint_id, is_ours in self._torn_down.items() if is_ours}
        others = await self._find_others()
        links = _by_attachment(await self._kernel.host_links())
        paths = [path for one in self._directories for path in await self._kernel.namespaces_in(one)]
        mounted = {AttachmentId(path.name) for path in paths if is_attachment_id(path.name)}
        rules = owned_rules(await read_rules())
        reservations = await self._find_reservations(networks, configurations)
        ours = (mounted | links.keys() | torn_down) - known - self._known() - others - await self._find_others()
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
            for attachment_id in ours & (mounted | links.keys() | artifacts.keys())
        }

    async def find_unwritten(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> tuple[Path, ...]:
        """Return the empty reservations; see `artifacts.remove_unwritten`. Arguments as above."""
        return (await self._find_reservations(networks, configurations)).unwritten

    def disown(self, attachment_id: AttachmentId) -> None:
        """Take what is left of an endpoint for no leftover from now on, because the daemon cannot remove it."""
        self._torn_down[attachment_id] = False

    def _known(self) -> set[AttachmentId]:
        reserved = (AttachmentId(record.id) for record in self._store.ipam.reservations())
        return {*(record.attachment.id for record in self._store.endpoints()), *reserved}

    async def _find_reservations(self, networks: Iterable[str], configurations: Iterable[JsonObject]) -> Reservations:
        records, addresses = self._store.endpoints(), self._store.ipam.reservations()
        sections = (*(pool.section for pool in self._store.ipam.pools()), *(one.section for one in addresses))
        names = {*networks, *sections, *filter(None, (record.attachment.network for record in records))}
        reserved = (one.reservation.configuration for one in addresses if one.reservation is not None)
        stored = (*configurations, *(record.attachment.configuration for record in records), *reserved)

        def find() -> Reservations:
            found = [
                find_reservations(path, name) for path in sorted(data_directories(stored)) for name in sorted(names)
            ]
            return Reservations(
                owned=tuple(artifact for one in found for artifact in one.owned),
                unwritten=tuple(file for one in found for file in one.unwritten),
            )

        return await asyncio.to_thread(find)

    def _note_torn_down(self, endpoint_id: EndpointId) -> None:
        self._torn_down[endpoint_id] = endpoint_id not in self._torn_down
        if len(self._torn_down) > _REMEMBERED:
            del self._torn_down[next(iter(self._torn_down))]

    def _note_phase(self, record: EndpointRecord, is_removed: bool) -> None:
        if record.phase is Phase.PENDING and not is_removed:  # another attempt, whose teardown is another one
            self._torn_down.pop(record.id, None)

    async def _find_others(self) -> frozenset[AttachmentId]:
        return attachments_of_others(await self._kernel.mounted_namespaces(), self._run_dir)


def _by_attachment(links: Iterable[Link]) -> Mapping[AttachmentId, Link]:
    found = ((attachment_of(altname), link) for link in links for altname in link.altnames)
    return {attachment_id: link for attachment_id, link in found if attachment_id is not None}
