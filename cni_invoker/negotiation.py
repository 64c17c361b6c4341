# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which version a list is spoken in: the newest that it offers and that all of its plugins speak, and this runtime.

The specification leaves that to the runtime (CNI SPEC §1 "Version considerations"); libcni takes the newest that the
list offers, which then fails with plugins that are older. A list that libcni runs must run here too, so plugins are
asked only where the list offers a choice, and one that gives no usable answer does not restrict it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from cni_invoker.config.lists import NetworkConfigurationList, PluginConfiguration
from cni_invoker.errors import CniError, NoCommonVersion
from cni_invoker.execution.executions import Executions
from cni_invoker.execution.request import Requests
from cni_invoker.plugin_errors import BadResult, PluginFailed, PluginTimeout
from cni_invoker.versions import ONLY_THE_FIRST, SUPPORTED_VERSIONS, VersionInfo, parse_version_info

__all__ = ["Negotiation", "choose_version"]

_KNOWS_NO_VERSION: Final = "unknown CNI_COMMAND: VERSION"
"""The whole message of a plugin of 0.1.0, which did not have that verb."""

_Identity = tuple[int, int, int, int]


def choose_version(network: NetworkConfigurationList, plugins: Mapping[str, VersionInfo]) -> str:
    """Return the newest version that `network` offers and that this runtime and all plugins speak; pure.

    Args:
        network: The list.
        plugins: What its plugins answered to VERSION, by type; one that is left out restricts nothing.

    Raises:
        NoCommonVersion: There is none.
    """
    for version in network.cni_versions:
        if version in SUPPORTED_VERSIONS and all(version in plugin.supported for plugin in plugins.values()):
            return version
    supported = {plugin: info.supported for plugin, info in plugins.items()}
    raise NoCommonVersion(network.name, network.cni_versions, supported, SUPPORTED_VERSIONS)


class Negotiation:
    """Asks plugins for their versions: each executable once, and again when its file has changed.

    Who wants to know while one is being asked waits for that answer, good or bad.

    Args:
        executions: Executes them.
        make_requests: Gives what makes requests.
    """

    def __init__(self, executions: Executions, make_requests: Callable[[], Requests]) -> None:
        self._executions = executions
        self._make_requests = make_requests
        self._known: dict[Path, tuple[_Identity, VersionInfo]] = {}
        self._asking: dict[tuple[Path, _Identity | None], asyncio.Future[VersionInfo]] = {}

    async def version(self, plugin_type: str) -> VersionInfo:
        """Return the versions that a plugin speaks; a failure is told to all who wait for it, and not kept.

        Raises:
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout, BadResult: It does not tell.
        """
        path = self._executions.find(plugin_type)
        identity = _identify(path)
        known = self._known.get(path)
        if known is not None and known[0] == identity:
            return known[1]
        while (asking := self._asking.get((path, identity))) is not None:
            await asyncio.wait([asking])
            if not asking.cancelled():
                return asking.result()
        info = await self._ask_for_all(plugin_type, (path, identity))
        if identity is not None:
            self._known[path] = identity, info
        return info

    async def negotiate(self, network: NetworkConfigurationList) -> NetworkConfigurationList:
        """Return `network` in the newest version that fits.

        A list of one version is spoken in that, as libcni does, whatever its plugins answer to VERSION: they are not
        asked. Where there is a choice, plugins that do not answer are taken to speak all of it.

        Raises:
            NoCommonVersion: There is none.
            PluginNotFound: A plugin of the list is missing; one for IPAM may be.
            PluginNotStarted: A plugin of the list does not run.
        """
        for plugin in network.plugins:
            self._executions.find(plugin.type)
        answers: dict[str, VersionInfo] = {}
        if len(network.cni_versions) > 1:
            for plugin in network.plugins:
                answers |= await self.answers(plugin)
        return network.with_version(choose_version(network, answers))

    async def answers(self, plugin: PluginConfiguration) -> dict[str, VersionInfo]:
        """Return what a plugin and the one that it names for IPAM answer to VERSION, by type.

        What gives no usable answer is left out. That goes for the name in `ipam.type` in particular: it is the plugin's
        own, which need not execute anything by that name (`azure-vnet` with `azure-cns` does not).

        Raises:
            PluginNotFound, PluginNotStarted: About the plugin itself.
        """
        answers = {}
        with suppress(PluginFailed, PluginTimeout, BadResult):
            answers[plugin.type] = await self.version(plugin.type)
        if plugin.ipam_type is not None:
            with suppress(CniError):
                answers[plugin.ipam_type] = await self.version(plugin.ipam_type)
        return answers

    async def _ask_for_all(self, plugin_type: str, asked: tuple[Path, _Identity | None]) -> VersionInfo:
        answer = self._asking[asked] = asyncio.get_running_loop().create_future()
        try:
            info = await self._ask(plugin_type)
        except CniError as exc:
            answer.set_exception(exc)
            answer.exception()  # nobody else need have waited for it
            raise
        else:
            answer.set_result(info)
            return info
        finally:
            answer.cancel()  # if nothing has been set: the next who waits asks
            del self._asking[asked]

    async def _ask(self, plugin_type: str) -> VersionInfo:
        try:
            output = await self._executions.run(self._make_requests().version(plugin_type))
        except PluginFailed as exc:
            if exc.msg == _KNOWS_NO_VERSION:
                return ONLY_THE_FIRST
            raise
        return output.parse(parse_version_info)


def _identify(path: Path) -> _Identity | None:
    """Return what changes with the content of a file; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
