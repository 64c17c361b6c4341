# SPDX-License-Identifier: Apache-2.0
"""Negotiates the CNI version of a list: the newest that it offers and that this runtime and all its plugins support.

The specification leaves the choice to the runtime (CNI SPEC §1 "Version considerations"). libcni takes the newest that
the list offers, which fails with older plugins. Plugins are asked only if the list offers several versions. A plugin
without a usable answer does not restrict the choice: a list that libcni runs must run here too.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cni_invoker.documents.lists import NetworkConfigurationList, PluginConfiguration
from cni_invoker.documents.request import Requests
from cni_invoker.documents.versions import (
    ONLY_THE_FIRST,
    SUPPORTED_VERSIONS,
    Verb,
    VersionInfo,
    is_at_least,
    parse_version_info,
)
from cni_invoker.errors import BadResult, CniError, PluginFailed, PluginTimeout, VerbUnsupported, VersionUnsupported
from cni_invoker.execution.executor import Executor
from cni_invoker.waiting import Slots

_KNOWS_NO_VERSION: Final = "unknown CNI_COMMAND: VERSION"
"""The complete message of a plugin of version 0.1.0, which did not have that verb."""

_Identity = tuple[int, ...]
_IN_PROCESS: Final[_Identity] = ()


def choose_version(network: NetworkConfigurationList, plugins: Mapping[str, VersionInfo]) -> str:
    """Return the newest version that a list offers and all support, or raise `VersionUnsupported`; pure."""
    for version in network.cni_versions:
        if version in SUPPORTED_VERSIONS and all(version in plugin.supported for plugin in plugins.values()):
            return version
    text = f"no CNI version fits network {network.name}: its configuration offers {', '.join(network.cni_versions)}"
    for plugin, info in plugins.items():
        text += f"; plugin {plugin} supports {', '.join(info.supported)}"
    raise VersionUnsupported(f"{text}; this runtime supports {', '.join(SUPPORTED_VERSIONS)}")


def require_check(version: str) -> None:
    """Raise `VerbUnsupported` if a list of `version` has no CHECK."""
    if not is_at_least(version, Verb.CHECK.since):
        raise VerbUnsupported(
            f'configuration version "{version}" does not support the CHECK command; '
            f"versions from {Verb.CHECK.since} on do"
        )


def has_gc(network: NetworkConfigurationList) -> bool:
    """Return whether a list allows GC at all; whether a plugin supports it depends on its versions."""
    return not network.disable_gc and is_at_least(network.cni_version, Verb.GC.since)


class Negotiation:
    """Asks plugins for their versions, once per executable and again when its file has changed.

    Concurrent callers share one execution and its outcome.
    """

    def __init__(self, executor: Executor, requests: Requests) -> None:
        self._executor = executor
        self._requests = requests
        self._known: dict[Path | str, tuple[_Identity, VersionInfo]] = {}
        self._asking: dict[tuple[Path | str, _Identity | None], _Question] = {}

    async def version(self, plugin_type: str) -> VersionInfo:
        """See `Runtime.version`; a failure reaches all waiting callers and is not cached."""
        found = self._executor.find(plugin_type)
        path = found or plugin_type
        identity = _IN_PROCESS if found is None else _identify(found)
        known = self._known.get(path)
        if known is not None and known[0] == identity:
            return known[1]
        question = self._asking.setdefault((path, identity), _Question())
        async with question.turn.held():
            if question.answer is None:  # not asked yet, or the caller that asked was cancelled
                question.answer = await self._ask(plugin_type)
                if identity is not None and not isinstance(question.answer, CniError):
                    self._known[path] = identity, question.answer
                self._asking.pop((path, identity), None)
        if isinstance(question.answer, CniError):
            raise question.answer
        return question.answer

    async def negotiate(self, network: NetworkConfigurationList) -> NetworkConfigurationList:
        """See `Runtime.negotiate`."""
        for plugin in network.plugins:
            self._executor.find(plugin.type)
        answers: dict[str, VersionInfo] = {}
        if len(network.cni_versions) > 1:
            for plugin in network.plugins:
                answers |= await self.answers(plugin)
        return network.with_version(choose_version(network, answers))

    async def answers(self, plugin: PluginConfiguration) -> dict[str, VersionInfo]:
        """Return the answers of a plugin and of its IPAM plugin to VERSION, by type.

        Plugins without a usable answer are left out; a plugin that is missing or cannot be executed is an error. But
        `ipam.type` need not name an executable (`azure-vnet` with `azure-cns` does not).
        """
        answers = {}
        with suppress(PluginFailed, PluginTimeout, BadResult):
            answers[plugin.type] = await self.version(plugin.type)
        if plugin.ipam_type is not None:
            with suppress(CniError):
                answers[plugin.ipam_type] = await self.version(plugin.ipam_type)
        return answers

    async def _ask(self, plugin_type: str) -> VersionInfo | CniError:
        """Ask a plugin; an error is returned, because it is an answer for all callers that wait."""
        try:
            output = await self._executor.run(self._requests.version(plugin_type))
            return output.parse(parse_version_info)
        except CniError as exc:
            return ONLY_THE_FIRST if isinstance(exc, PluginFailed) and exc.msg == _KNOWS_NO_VERSION else exc


@dataclass(slots=True)
class _Question:
    """A question to a plugin that concurrent callers share."""

    turn: Slots = field(default_factory=lambda: Slots(1))
    answer: VersionInfo | CniError | None = None


def _identify(path: Path) -> _Identity | None:
    """Return a value that changes with the content of a file; None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
