# SPDX-License-Identifier: Apache-2.0
"""A container with all of its networks: what go-cni and ocicni are above libcni.

The attachments are added together and, if one fails, undone together. Deleting them needs the ID and the cache only.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cni_invoker.caching.cache import CachedAttachment
from cni_invoker.caching.runtime import CachedRuntime
from cni_invoker.documents.attachment import Attachment
from cni_invoker.documents.capabilities import Capabilities
from cni_invoker.documents.checks import StrPath, as_path, check_container_id, require_type
from cni_invoker.documents.lists import NetworkConfigurationList
from cni_invoker.documents.results import Result
from cni_invoker.errors import CacheError, CniError, ErrorCode, InvalidParameter, SandboxFailed

LOOPBACK: Final = NetworkConfigurationList.from_document(
    {
        "cniVersion": "0.3.1",
        "cniVersions": ["0.3.1", "0.4.0", "1.0.0"],
        "name": "cni-loopback",
        "plugins": [{"type": "loopback"}],
    }
)
"""The list that sets the interface `lo` of a container up; its name is that of go-cni."""

_LOOPBACK_IFNAME: Final = "lo"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxNetwork:
    """A network that a container is to be attached to.

    Attributes:
        network: The list.
        ifname: Name of the interface inside; empty: `eth` and the network's place among all, e.g. `eth1`.
        capabilities: The capability arguments.
        args: CNI_ARGS.
    """

    network: NetworkConfigurationList
    ifname: str = ""
    capabilities: Capabilities = field(default_factory=Capabilities)
    args: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require_type(self.network, NetworkConfigurationList, "network")
        require_type(self.capabilities, Capabilities, "capabilities")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedNetwork:
    """A network that a container has been attached to.

    Attributes:
        network: Its name.
        ifname: Name of the interface inside.
        result: The result of ADD.
        ignored: Capability arguments that no plugin of the list declares, sorted; no plugin has received them.
    """

    network: str
    ifname: str
    result: Result
    ignored: tuple[str, ...]


class Sandbox:
    """All attachments of one container.

    Args:
        runtime: Adds and deletes, and stores the attachments. Many sandboxes share one.
        container_id: The container's ID.

    Raises:
        InvalidParameter: CNI does not allow the ID.
    """

    def __init__(self, runtime: CachedRuntime, container_id: str) -> None:
        self._runtime = require_runtime(runtime)
        check_container_id(require_type(container_id, str, "container_id"))
        self.container_id = container_id

    async def add(
        self, netns: StrPath, networks: Iterable[SandboxNetwork | NetworkConfigurationList], *, loopback: bool = True
    ) -> tuple[AttachedNetwork, ...]:
        """Attach the container to all networks, in order; the first one is its default network.

        If one fails, those before it are deleted, and its error is raised; what could not be deleted is in its notes,
        and stays stored for `delete`. A cancellation undoes nothing.

        Args:
            netns: Path of the container's network namespace.
            networks: The networks; a list stands for itself, without arguments.
            loopback: Set `lo` up first, which needs the plugin `loopback`.

        Raises:
            InvalidParameter: Two interfaces have one name, there is no network, or a value is not allowed; nothing has
                been executed.
            CniError: As `CachedRuntime.add`.
        """
        path = str(as_path(netns, "netns"))
        wanted = _with_names(networks, loopback=loopback)
        planned = [
            Attachment(
                container_id=self.container_id,
                ifname=one.ifname,
                netns=path,
                args=one.args,
                capability_args=one.capabilities.document,
            )
            for one in wanted
        ]
        added: list[AttachedNetwork] = []
        for one, attachment in zip(wanted, planned, strict=True):
            try:
                result = await self._runtime.add(one.network, attachment)
            except CniError as exc:
                for done in reversed(range(len(added))):
                    await self._undo(wanted[done].network, planned[done], exc)
                raise
            added.append(
                AttachedNetwork(network=one.network.name, ifname=one.ifname, result=result, ignored=_ignored(one))
            )
        return tuple(one for one in added if one.ifname != _LOOPBACK_IFNAME)

    async def check(self) -> None:
        """Run CHECK for all attachments; a failure does not stop the others.

        Raises:
            SandboxFailed: There is no attachment, or some failed; the error has all errors.
        """
        errors: list[CniError] = []
        attachments = await self.attachments()
        for cached in attachments:
            try:
                await self._runtime.check_cached(cached)
            except CniError as exc:
                errors.append(exc)
        if errors or not attachments:
            raise SandboxFailed(self.container_id, errors)

    async def delete(self, *, force: bool = False) -> None:
        """Delete all attachments of the container, using only what is stored; may be repeated.

        All are tried, in reverse order of their interfaces' names. An attachment that failed stays stored.

        Args:
            force: Forget them even if plugins fail; what the failed plugins have created stays.

        Raises:
            SandboxFailed: Some failed, or a stored attachment that may be the container's cannot be read.
        """
        errors: list[CniError] = []
        for cached in reversed(await self.attachments()):
            try:
                await self._runtime.delete_cached(cached, force=force)
            except CniError as exc:
                errors.append(exc)
        try:
            await self._runtime.attachments(whole=True)
        except CacheError as exc:
            if not isinstance(exc.place, Path) or self.container_id in exc.place.name:
                errors.append(exc)
        if errors:
            raise SandboxFailed(self.container_id, errors)

    async def attachments(self) -> tuple[CachedAttachment, ...]:
        """Return the stored attachments of the container, by name of the interface, including `lo`."""
        found = await self._runtime.attachments(container_id=self.container_id)
        return tuple(sorted(found, key=lambda one: (one.attachment.ifname, one.network)))

    async def _undo(self, network: NetworkConfigurationList, attachment: Attachment, failed: CniError) -> None:
        try:
            await self._runtime.delete(network, attachment)
        except CniError as exc:
            failed.add_note(f"{attachment.ifname} on {network.name} could not be undone, its DEL is pending: {exc}")


async def list_sandboxes(runtime: CachedRuntime) -> tuple[str, ...]:
    """Return the IDs of all containers that have stored attachments, sorted."""
    return tuple(sorted({cached.attachment.container_id for cached in await require_runtime(runtime).attachments()}))


async def collect_sandboxes(
    runtime: CachedRuntime, networks: Iterable[NetworkConfigurationList], valid: Collection[str]
) -> None:
    """Delete all attachments of containers that no longer exist, then run the GC of the plugins of all lists.

    Attachments to networks without a list here are deleted too, with the list of their ADD.

    Args:
        runtime: The runtime.
        networks: All lists.
        valid: IDs of all containers that exist. There is no default, because an empty one deletes everything.

    Raises:
        SandboxFailed: Some failed; everything else has been done.
        TypeError: `valid` is a string.
    """
    require_runtime(runtime)
    if isinstance(valid, str):
        raise TypeError(f"valid must be a collection of container IDs, not the str {valid!r}")
    errors: list[CniError] = []
    lists = {network.name: network for network in networks}
    for container_id in await list_sandboxes(runtime):
        if container_id not in valid:
            try:
                await Sandbox(runtime, container_id).delete()
            except SandboxFailed as exc:
                errors.extend(exc.errors)
    for network in lists.values():
        kept = [cached.attachment.key for cached in await runtime.attachments(network.name)]
        try:
            await runtime.gc(network, kept)
        except CniError as exc:
            errors.append(exc)
    if errors:
        raise SandboxFailed(None, errors)


def _with_names(
    networks: Iterable[SandboxNetwork | NetworkConfigurationList], *, loopback: bool
) -> Sequence[SandboxNetwork]:
    """Return all networks with the names of their interfaces, `lo` first."""
    given = [
        one if isinstance(one, SandboxNetwork) else SandboxNetwork(network=one)
        for one in (networks if not isinstance(networks, NetworkConfigurationList) else (networks,))
    ]
    if not given:
        raise _invalid("networks", "", "there is none")
    named = [replace(one, ifname=one.ifname or f"eth{index}") for index, one in enumerate(given)]
    if loopback:
        named.insert(0, SandboxNetwork(network=LOOPBACK, ifname=_LOOPBACK_IFNAME))
    names = [one.ifname for one in named]
    for name in names:
        if names.count(name) > 1:
            raise _invalid("interface name", name, "two interfaces have it")
    return named


def _invalid(what: str, value: str, rule: str) -> InvalidParameter:
    return InvalidParameter(what, value, rule, code=ErrorCode.INVALID_ENVIRONMENT)


def _ignored(wanted: SandboxNetwork) -> tuple[str, ...]:
    declared = {capability for plugin in wanted.network.plugins for capability in plugin.capabilities}
    return tuple(sorted(wanted.capabilities.document.keys() - declared))


def require_runtime(runtime: CachedRuntime) -> CachedRuntime:
    """Raise `TypeError` if this is not the asynchronous cached runtime."""
    return require_type(runtime, CachedRuntime, "runtime", "cni_invoker.sync has one inside: `asynchronous`")
