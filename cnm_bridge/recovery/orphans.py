# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds what has no record: staging namespaces, links, reservations, rules, chains, and bandwidth limits.

A staging namespace, or a link with an alternative name of ours, is ours by its name; everything else with the same
container ID is torn down with it. A reservation or a rule contains only a container ID, and another runtime may have
created it on a CNI network of the same name. It is reported and left to the operator.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cnm_bridge.kernel import Kernel, Link
from cnm_bridge.model.naming import attachment_of, is_attachment_id, staging_directory
from cnm_bridge.recovery.artifacts import (
    IFB_KIND,
    EmptyChain,
    PluginArtifact,
    Reservations,
    find_reservations,
    find_rules,
    hashed_names,
    is_ifb_name,
    noted_names,
)
from spec import JsonObject, find_object, find_str, get_objects
from state import AttachmentId, EndpointRecord, Store

__all__ = ["Leftovers", "Orphan", "OrphanAudit"]

log = structlog.get_logger()

_RESERVATIONS: Final = Path("/var/lib/cni/networks")
"""Where host-local keeps them, unless its configuration has `dataDir`."""

_LIBCNI_RESULTS: Final = (Path("/var/lib/cni/results"), Path("/var/lib/cni/cache/results"))
"""Where other runtimes note what they have attached: cnitool, containerd, Podman, nerdctl; and cri-dockerd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """An object without a record, which may belong to another program.

    Attributes:
        network: The CNI network's name, `?` if unknown.
        container_id: The container ID that it was created for, `?` if unknown.
        what: A description by which an operator finds it.
    """

    network: str
    container_id: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The remains of an endpoint of ours whose record was lost.

    Attributes:
        attachment_id: The ID that all of it has.
        staging: Whether its staging namespace exists.
        link: Its link in the host namespace, None if there is none.
        artifacts: The objects that plugins created for it.
    """

    attachment_id: AttachmentId
    staging: bool
    link: Link | None
    artifacts: tuple[PluginArtifact, ...]


class OrphanAudit:
    """Looks for objects without a record.

    Args:
        store: The records.
        kernel: Links and staging namespaces.
        run_dir: The parent directory of the staging namespaces.
    """

    def __init__(self, store: Store, kernel: Kernel, run_dir: Path) -> None:
        self._store = store
        self._kernel = kernel
        self._staging = staging_directory(run_dir)
        self._found: frozenset[Orphan] = frozenset()
        self._orphans: tuple[Orphan, ...] = ()
        self._unwritten: tuple[Path, ...] = ()

    @property
    def unwritten(self) -> tuple[Path, ...]:
        """The empty reservations that the last look found; see `artifacts.remove_unwritten`."""
        return self._unwritten

    @property
    def orphans(self) -> tuple[Orphan, ...]:
        """What the last two looks both found and that may belong to another program."""
        return self._orphans

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last look found something that the one before had not."""
        return not self._found <= set(self._orphans)

    async def look(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> Mapping[AttachmentId, Leftovers]:
        """Return what is provably ours, by attachment, and keep the rest in `orphans`; each new one is logged.

        Args:
            networks: The names of the CNI networks in use; others are not looked at.
            configurations: Their lists as they are now; reservations may be where an earlier edition had them, too.

        Raises:
            KernelError: Links or staging namespaces cannot be listed.
        """
        # Records and notes before and after all else: what is made or undone meanwhile is among them.
        records, noted = self._store.endpoints(), await asyncio.to_thread(_noted_elsewhere)
        links = await self._kernel.host_links()
        staging = await self._kernel.namespaces_in(self._staging)
        names = frozenset(networks).union(filter(None, (record.cni_network for record in records)))
        rules = await find_rules()
        directories = await asyncio.to_thread(_data_directories, configurations, records)
        reservations = await asyncio.to_thread(_find_reservations, sorted({_RESERVATIONS, *directories}), sorted(names))
        self._unwritten = reservations.unwritten
        noted |= await asyncio.to_thread(_noted_elsewhere)
        sight = _Sight(
            names=names,
            records=(*records, *self._store.endpoints()),
            noted=noted,
            links=links,
            staging=staging,
            artifacts=(*rules.artifacts, *reservations.owned),
            empty_chains=rules.empty_chains,
        )
        leftovers, orphans = await asyncio.to_thread(_judge, sight)  # of ten thousand endpoints that takes a while
        await self._keep(orphans)
        return leftovers

    async def _keep(self, found: tuple[Orphan, ...]) -> None:
        before, self._orphans = set(self._orphans), tuple(orphan for orphan in found if orphan in self._found)
        self._found = frozenset(found)
        for orphan in self._orphans:
            if orphan not in before:
                log.warning("orphan.found", network=orphan.network, container_id=orphan.container_id, what=orphan.what)
                await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """The observations of one look.

    Attributes:
        names: The names of the CNI networks in use.
        records: The endpoints that had a record before or after the look; may have duplicates.
        noted: The names of other runtimes' cache files.
        links: The links of the host namespace.
        staging: The staging namespaces.
        artifacts: The plugins' objects that contain a container ID.
        empty_chains: The chains without rules.
    """

    names: frozenset[str]
    records: tuple[EndpointRecord, ...]
    noted: frozenset[str]
    links: tuple[Link, ...]
    staging: tuple[Path, ...]
    artifacts: tuple[PluginArtifact, ...]
    empty_chains: tuple[EmptyChain, ...]


def _judge(sight: _Sight) -> tuple[Mapping[AttachmentId, Leftovers], tuple[Orphan, ...]]:
    """Return the remains of our endpoints, and the objects that may belong to another program; pure."""
    known = {record.attachment_id: record.cni_network for record in sight.records}
    links = _by_attachment(sight.links)
    staging = {AttachmentId(path.name) for path in sight.staging if is_attachment_id(path.name)}
    ours = (staging | links.keys()) - known.keys()
    artifacts: dict[str, list[PluginArtifact]] = {}
    for artifact in sight.artifacts:
        artifacts.setdefault(artifact.container_id, []).append(artifact)
    leftovers = {
        attachment_id: Leftovers(
            attachment_id=attachment_id,
            staging=attachment_id in staging,
            link=links.get(attachment_id),
            artifacts=tuple(artifacts.get(attachment_id, ())),
        )
        for attachment_id in ours
    }
    files = sorted(sight.noted)
    strange = [
        Orphan(network=artifact.network, container_id=artifact.container_id, what=artifact.what)
        for container_id, found in artifacts.items()
        if container_id not in known and container_id not in ours
        for artifact in found
        if artifact.network in sight.names and not _is_noted(artifact, files)
    ]
    hashed = (
        *((name, f"link {name} (ifb)") for name in _limiting(sight.links)),
        *((chain.name, chain.what) for chain in sight.empty_chains),
    )
    if not hashed:
        return leftovers, tuple(strange)
    accounted = noted_names(files).union(
        *(hashed_names(name, attachment_id) for attachment_id, name in known.items()),
        *(hashed_names(name, attachment_id) for name in sight.names for attachment_id in ours),
    )
    unowned = (Orphan(network="?", container_id="?", what=what) for name, what in hashed if name not in accounted)
    return leftovers, (*strange, *unowned)


def _data_directories(configurations: Iterable[JsonObject], records: Iterable[EndpointRecord]) -> frozenset[Path]:
    """Return the directories in which lists have reservations; thousands of records share a few lists."""
    shared = {id(configuration): configuration for configuration in (record.configuration for record in records)}
    documents = (*configurations, *shared.values())
    ipams = (find_object(plugin, "ipam") or {} for document in documents for plugin in get_objects(document, "plugins"))
    found = (find_str(ipam, "dataDir") for ipam in ipams)
    return frozenset(Path(directory) for directory in found if directory)


def _find_reservations(directories: Iterable[Path], networks: Collection[str]) -> Reservations:
    found = [find_reservations(directory, network) for directory in directories for network in networks]
    return Reservations(
        owned=tuple(artifact for reservations in found for artifact in reservations.owned),
        unwritten=tuple(file for reservations in found for file in reservations.unwritten),
    )


def _by_attachment(links: Iterable[Link]) -> Mapping[AttachmentId, Link]:
    found = ((attachment_of(altname), link) for link in links for altname in link.altnames)
    return {attachment_id: link for attachment_id, link in found if attachment_id is not None}


def _limiting(links: Iterable[Link]) -> frozenset[str]:
    """Return the names of the links that `bandwidth` has made."""
    return frozenset(link.state.name for link in links if link.state.kind == IFB_KIND and is_ifb_name(link.state.name))


def _noted_elsewhere() -> frozenset[str]:
    """Return the names of other runtimes' cache files."""
    found: set[str] = set()
    for directory in _LIBCNI_RESULTS:
        with suppress(OSError):  # the directory may not exist
            found.update(file.name for file in directory.iterdir())
    return frozenset(found)


def _is_noted(artifact: PluginArtifact, files: Sequence[str]) -> bool:
    """Return whether another runtime has cached the attachment (libcni `libcni/api.go`, getCacheFilePath)."""
    prefix = f"{artifact.network}-{artifact.container_id}-"
    place = bisect_left(files, prefix)
    return place < len(files) and files[place].startswith(prefix)
