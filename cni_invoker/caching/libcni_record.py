# SPDX-License-Identifier: Apache-2.0
"""The format of libcni's cache files; pure.

```json
{"kind": "cniCacheV1", "containerId": "c1", "config": "<the list, base64>", "ifName": "eth0", "networkName": "blue",
 "netns": "/run/netns/c1", "cniArgs": [["K", "V"]], "capabilityArgs": {}, "result": {},
 "bootId": "<the kernel's>", "answered": 2, "deleted": [1]}
```

`result` is absent as long as no plugin has printed one, `deleted` as long as no DEL has begun. `bootId`, `answered` and
`deleted` are our extensions; libcni ignores them.
"""

import base64
from typing import Final

from cni_invoker.caching.cache import CachedAttachment
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
from cni_invoker.errors import InvalidParameter
from cni_invoker.inputs.attachment import Attachment

__all__ = ["UnknownKind", "parse_record", "render_record"]

_KIND: Final = "cniCacheV1"


class UnknownKind(JsonError):
    """A record has an unknown format: it is not damaged, another program understands it."""


def render_record(cached: CachedAttachment) -> bytes:
    """Return an attachment as libcni would write it."""
    attachment = cached.attachment
    record: dict[str, JsonValue] = {
        "kind": _KIND,
        "containerId": attachment.container_id,
        "config": base64.b64encode(render_json(cached.configuration)).decode("ascii") if cached.configuration else None,
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


def parse_record(data: bytes) -> CachedAttachment | JsonObject:
    """Return the attachment in a file's content, or the bare result if the file is older than `cniCacheV1`.

    An unreadable configuration is dropped, because the result and the arguments are still useful.

    Raises:
        UnknownKind: It is a record of another format.
        JsonError: It is not a record.
    """
    record = as_object(parse_json(data), "the record")
    kind = find_str(record, "kind")
    if kind is None:
        return record
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
    except InvalidParameter as exc:
        raise JsonError(str(exc)) from exc
    return CachedAttachment(
        network=get_str(record, "networkName"),
        attachment=attachment,
        configuration=_configuration(record),
        result=find_object(record, "result"),
        boot_id=find_str(record, "bootId") or "",
        added_plugins=find_int(record, "answered"),
        deleted=_deleted(record),
    )


def _configuration(record: JsonObject) -> JsonObject | None:
    try:
        return as_object(parse_json(base64.b64decode(get_str(record, "config"), validate=True)), "config")
    except ValueError:
        return None


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
