# SPDX-License-Identifier: Apache-2.0
"""The inputs of DEL and CHECK, restored from a cached attachment: list, attachment and result of ADD.

A record written by libcni may lack the namespace, the plugins from sub-directories, or everything except the result.
Damaged parts count as missing.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cni_invoker.caching.cache import CachedAttachment
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.documents.jsontypes import JsonError, JsonObject, get_objects, render_json
from cni_invoker.errors import BadConfiguration, BadResult
from cni_invoker.inputs.attachment import Attachment
from cni_invoker.results.result import Result

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
    """Return the list that was used for ADD, None if it was not stored or is unusable.

    Args:
        cached: The cached attachment.
        current: The network's current list, if there is one. It supplies the plugins from other files, which libcni
            does not store.
    """
    if cached.configuration is None:
        return None
    try:
        if "plugins" in cached.configuration:
            further = _further_plugins(cached, current) if current is not None else ()
            return NetworkConfigurationList.from_document(cached.configuration, further=further)
        # libcni's AddNetwork, which has no lists, stores the configuration of its single plugin.
        return NetworkConfigurationList.from_plugin_document(cached.configuration)
    except (BadConfiguration, JsonError) as exc:
        log.warning("cache.bad_configuration", extra={"network": cached.network, "reason": str(exc)})
        return None


def document_of_delete(used: NetworkConfigurationList) -> JsonObject:
    """Return the list to store for a DEL that has begun; it is complete, independent of other files."""
    return {**used.document, _ONLY_INLINED: True}


def find_result_of_add(cached: CachedAttachment) -> Result | None:
    """Return the result for DEL, None if there is none or it is damaged: DEL runs without it then."""
    if cached.result is None:
        return None
    try:
        return Result.from_document(cached.result)
    except BadResult as exc:
        log.warning("cache.bad_result", extra={"network": cached.network, "reason": exc.reason})
        return None


def attachment_of_add(cached: CachedAttachment, result: Result | None, given: Attachment | None) -> Attachment:
    """Return the attachment that was given to ADD.

    libcni stores the namespace since 1.2 and the arguments since 0.8; older files contain only the result.

    Args:
        cached: The cached attachment.
        result: The cached result; its interface names the namespace if nothing else does.
        given: The attachment as the caller gives it now, None if it does not.
    """
    kept = cached.attachment
    if kept.netns:
        return kept
    is_bare = cached.configuration is None and not kept.args and not kept.capability_args
    known = given if given is not None and is_bare else kept
    return replace(known, netns=(given.netns if given else "") or _sandbox(result, kept.ifname))


def is_cut_off(cached: CachedAttachment, stored: NetworkConfigurationList) -> bool:
    """Return whether ADD was interrupted."""
    return cached.added_plugins is not None and cached.added_plugins < len(stored.plugins)


def lists_of_adds(
    network: NetworkConfigurationList, cached_attachments: Iterable[CachedAttachment]
) -> list[NetworkConfigurationList]:
    """Return `network` and the lists that cached attachments were added with, without duplicates."""
    used = [find_list_of_add(cached, network) for cached in cached_attachments]
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
    """Return the plugins that libcni took from other files and did not store, if the list is otherwise unchanged."""
    kept = cached.configuration or {}
    if cached.boot_id or str(kept.get(_ONLY_INLINED)).lower() == "true":
        return ()
    inlined = get_objects(kept, "plugins")
    plugins = get_objects(current.document, "plugins")
    whole: JsonObject = {**kept, _ONLY_INLINED: True, "plugins": list(plugins)}
    if current.document != whole or plugins[: len(inlined)] != inlined:
        return ()
    return plugins[len(inlined) :]
