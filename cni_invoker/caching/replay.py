# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What DEL and CHECK are given: list, attachment and result of ADD, as far as they are remembered and of use.

What has been kept by libcni may lack the namespace, plugins of sub-directories, or all but the result; what is damaged
is as good as lost.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cni_invoker.attachment import Attachment
from cni_invoker.caching.cache import CachedAttachment
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.errors import BadConfiguration
from cni_invoker.plugin_errors import BadResult
from cni_invoker.results.result import Result
from spec import JsonError, JsonObject, get_objects, render_json

__all__ = [
    "attachment_of_add",
    "document_of_delete",
    "find_list_of_add",
    "find_result_of_add",
    "is_cut_off",
    "lists_of_adds",
]

log = logging.getLogger(__name__)

_ONLY_INLINED: Final = "loadOnlyInlinedPlugins"


def find_list_of_add(
    cached: CachedAttachment, current: NetworkConfigurationList | None
) -> NetworkConfigurationList | None:
    """Return the list that was used for ADD, None if it has not been kept, or is of no use.

    Args:
        cached: What is remembered.
        current: The network's present list, if there is one: where libcni has not kept plugins from other files, they
            are taken from there.
    """
    if cached.configuration is None:
        return None
    try:
        if "plugins" in cached.configuration:
            further = _further_plugins(cached, current) if current is not None else ()
            return NetworkConfigurationList.from_document(cached.configuration, further=further)
        # libcni's AddNetwork, which knows no lists, keeps the configuration of its one plugin.
        return NetworkConfigurationList.from_plugin_document(cached.configuration)
    except (BadConfiguration, JsonError) as exc:
        log.warning("cache.bad_configuration", extra={"network": cached.network, "reason": str(exc)})
        return None


def document_of_delete(used: NetworkConfigurationList) -> JsonObject:
    """Return what is kept of the list of a DEL that has begun: it is whole, whatever other files there will be."""
    return {**used.document, _ONLY_INLINED: True}


def find_result_of_add(cached: CachedAttachment) -> Result | None:
    """Return the result for a DEL, which goes on without one rather than not at all."""
    if cached.result is None:
        return None
    try:
        return Result.from_document(cached.result)
    except BadResult as exc:
        log.warning("cache.bad_result", extra={"network": cached.network, "reason": exc.reason})
        return None


def attachment_of_add(cached: CachedAttachment, result: Result | None, given: Attachment | None) -> Attachment:
    """Return the attachment that was given to ADD.

    libcni has kept the namespace only since 1.2, the arguments since 0.8; of before there is nothing but the result.

    Args:
        cached: What is remembered.
        result: The remembered result: if nothing else tells the namespace, its interface does.
        given: What the caller gives now, None for nothing.
    """
    kept = cached.attachment
    if kept.netns:
        return kept
    is_bare = cached.configuration is None and not kept.args and not kept.capability_args
    known = given if given is not None and is_bare else kept
    return replace(known, netns=(given.netns if given else "") or _sandbox(result, kept.ifname))


def is_cut_off(cached: CachedAttachment, stored: NetworkConfigurationList) -> bool:
    """Return whether ADD has not come to its end."""
    return cached.added_plugins is not None and cached.added_plugins < len(stored.plugins)


def lists_of_adds(
    network: NetworkConfigurationList, remembered: Iterable[CachedAttachment]
) -> list[NetworkConfigurationList]:
    """Return a list, and those that attachments were added with; equal ones once."""
    used = [find_list_of_add(cached, network) for cached in remembered]
    lists: list[NetworkConfigurationList] = []
    seen: set[bytes] = set()
    for one in (network, *filter(None, used)):
        document = render_json([one.cni_version, *[plugin.document for plugin in one.plugins]])
        if document not in seen:
            seen.add(document)
            lists.append(one)
    return lists


def _sandbox(result: Result | None, ifname: str) -> str:
    interfaces = result.interfaces if result is not None else ()
    return next((interface.sandbox for interface in interfaces if interface.name == ifname and interface.sandbox), "")


def _further_plugins(cached: CachedAttachment, current: NetworkConfigurationList) -> Sequence[JsonObject]:
    """Return the plugins that libcni had from other files, and has not kept: those of a list that is still the same."""
    kept = cached.configuration or {}
    if cached.boot_id or str(kept.get(_ONLY_INLINED)).lower() == "true":
        return ()
    inlined = get_objects(kept, "plugins")
    plugins = get_objects(current.document, "plugins")
    whole: JsonObject = {**kept, _ONLY_INLINED: True, "plugins": list(plugins)}
    if current.document != whole or plugins[: len(inlined)] != inlined:
        return ()
    return plugins[len(inlined) :]
