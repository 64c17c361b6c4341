# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds objects without a record: staging namespaces, links, reservations, rules, chains, and bandwidth limits.

A staging namespace or a link is ours if its name says so, unless another instance of cni-bridge has a namespace for
the same container ID in its own run directory. It is a leftover, and so is everything else with that ID: the daemon
removes them. A reservation or a rule contains only a container ID. Another runtime may have created it on a CNI network
of the same name, so it is an orphan: the daemon reports it and leaves it to the operator. If the ID is that of an
endpoint that this run of the daemon has torn down, it is a leftover, too: the state was replaced by an older one, which
does not have, for example, the ports that the endpoint published.
"""

import asyncio
import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject
from cni_bridge_state import AddressRecord, AttachmentId, EndpointId, EndpointRecord, HoldRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.model.naming import (
    attachment_of,
    attachments_of_others,
    is_attachment_id,
    pin_directory,
    staging_directory,
)
from cnm_bridge.driver.recovery.artifacts import (
    IFB_KIND,
    EmptyChain,
    PluginArtifact,
    Reservations,
    data_directories,
    find_reservations,
    find_rules,
    hashed_names,
    is_ifb_name,
    names_for_cache_files,
)
from cnm_bridge.system.kernel import Kernel, Link

log = structlog.get_logger()

_UNKNOWN: Final = "?"

CACHE_DIRECTORIES: Final = (Path("/var/lib/cni"), Path("/var/lib/cni/cache"))

"""Where other CNI runtimes on this host cache their attachments, in libcni's layout: cnitool, containerd, Podman and
nerdctl use libcni's default; cri-dockerd has the other one."""

_REMEMBERED: Final = 2000
"""How many of the endpoints that have been torn down are remembered."""

_LIBCNI_RESULTS: Final = tuple(directory / "results" for directory in CACHE_DIRECTORIES)


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


class OrphanAudit:
    """Scans the host for objects without a record.

    Args:
        run_dir: The parent directory of the staging namespaces.
    """

    def __init__(self, store: Store, kernel: Kernel, run_dir: Path) -> None:
        self._store = store
        self._kernel = kernel
        self._run_dir = run_dir
        self._directories = staging_directory(run_dir), pin_directory(run_dir)
        self._found: frozenset[PluginArtifact] = frozenset()
        self._orphans: tuple[PluginArtifact, ...] = ()
        self._unwritten: tuple[Path, ...] = ()
        self._torn_down: dict[str, bool] = {}
        """Endpoint → whether what is left of it is ours. That is so once: another attempt would not help."""
        store.when_removed(self._note_torn_down)
        store.when_phase_changed(self._note_phase)

    @property
    def unwritten(self) -> tuple[Path, ...]:
        """The empty reservations that the last scan found; see `artifacts.remove_unwritten`."""
        return self._unwritten

    @property
    def orphans(self) -> tuple[PluginArtifact, ...]:
        """The objects that the last two scans both found, and that may belong to another program."""
        return self._orphans

    @property
    def has_unconfirmed(self) -> bool:
        """Whether the last scan found an orphan that the previous one did not find."""
        return not self._found <= set(self._orphans)

    def forget(self, orphan: PluginArtifact) -> None:
        """Drop an orphan that has been removed."""
        self._orphans = tuple(one for one in self._orphans if one != orphan)
        self._found -= {orphan}

    def find_owner(self, orphan: PluginArtifact) -> str | None:
        """Return who owns an object now, in words; None if it is still unowned. Blocks while files are listed."""
        if self._store.find_attachment(AttachmentId(orphan.container_id)) is not None:
            return "an endpoint of cni-bridge"
        reserved = self._store.ipam.find_reservation(orphan.container_id)
        if isinstance(reserved, HoldRecord):
            return f"key {reserved.key} (`cni-bridge ls --sticky`)"
        if reserved is not None:
            return "a container whose address cni-bridge has given Docker"
        files = sorted(list_cache_files())
        if any(file.startswith(f"{orphan.network}-{orphan.container_id}-") for file in files):
            return "a container of another runtime, which has it in libcni's cache"
        if orphan.container_id != _UNKNOWN:
            return None
        records = self._store.endpoints()
        names = names_for_cache_files(files).union(*(hashed_names(one.attachment.network, one.id) for one in records))
        return "another container" if any(name in names for name in orphan.what.split()) else None

    async def scan(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> Mapping[AttachmentId, Leftovers]:
        """Return the leftovers of our own endpoints, and update `orphans`. Each new orphan is logged.

        Args:
            networks: The names of the CNI networks in use. Reservations and rules of other networks are ignored.
            configurations: Their current lists. Reservations are also searched for where the lists in the records say.

        Raises:
            KernelError: Links or staging namespaces cannot be listed.
        """
        leftovers, orphans, self._unwritten = await self._look(networks, configurations)
        await self._update(orphans)
        return leftovers

    async def find_leftovers(
        self, networks: Iterable[str], configurations: Iterable[JsonObject] = ()
    ) -> Mapping[AttachmentId, Leftovers]:
        """Return the same as `scan`, and do not change `orphans`.

        Raises:
            KernelError: As `scan`.
        """
        leftovers, _, _ = await self._look(networks, configurations)
        return leftovers

    def _note_torn_down(self, endpoint_id: EndpointId) -> None:
        self._torn_down[endpoint_id] = endpoint_id not in self._torn_down
        if len(self._torn_down) > _REMEMBERED:
            del self._torn_down[next(iter(self._torn_down))]

    def _note_phase(self, record: EndpointRecord, is_removed: bool) -> None:
        if record.phase is Phase.PENDING and not is_removed:  # another attempt, whose teardown is another one
            self._torn_down.pop(record.id, None)

    def disown(self, attachment_id: AttachmentId) -> None:
        """Take what is left of an endpoint for an orphan from now on, because the daemon cannot remove it."""
        self._torn_down[attachment_id] = False

    async def _look(
        self, networks: Iterable[str], configurations: Iterable[JsonObject]
    ) -> tuple[Mapping[AttachmentId, Leftovers], tuple[PluginArtifact, ...], tuple[Path, ...]]:
        """Return the leftovers, the orphans and the unwritten reservations."""
        # Records and cache files are read first and last, so that they include what is created or removed meanwhile.
        records, cache_files = self._store.endpoints(), await asyncio.to_thread(list_cache_files)
        torn_down = frozenset(endpoint_id for endpoint_id, is_ours in self._torn_down.items() if is_ours)
        addresses = self._store.ipam.reservations()
        others = await self._find_others()
        links = await self._kernel.host_links()
        mounts = [await self._kernel.namespaces_in(directory) for directory in self._directories]
        sections = (*(pool.section for pool in self._store.ipam.pools()), *(one.section for one in addresses))
        names = frozenset(networks).union(filter(None, (record.attachment.network for record in records)), sections)
        rules = await find_rules()
        reserved = (one.reservation.configuration for one in addresses if one.reservation is not None)
        stored = (*(record.attachment.configuration for record in records), *reserved)
        directories = await asyncio.to_thread(data_directories, itertools.chain(configurations, stored))
        reservations = await asyncio.to_thread(_find_reservations, sorted(directories), sorted(names))
        cache_files |= await asyncio.to_thread(list_cache_files)
        others |= await self._find_others()
        scan = _Scan(
            networks=names,
            torn_down=torn_down,
            records=(*records, *self._store.endpoints()),
            addresses=(*addresses, *self._store.ipam.reservations()),
            cache_files=cache_files,
            others=others,
            links=links,
            mounts=tuple(itertools.chain.from_iterable(mounts)),
            artifacts=(*rules.artifacts, *reservations.owned),
            empty_chains=rules.empty_chains,
        )
        leftovers, orphans = await asyncio.to_thread(_classify, scan)  # takes a while for thousands of endpoints
        return leftovers, orphans, reservations.unwritten

    async def _find_others(self) -> frozenset[AttachmentId]:
        return attachments_of_others(await self._kernel.mounted_namespaces(), self._run_dir)

    async def _update(self, found: tuple[PluginArtifact, ...]) -> None:
        before, self._orphans = set(self._orphans), tuple(orphan for orphan in found if orphan in self._found)
        self._found = frozenset(found)
        for orphan in self._orphans:
            if orphan not in before:
                log.warning("orphan.found", network=orphan.network, container_id=orphan.container_id, what=orphan.what)
                await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """The objects found by one scan.

    Attributes:
        networks: The names of the CNI networks in use.
        torn_down: The endpoints torn down before the scan whose remains are ours.
        records: The endpoints that had a record before or after the scan; may contain duplicates.
        addresses: Likewise the addresses that Docker has requested.
        cache_files: The names of other runtimes' cache files.
        others: The attachments of other instances before or after the scan.
        links: The links of the host namespace.
        mounts: The staging namespaces and the pins.
        artifacts: The plugins' objects that contain a container ID.
        empty_chains: The chains without rules.
    """

    networks: frozenset[str]
    torn_down: frozenset[str]
    records: tuple[EndpointRecord, ...]
    addresses: tuple[AddressRecord | HoldRecord, ...]
    cache_files: frozenset[str]
    others: frozenset[AttachmentId]
    links: tuple[Link, ...]
    mounts: tuple[Path, ...]
    artifacts: tuple[PluginArtifact, ...]
    empty_chains: tuple[EmptyChain, ...]


def _classify(scan: _Scan) -> tuple[Mapping[AttachmentId, Leftovers], tuple[PluginArtifact, ...]]:
    """Return the leftovers of our endpoints, and the orphans; pure."""
    known = {record.attachment.id: record.attachment.network for record in scan.records}
    known |= {AttachmentId(record.id): record.section for record in scan.addresses}
    links = _by_attachment(scan.links)
    mounted = {AttachmentId(path.name) for path in scan.mounts if is_attachment_id(path.name)}
    artifacts: dict[str, list[PluginArtifact]] = {}
    for artifact in scan.artifacts:
        artifacts.setdefault(artifact.container_id, []).append(artifact)
    remains = {AttachmentId(container_id) for container_id in scan.torn_down & artifacts.keys()}
    ours = (mounted | links.keys() | remains) - known.keys() - scan.others
    leftovers = {
        attachment_id: Leftovers(
            attachment_id=attachment_id,
            is_mounted=attachment_id in mounted,
            link=links.get(attachment_id),
            artifacts=tuple(artifacts.get(attachment_id, ())),
        )
        for attachment_id in ours
    }
    files = sorted(scan.cache_files)
    with_id = [
        artifact
        for container_id, found in artifacts.items()
        if container_id not in known and container_id not in ours and container_id not in scan.others
        for artifact in found
        if artifact.network in scan.networks and not is_cached(artifact, files)
    ]
    hashed = (
        *((name, f"link {name} (ifb)") for name in _bandwidth_links(scan.links)),
        *((chain.name, chain.what) for chain in scan.empty_chains),
    )
    if not hashed:
        return leftovers, tuple(with_id)
    owned = names_for_cache_files(files).union(
        *(hashed_names(name, attachment_id) for attachment_id, name in known.items()),
        *(hashed_names(name, attachment_id) for name in scan.networks for attachment_id in ours | scan.others),
    )
    unowned = (
        PluginArtifact(network=_UNKNOWN, container_id=_UNKNOWN, what=what) for name, what in hashed if name not in owned
    )
    return leftovers, (*with_id, *unowned)


def _find_reservations(directories: Iterable[Path], networks: Collection[str]) -> Reservations:
    found = [find_reservations(directory, network) for directory in directories for network in networks]
    return Reservations(
        owned=tuple(artifact for reservations in found for artifact in reservations.owned),
        unwritten=tuple(file for reservations in found for file in reservations.unwritten),
    )


def _by_attachment(links: Iterable[Link]) -> Mapping[AttachmentId, Link]:
    found = ((attachment_of(altname), link) for link in links for altname in link.altnames)
    return {attachment_id: link for attachment_id, link in found if attachment_id is not None}


def _bandwidth_links(links: Iterable[Link]) -> frozenset[str]:
    """Return the names of the links that `bandwidth` created."""
    return frozenset(link.state.name for link in links if link.state.kind == IFB_KIND and is_ifb_name(link.state.name))


def list_cache_files() -> frozenset[str]:
    """Return the names of other runtimes' cache files."""
    found: set[str] = set()
    for directory in _LIBCNI_RESULTS:
        with suppress(OSError):  # the directory may not exist
            found.update(file.name for file in directory.iterdir())
    return frozenset(found)


def is_cached(artifact: PluginArtifact, files: Sequence[str]) -> bool:
    """Return whether a runtime has cached the attachment (libcni `libcni/api.go`, getCacheFilePath).

    Args:
        artifact: An object that was created for the attachment.
        files: The names of cache files, sorted.
    """
    prefix = f"{artifact.network}-{artifact.container_id}-"
    index = bisect_left(files, prefix)
    return index < len(files) and files[index].startswith(prefix)
