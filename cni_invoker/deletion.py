# SPDX-License-Identifier: Apache-2.0
"""DEL of a list: what a failure means, and what a caller may add.

| its ADD            | its DEL fails with                       | then |
| ------------------ | ---------------------------------------- | ---- |
| has completed      | code 3                                   | this plugin is done |
|                    | anything else                            | those before it do not run; the error is raised |
| has not completed  | code 3, 1, 2, 7 or 8                     | this plugin is done |
|                    | anything else: killed, not found, ...    | the other plugins run; then the error is raised |
| has not begun      | anything                                 | this plugin is done: it has created nothing |

Code 3 means that the plugin has nothing of the container and needs no DEL (CNI SPEC "Error"). With codes 1, 2, 7 and 8
a plugin rejects the request itself: it does not support the version, a field or the configuration, or the namespace is
its own. Its ADD received the same request and was rejected as well. CNI_ARGS may be what it rejects, with any code:
when the DEL of a plugin whose ADD has not completed is repeated, it receives none. No other error proves that the
plugin has created nothing. A caller that stores attachments keeps the attachment and repeats the DEL as long as an
error is raised; only `force` forgets it.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cni_invoker.documents.attachment import Attachment
from cni_invoker.documents.known_plugins import RULES_BY_ADDRESS
from cni_invoker.documents.lists import NetworkConfigurationList
from cni_invoker.documents.request import Request, Requests
from cni_invoker.documents.results import Result
from cni_invoker.documents.versions import Verb, is_at_least
from cni_invoker.errors import BadResult, ErrorCode, PluginError, PluginFailed
from cni_invoker.execution.executor import Executor
from cni_invoker.messages import log_event

_REJECTIONS: Final = frozenset(
    {
        ErrorCode.INCOMPATIBLE_VERSION,
        ErrorCode.UNSUPPORTED_FIELD,
        ErrorCode.INVALID_CONFIGURATION,
        ErrorCode.INVALID_NAMESPACE,
    }
)


def says_unknown_container(failed: PluginError) -> bool:
    """Return whether a plugin reports code 3: it has nothing of the container."""
    return _code_of_answer(failed) == ErrorCode.UNKNOWN_CONTAINER


def _code_of_answer(failed: PluginError) -> int | None:
    """Return the error code of a plugin, None if the plugin did not end by itself."""
    return failed.code if isinstance(failed, PluginFailed) and failed.signal is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteHooks:
    """What `Runtime.delete` calls around its executions; None: nothing.

    Attributes:
        is_needed: Awaited with the type of a plugin that finds its rules by address alone (`firewall`), just before
            each execution. It returns whether another container needs these rules now (`needs_rules`); if so, the
            plugin receives no result and leaves them. Its exception ends the operation.
        restore: Awaited before a failed plugin is run once more. It puts back the link, which the plugin may have
            deleted and by which it finds the rest of its work (bridge, ptp: masquerading). Its exception is raised.
        in_slot: Whether an execution takes one of the runtime's DEL slots; False if the caller limits them.
        attachment_of: Called with the index of a plugin in the list. It returns the attachment that this plugin
            receives, for a list whose plugins did not all receive the same one at ADD.
    """

    is_needed: Callable[[str], Awaitable[bool]] | None = None
    restore: Callable[[], Awaitable[object]] | None = None
    in_slot: bool = True
    attachment_of: Callable[[int], Attachment] | None = None


async def delete_in_reverse(
    executor: Executor,
    requests: Requests,
    network: NetworkConfigurationList,
    attachment: Attachment,
    result: Result | None,
    *,
    added_plugins: int | None,
    deleted: Collection[int],
    on_deleted: Callable[[frozenset[int]], Awaitable[None]] | None,
    hooks: DeleteHooks,
    force: bool,
) -> None:
    """Run the DEL of all plugins, in reverse order; the arguments are those of `Runtime.delete`."""
    prev_result = result_for_delete(network.cni_version, result)
    completed = frozenset(deleted)
    pending: PluginError | None = None
    for index, plugin in reversed(tuple(enumerate(network.plugins))):
        if index in completed:
            continue
        # Results are stored before the next plugin begins, so at most one plugin's ADD has begun and not completed.
        has_added = added_plugins is None or index < added_plugins
        is_between = index == added_plugins
        received = attachment if hooks.attachment_of is None else hooks.attachment_of(index)
        again = replace(received, args=()) if is_between else received
        make = partial(requests.attachment, Verb.DEL, network, plugin)
        try:
            try:
                await _delete(executor, partial(make, received), prev_result, hooks)
            except PluginFailed as exc:
                if exc.is_transient or says_unknown_container(exc):  # it was repeated already, or the answer is final
                    raise
                if hooks.restore is not None:
                    await hooks.restore()
                await _delete(executor, partial(make, again), prev_result, hooks)
        except PluginError as exc:
            is_rejected = is_between and _code_of_answer(exc) in _REJECTIONS
            done = not (has_added or is_between) or is_rejected or says_unknown_container(exc)
            if has_added and not done and not force:
                raise
            log_event(__name__, "plugin.delete_failed", plugin=plugin.type, error=str(exc))
            if not done:
                pending = exc
                continue
        completed |= {index}
        if on_deleted is not None:
            await on_deleted(completed)
    if pending is not None and not force:
        raise pending


async def _delete(
    executor: Executor, make: Callable[[Result | None], Request], prev_result: Result | None, hooks: DeleteHooks
) -> None:
    """Run DEL of one plugin; `make` returns its request with a previous result, or with none."""

    async def without_needed_rules(request: Request) -> Request:
        if hooks.is_needed is not None and await hooks.is_needed(request.plugin):
            return make(None)
        return request

    request = make(prev_result)
    has_rules = prev_result is not None and request.plugin in RULES_BY_ADDRESS
    await executor.run(
        request, None if hooks.in_slot else nullcontext, amend=without_needed_rules if has_rules else None
    )


def result_for_delete(version: str, result: Result | None) -> Result | None:
    """Return the `prevResult` for DEL of a list of `version`; None rather than an error, because DEL must run."""
    if result is None or not is_at_least(version, "0.4.0"):
        return None
    try:
        return result.converted(version)
    except BadResult:
        return None
