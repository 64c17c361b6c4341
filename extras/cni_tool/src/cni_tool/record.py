# SPDX-License-Identifier: Apache-2.0
"""The record of a cached attachment: libcni's format, and the inputs of DEL and CHECK that are restored from it.

DEL and CHECK need what was known at ADD, and that may change or be forgotten (CNI SPEC §2 "Lifecycle & Ordering").

```json
{"kind": "cniCacheV1", "containerId": "c1", "config": "<the list, base64>", "ifName": "eth0", "networkName": "blue",
 "netns": "/run/netns/c1", "cniArgs": [["K", "V"]], "capabilityArgs": {}, "result": {},
 "bootId": "<the kernel's>", "answered": 2, "deleted": [1]}
```

`result` is absent as long as no plugin has printed one, `deleted` as long as no DEL has begun. libcni ignores `bootId`,
`answered` and `deleted`. What it has written may lack the namespace (before 1.2) and the plugins from sub-directories.
"""

import base64
from dataclasses import dataclass, field, replace
from typing import Final

from cni_invoker.documents.attachment import Attachment
from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    find_int,
    find_object,
    find_str,
    get_list,
    get_str,
    parse_json,
    render_json,
)
from cni_invoker.documents.lists import NetworkConfigurationList
from cni_invoker.documents.results import Result
from cni_invoker.errors import BadConfiguration, BadResult, InvalidParameter
from cni_tool.messages import log_warning

_KIND: Final = "cniCacheV1"


class UnknownKind(JsonError):
    """A record of another format, such as a newer libcni's: the program that wrote it understands it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAttachment:
    """An attachment whose ADD has begun and whose DEL has not completed.

    Attributes:
        network: Name of the network.
        attachment: The attachment that was passed to ADD.
        configuration: The network configuration list that was used.
        result: The last result that a plugin of the list printed; None if there is none.
        added_plugins: How many plugins of the list have printed a result, from the first; None if it was not stored,
            which means all.
        boot_id: The kernel's boot ID at ADD; empty if it was not stored.
        deleted: Indexes of the plugins of `configuration` whose DEL has completed; None as long as no DEL has begun.
    """

    network: str
    attachment: Attachment
    configuration: NetworkConfigurationList
    result: JsonObject | None = field(hash=False)
    boot_id: str
    added_plugins: int | None = None
    deleted: frozenset[int] | None = None

    @property
    def is_cut_off(self) -> bool:
        """Whether ADD was interrupted."""
        return self.added_plugins is not None and self.added_plugins < len(self.configuration.plugins)


def render_record(cached: CachedAttachment) -> bytes:
    """Return an attachment as libcni would write it."""
    attachment = cached.attachment
    record: dict[str, JsonValue] = {
        "kind": _KIND,
        "containerId": attachment.container_id,
        "config": base64.b64encode(render_json(cached.configuration.document)).decode("ascii"),
        "ifName": attachment.ifname,
        "networkName": cached.network,
        "netns": attachment.netns,
        "cniArgs": attachment.args,
        "capabilityArgs": attachment.capability_args,
        "result": cached.result,
        "bootId": cached.boot_id,
    }
    given = {key: value for key, value in record.items() if value}  # libcni's omitempty
    if cached.added_plugins is not None:
        given["answered"] = cached.added_plugins
    if cached.deleted is not None:
        given["deleted"] = sorted(cached.deleted)
    return render_json(given)


def parse_record(data: bytes) -> CachedAttachment:
    """Return the attachment in a file's content.

    Raises:
        UnknownKind: It is a record of another format.
        JsonError: It is not a record.
    """
    record = as_object(parse_json(data), "the record")
    kind = find_str(record, "kind")
    if not kind:
        raise JsonError("it has no kind, like files of before libcni 0.8, which do not tell whose they are")
    if kind != _KIND:
        raise UnknownKind(f"it is of the kind {kind!r}, and only {_KIND!r} is known here")
    try:
        attachment = Attachment(
            container_id=get_str(record, "containerId"),
            ifname=get_str(record, "ifName"),
            netns=find_str(record, "netns") or "",
            args=tuple(_pair(item) for item in get_list(record, "cniArgs")),
            capability_args=find_object(record, "capabilityArgs") or {},
        )
        document = as_object(parse_json(base64.b64decode(get_str(record, "config"), validate=True)), "config")
        if "plugins" in document:
            configuration = NetworkConfigurationList.from_document(document)
        else:  # libcni's AddNetwork, which has no lists, stores the configuration of its single plugin
            configuration = NetworkConfigurationList.from_plugin_document(document)
    except (BadConfiguration, InvalidParameter, ValueError) as exc:
        raise JsonError(str(exc)) from exc
    return CachedAttachment(
        network=get_str(record, "networkName"),
        attachment=attachment,
        configuration=configuration,
        result=find_object(record, "result"),
        boot_id=find_str(record, "bootId") or "",
        added_plugins=find_int(record, "answered"),
        deleted=_deleted(record),
    )


def _deleted(record: JsonObject) -> frozenset[int] | None:
    if record.get("deleted") is None:
        return None
    indexes = [index for index in get_list(record, "deleted") if isinstance(index, int) and not isinstance(index, bool)]
    if len(indexes) != len(get_list(record, "deleted")):
        raise JsonError("deleted must have integers only")
    return frozenset(indexes)


def _pair(item: JsonValue) -> tuple[str, str]:
    match item:
        case [str(key), str(value)]:
            return key, value
        case _:
            raise JsonError("each of cniArgs must be a pair of strings")


def find_result_of_add(cached: CachedAttachment) -> Result | None:
    """Return the result for DEL, None if there is none or it is damaged: DEL runs without it then."""
    if cached.result is None:
        return None
    try:
        return Result.from_document(cached.result)
    except BadResult as exc:
        log_warning(__name__, "cache.bad_result", network=cached.network, reason=exc.reason)
        return None


def attachment_of_add(cached: CachedAttachment, result: Result | None, given: Attachment | None) -> Attachment:
    """Return the attachment that was given to ADD; libcni before 1.2 does not store the namespace."""
    kept = cached.attachment
    return kept if kept.netns else replace(kept, netns=(given.netns if given else "") or _sandbox(result, kept.ifname))


def _sandbox(result: Result | None, ifname: str) -> str:
    interfaces = result.interfaces if result is not None else ()
    return next((interface.sandbox for interface in interfaces if interface.name == ifname and interface.sandbox), "")
