# SPDX-License-Identifier: Apache-2.0
"""Runs the plugins of a list one after the other for a verb, with the inputs that the specification defines.

There is no locking here: the runtime keeps concurrent operations apart.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cni_invoker.config.lists import NetworkConfigurationList, PluginConfiguration
from cni_invoker.errors import BadResult, CniError, GcFailed, PluginError, PluginFailed, VerbUnsupported
from cni_invoker.execution.answer import Output
from cni_invoker.execution.executor import Executor, Slot
from cni_invoker.execution.first_iptables_use import FirstIptablesUse
from cni_invoker.execution.request import Requests
from cni_invoker.inputs.attachment import Attachment, AttachmentKey
from cni_invoker.messages import log_event
from cni_invoker.operations.deletion import (
    RULES_BY_ADDRESS,
    AddProgress,
    DeleteHooks,
    is_done,
    progress_of_add,
    says_unknown_container,
)
from cni_invoker.operations.negotiation import Negotiation, choose_version
from cni_invoker.protocol import Verb
from cni_invoker.results.result import Result, parse_result
from cni_invoker.versions import is_at_least

__all__ = ["Chain", "has_gc", "require_check"]

log = logging.getLogger(__name__)

_PREV_RESULT_FOR_DEL_SINCE: Final = "0.4.0"
_NO_HOOKS: Final = DeleteHooks()


def require_check(version: str) -> None:
    """Raise `VerbUnsupported` if a list of `version` has no CHECK."""
    if not is_at_least(version, Verb.CHECK.since):
        raise VerbUnsupported(Verb.CHECK, version, Verb.CHECK.since)


def has_gc(network: NetworkConfigurationList) -> bool:
    """Return whether a list allows GC at all; whether a plugin supports it depends on its versions."""
    return not network.disable_gc and is_at_least(network.cni_version, Verb.GC.since)


@dataclass(frozen=True, slots=True)
class Chain:
    """Runs the plugins of lists.

    Attributes:
        executor: Executes plugins.
        requests: Makes what they receive.
        negotiation: Knows which versions plugins support.
        first_iptables_use: Serializes first ADDs that would create the same iptables chains.
    """

    executor: Executor
    requests: Requests
    negotiation: Negotiation
    first_iptables_use: FirstIptablesUse

    async def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        on_result: Callable[[Result], Awaitable[None]] | None,
        prev_result: Result | None = None,
        slot: Slot | None = None,
    ) -> Result:
        """Run ADD in list order up to the first failure; each plugin receives the result of the one before.

        A plugin receives the result converted to the list's version; the last result is returned as it was printed.
        """
        result = prev_result
        for plugin in network.plugins:
            converted = result.converted(network.cni_version) if result is not None else None
            result = await self._add(network, plugin, attachment, converted, slot)
            if on_result is not None:
                await on_result(result)
        assert result is not None  # noqa: S101  # a list has at least one plugin
        return result

    async def check(self, network: NetworkConfigurationList, attachment: Attachment, result: Result | None) -> None:
        """Run CHECK in list order up to the first failure; every plugin receives the last result of ADD.

        A version without CHECK is an error even if the list disables it.
        """
        require_check(network.cni_version)
        if network.disable_check:
            return
        prev_result = result.converted(network.cni_version) if result is not None else None
        for plugin in network.plugins:
            request = self.requests.attachment(Verb.CHECK, network, plugin, attachment, prev_result)
            await self.executor.retry(partial(self.executor.run, request))

    async def delete(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        result: Result | None,
        *,
        added_plugins: int | None = None,
        deleted: Collection[int] = (),
        on_deleted: Callable[[frozenset[int]], Awaitable[None]] | None = None,
        hooks: DeleteHooks = _NO_HOOKS,
        force: bool = False,
    ) -> None:
        """Run DEL in reverse order, as `Runtime.delete` describes; the module `deletion` says which failures count."""
        prev_result = _result_for_delete(network, result)
        completed = frozenset(deleted)
        pending: PluginError | None = None
        for index, plugin in reversed(tuple(enumerate(network.plugins))):
            if index in completed:
                continue
            received = attachment if hooks.attachment_of is None else hooks.attachment_of(index)
            progress = progress_of_add(index, added_plugins)
            again = replace(received, args=()) if progress is AddProgress.BEGUN else received
            try:
                await self._delete(network, plugin, (received, again), prev_result, hooks)
            except PluginError as exc:
                done = is_done(exc, progress)
                if progress is AddProgress.COMPLETED and not done and not force:
                    raise
                log_event(log, logging.WARNING, "plugin.delete_failed", plugin=plugin.type, error=str(exc))
                if not done:
                    pending = exc
                    continue
            completed |= {index}
            if on_deleted is not None:
                await on_deleted(completed)
        if pending is not None and not force:
            raise pending

    async def gc(self, network: NetworkConfigurationList, valid: Collection[AttachmentKey]) -> None:
        """Run GC in list order, for all plugins that support the list's version.

        The plugin's IPAM plugin must support it too, because the plugin delegates GC to it. A plugin that does not
        report its versions counts as failed.
        """
        if not has_gc(network):
            return
        errors: list[CniError] = []
        for plugin in network.plugins:
            try:
                if await self._speaks(plugin, network.cni_version):
                    request = self.requests.gc(network, plugin, valid)
                    await self.executor.retry(partial(self.executor.run, request))
            except CniError as exc:
                errors.append(exc)
        if errors:
            raise GcFailed(network.name, errors)

    async def status(self, network: NetworkConfigurationList) -> None:
        """Run STATUS in list order up to the first failure, also of plugins that do not report their versions.

        Raises:
            NoCommonVersion: A plugin or its IPAM plugin says that it does not support the list's version: it would
                refuse ADD with the same code. Those after it have not run.
            PluginError: One plugin failed; those after it have not run.
        """
        if not is_at_least(network.cni_version, Verb.STATUS.since):
            return
        for plugin in network.plugins:
            choose_version(network, await self.negotiation.answers(plugin))
            await self.executor.run(self.requests.status(network, plugin))

    async def _add(
        self,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachment: Attachment,
        prev_result: Result | None,
        slot: Slot | None,
    ) -> Result:
        request = self.requests.attachment(Verb.ADD, network, plugin, attachment, prev_result)

        def attempt() -> Awaitable[Output]:
            lock = self.first_iptables_use.serialize_first_add(plugin, attachment, prev_result)
            return self.executor.run(request, slot, lock)

        def undo() -> Awaitable[Output]:
            received = _result_for_delete(network, prev_result)
            return self.executor.run(self.requests.attachment(Verb.DEL, network, plugin, attachment, received))

        output = await self.executor.retry(attempt, undo)
        return output.parse(lambda stdout: parse_result(stdout, network.cni_version))

    async def _delete(
        self,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachments: tuple[Attachment, Attachment],
        prev_result: Result | None,
        hooks: DeleteHooks,
    ) -> None:
        """Run DEL of one plugin with the first attachment, and if it fails, once more, with the second."""
        first, again = attachments
        has_rules = prev_result is not None and plugin.type in RULES_BY_ADDRESS

        async def attempt(received: Attachment) -> Output:
            request = self.requests.attachment(Verb.DEL, network, plugin, received, prev_result)
            async with self.executor.turn(request, hooks.slot) as path:
                if has_rules and hooks.is_needed is not None and await hooks.is_needed(plugin.type):
                    bare = self.requests.attachment(Verb.DEL, network, plugin, received, None)
                    return await self.executor.execute(bare, path)
                return await self.executor.execute(request, path)

        try:
            await self.executor.retry(partial(attempt, first))
        except PluginFailed as exc:
            if exc.is_transient or says_unknown_container(exc):  # it was retried already, or the answer is final
                raise
            if hooks.restore is not None:
                await hooks.restore()
            await self.executor.retry(partial(attempt, again))

    async def _speaks(self, plugin: PluginConfiguration, version: str) -> bool:
        """Return whether a plugin and the IPAM plugin that it delegates to support a version.

        Plugins of older versions answer unknown verbs with whatever error comes first, for example code 3 (measured
        with 1.1.1).

        Raises:
            CniError: The plugin did not report its versions.
        """
        own = await self.negotiation.version(plugin.type)
        answers = await self.negotiation.answers(plugin)
        return all(version in info.supported for info in (own, *answers.values()))


def _result_for_delete(network: NetworkConfigurationList, result: Result | None) -> Result | None:
    """Return the `prevResult` for DEL; None rather than an error, because DEL must run."""
    if result is None or not is_at_least(network.cni_version, _PREV_RESULT_FOR_DEL_SINCE):
        return None
    try:
        return result.converted(network.cni_version)
    except BadResult:
        return None
