# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is known about a case before it runs; the classes of differences depend on it. Pure."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cni_invoker import SUPPORTED_VERSIONS, CachedAttachment
from cni_invoker.caching.record import parse_record
from cni_invoker.documents.jsontypes import JsonError
from tests.differential.cases import Case

__all__ = ["facts_of_case", "parse_stored"]

_KINDS: Final = {"code": int, "msg": str, "details": str}
_OF_A_RECORD: Final = {
    "kind": "cniCacheV1",
    "containerId": "containerID",
    "ifName": "ifname",
    "netns": "netns",
    "cniArgs": "args",
    "capabilityArgs": "capabilityArgs",
}
"""The keys of a record, and those of a case's request with the same value, or the value."""


def facts_of_case(case: Case) -> frozenset[str]:
    """Return what is known about a case: `differences.yaml` uses these names."""
    lists = [_parsed(text) for text in case.files.values()]
    contents = [base64.b64decode(one["content"]) for one in case.request["operations"] if "content" in one]
    printed = [(_parsed(base64.b64decode(answer["stdout"])), answer["status"]) for answer in _answers(case)]
    found = {*_of_lists(lists), *_of_answers(printed), *_of_records(case, contents, lists)}
    if any(b"cniVersions" in text for text in case.files.values()):
        found.add("several-versions")
    if any(
        b'"1.1.0"' not in base64.b64decode(answer["stdout"]) or answer["status"] for answer in _answers(case, "VERSION")
    ):
        found.add("other-versions")
    if any(map(_has_odd_case, (*lists, *(stdout for stdout, _ in printed), *map(parse_stored, contents)))):
        found.add("odd-case")
    return frozenset(found)


def parse_stored(content: bytes) -> Any:
    """Return a stored record with its configuration decoded, None if it is not JSON."""
    record = _parsed(content)
    if isinstance(record, dict) and isinstance(record.get("config"), str):
        with suppress(ValueError):
            record["config"] = json.loads(base64.b64decode(record["config"]))
    return record


def _of_lists(lists: Sequence[Any]) -> Iterator[str]:
    if len(lists) > 1:
        yield "several-files"
    for one in lists:
        if isinstance(one, dict):
            versions = one.get("cniVersions")
            offered = [one.get("cniVersion"), *(versions if isinstance(versions, list) else ())]
            if any(version not in SUPPORTED_VERSIONS for version in offered):
                yield "odd-version"


def _of_answers(printed: Sequence[tuple[Any, int]]) -> Iterator[str]:
    for stdout, status in printed:
        if isinstance(stdout, dict) and status:
            code = stdout.get("code")
            if code == 3:
                yield "answers-3"
            is_odd = any(type(stdout.get(key, kind())) is not kind for key, kind in _KINDS.items())
            if is_odd or stdout.keys() - _KINDS or (isinstance(code, int) and code < 0):
                yield "odd-errors"


def _of_records(case: Case, contents: Sequence[bytes], lists: Sequence[Any]) -> Iterator[str]:
    for content in contents:
        if not _is_readable(content):
            yield "unreadable-record"
        record = parse_stored(content)
        if isinstance(record, dict):
            if (
                len(lists) > 1
                or record.get("config") != next(iter(lists), None)
                or any(record.get(key) != case.request.get(name, name) for key, name in _OF_A_RECORD.items())
            ):
                yield "record-of-another-add"
            if record.get("networkName") != case.request["network"]:
                yield "record-of-another-network"


def _is_readable(content: bytes) -> bool:
    try:
        return isinstance(parse_record(content), CachedAttachment)
    except JsonError:
        return False


def _has_odd_case(document: Any) -> bool:
    """Return whether a key begins with a capital letter, which CNI's keys do not."""
    if isinstance(document, dict):
        return any(key[:1].isupper() or _has_odd_case(value) for key, value in document.items())
    return isinstance(document, list) and any(map(_has_odd_case, document))


def _answers(case: Case, verb: str | None = None) -> Iterator[Mapping[str, Any]]:
    for operation in case.request["operations"]:
        for own in operation.get("answers", {}).values():
            yield from (answer for name, answer in own.items() if verb in {None, name})


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
