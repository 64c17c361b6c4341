# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugins of a list, run one after the other for a verb; each is told what the specification says.

Nobody is kept apart here from others who work on the same network or container; that is the runtime's.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Final

from cni_invoker.attachment import Attachment, AttachmentKey
from cni_invoker.config.lists import NetworkConfigurationList, PluginConfiguration
from cni_invoker.deletion import RULES_BY_ADDRESS, Progress, is_done, progress_of_add, says_unknown_container
from cni_invoker.errors import CniError, GcFailed, VerbUnsupported
from cni_invoker.execution.executions import Executions
from cni_invoker.execution.request import Request, Requests
from cni_invoker.execution.shared_chains import SharedChains
from cni_invoker.negotiation import Negotiation, choose_version
from cni_invoker.plugin_errors import BadResult, PluginError, PluginFailed
from cni_invoker.results.result import Result, parse_result
from cni_invoker.verbs import Verb
from cni_invoker.versions import is_at_least

__all__ = ["Chain", "has_gc", "require_check"]

log = logging.getLogger(__name__)

_CHECK_SINCE: Final = "0.4.0"
_PREV_RESULT_FOR_DEL_SINCE: Final = "0.4.0"
_GC_SINCE: Final = "1.1.0"
_STATUS_SINCE: Final = "1.1.0"


def require_check(version: str) -> None:
    """Raise `VerbUnsupported` if a list of `version` has no CHECK."""
    if not is_at_least(version, _CHECK_SINCE):
        raise VerbUnsupported(Verb.CHECK, version, _CHECK_SINCE)


def has_gc(network: NetworkConfigurationList) -> bool:
    """Return whether plugins may be asked for GC at all; which of them know it is up to their versions."""
    return not network.disable_gc and is_at_least(network.cni_version, _GC_SINCE)


class Chain:
    """Runs the plugins of lists.

    Args:
        executions: Executes them.
        make_requests: Gives what makes requests.
        negotiation: Knows what they speak.
        shared_chains: Keeps the first ADDs apart that would be in each other's way.
    """

    def __init__(
        self,
        executions: Executions,
        make_requests: Callable[[], Requests],
        negotiation: Negotiation,
        shared_chains: SharedChains,
    ) -> None:
        self._executions = executions
        self._make_requests = make_requests
        self._negotiation = negotiation
        self._shared_chains = shared_chains

    async def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        on_result: Callable[[Result], Awaitable[None]] | None,
        prev_result: Result | None = None,
    ) -> Result:
        """Run ADD in the order of the list, up to the first failure; each plugin is told the result of the one before.

        A result goes on in the list's version, whichever it was printed in; it is returned as it was printed.

        Raises:
            PluginError, BadResult: About one plugin; those after it have not run.
        """
        result = prev_result
        for plugin in network.plugins:
            told = result.converted(network.cni_version) if result is not None else None
            result = await self._add(network, plugin, attachment, told)
            if on_result is not None:
                await on_result(result)
        assert result is not None  # noqa: S101  # a list has at least one plugin
        return result

    def requests_for_add(self, network: NetworkConfigurationList, attachment: Attachment) -> tuple[Request, ...]:
        """Return the requests of ADD in their order, without the results that nobody knows yet."""
        requests = self._make_requests()
        return tuple(requests.attachment(Verb.ADD, network, plugin, attachment, None) for plugin in network.plugins)

    async def check(self, network: NetworkConfigurationList, attachment: Attachment, result: Result | None) -> None:
        """Run CHECK in the order of the list, up to the first failure; all plugins are told the last result of ADD.

        Raises:
            VerbUnsupported: The list's version has no CHECK, allowed or not.
            BadResult: The result cannot be told in the list's version.
            PluginError: About one plugin; those after it have not run.
        """
        require_check(network.cni_version)
        if network.disable_check:
            return
        told = result.converted(network.cni_version) if result is not None else None
        for plugin in network.plugins:
            await self._executions.run(self._make_requests().attachment(Verb.CHECK, network, plugin, attachment, told))

    async def delete(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        result: Result | None,
        *,
        added_plugins: int | None = None,
        deleted: Collection[int] = (),
        is_needed: Callable[[str], Awaitable[bool]] | None = None,
        restore: Callable[[], Awaitable[object]] | None = None,
        on_deleted: Callable[[frozenset[int]], Awaitable[None]] | None = None,
        place: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        force: bool = False,
    ) -> None:
        """Run DEL in reverse order, each plugin once more if it fails; `deletion` says which failures count.

        The plugins whose indexes are in `deleted` are left out, and `on_deleted` is awaited whenever there is one more
        of them. Plugins that find their rules by address receive no result if `is_needed` says so, which is asked just
        before each execution. Before a plugin is asked once more `restore` is called, if it is given. With `force` all
        plugins run, and failures are logged only. What `place` returns is held while a plugin runs, instead of one of
        the runtime's places.

        Raises:
            PluginError: About one plugin. If its ADD has completed, those before it have not run.
        """
        told = _told_to_delete(network, result)
        completed = frozenset(deleted)
        pending: PluginError | None = None
        for index, plugin in reversed(tuple(enumerate(network.plugins))):
            if index in completed:
                continue

            async def complete(request: Request, plugin: PluginConfiguration = plugin) -> Request:
                if is_needed is None or told is None or plugin.type not in RULES_BY_ADDRESS:
                    return request
                if not await is_needed(plugin.type):
                    return request
                return self._make_requests().attachment(Verb.DEL, network, plugin, attachment, None)

            request = self._make_requests().attachment(Verb.DEL, network, plugin, attachment, told)
            try:
                await self._delete(request, restore, complete, place)
            except PluginError as exc:
                progress = progress_of_add(index, added_plugins)
                done = is_done(exc, progress)
                if progress is Progress.COMPLETED and not done and not force:
                    raise
                log.warning("plugin.delete_failed", extra={"plugin": plugin.type, "error": str(exc)})
                if not done:
                    pending = exc
                    continue
            completed |= {index}
            if on_deleted is not None:
                await on_deleted(completed)
        if pending is not None and not force:
            raise pending

    async def gc(self, network: NetworkConfigurationList, valid: Collection[AttachmentKey]) -> None:
        """Run GC in the order of the list, to its end; only plugins that speak the list's version know it.

        So must the plugin for IPAM that one hands it on to.

        Raises:
            GcFailed: Plugins failed, or do not tell what they speak.
        """
        if not has_gc(network):
            return
        errors: list[CniError] = []
        for plugin in network.plugins:
            try:
                if await self._speaks(plugin, network.cni_version):
                    await self._executions.run(self._make_requests().gc(network, plugin, valid))
            except CniError as exc:
                errors.append(exc)
        if errors:
            raise GcFailed(network.name, errors)

    async def status(self, network: NetworkConfigurationList) -> None:
        """Run STATUS in the order of the list, up to the first failure; skip one that does not say what it speaks.

        Raises:
            NoCommonVersion: A plugin, or the one that it names for IPAM, does not speak the list's version: it would
                refuse ADD with the same code. Those after it have not run.
            PluginError: About one plugin; those after it have not run.
        """
        if not is_at_least(network.cni_version, _STATUS_SINCE):
            return
        for plugin in network.plugins:
            answers = await self._negotiation.answers(plugin)
            choose_version(network, answers)
            if plugin.type in answers:
                await self._executions.run(self._make_requests().status(network, plugin))

    async def _delete(
        self,
        request: Request,
        restore: Callable[[], Awaitable[object]] | None,
        complete: Callable[[Request], Awaitable[Request]],
        place: Callable[[], AbstractAsyncContextManager[None]] | None,
    ) -> None:
        try:
            await self._executions.run(request, place=place, complete=complete)
        except PluginFailed as exc:
            if exc.is_transient or says_unknown_container(exc):  # asked again often enough, or once and for all
                raise
            if restore is not None:
                await restore()
            await self._executions.run(request, place=place, complete=complete)

    async def _add(
        self,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachment: Attachment,
        told: Result | None,
    ) -> Result:
        requests = self._make_requests()
        output = await self._executions.run(
            requests.attachment(Verb.ADD, network, plugin, attachment, told),
            lambda: self._shared_chains.serialize_first_add(plugin, attachment, told),
            undo=lambda: requests.attachment(Verb.DEL, network, plugin, attachment, _told_to_delete(network, told)),
        )
        return output.parse(lambda stdout: parse_result(stdout, network.cni_version))

    async def _speaks(self, plugin: PluginConfiguration, version: str) -> bool:
        """Tell whether a plugin speaks a version, and the plugin for IPAM as well that it hands the verb on to.

        One of before answers these verbs with whatever error comes first, code 3 for one (measured, 1.1.1).

        Raises:
            CniError: The plugin does not say what it speaks.
        """
        own = await self._negotiation.version(plugin.type)
        answers = await self._negotiation.answers(plugin)
        return all(version in info.supported for info in (own, *answers.values()))


def _told_to_delete(network: NetworkConfigurationList, result: Result | None) -> Result | None:
    """Return what plugins are told of a result; better nothing than that nothing is deleted."""
    if result is None or not is_at_least(network.cni_version, _PREV_RESULT_FOR_DEL_SINCE):
        return None
    try:
        return result.converted(network.cni_version)
    except BadResult:
        return None
