# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares what both runtimes did in a case, and looks each difference up among the known classes; pure."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cni_invoker import SUPPORTED_VERSIONS
from cni_invoker.documents.jsontypes import JsonError
from cni_tool import CachedAttachment
from cni_tool.record import parse_record
from tests.differential.cases import Case

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


CLASSES: Final = Path(__file__).with_name("differences.yaml")
_ENDS: Final = re.compile(r"load/value /(?!cniVersion).*|.*/(outcome|refused|order|further|records)")
"""After such a difference both runtimes have different lists or records, so the rest of the case says nothing."""

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference.

    Attributes:
        where: What differs: `OPERATION/ASPECT`, with the path inside a document, e.g. `add/stdin ADD /prevResult/dns`.
        libcni: What libcni has, as JSON or `absent`.
        ours: What cni_invoker has.
        facts: What else is known about the operation, e.g. `several-versions`.
    """

    where: str
    libcni: str
    ours: str
    facts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceClass:
    """A class of differences, each for the same reason. The expressions must match the whole text.

    Attributes:
        name: Its name.
        reason: Why the runtimes differ.
        where: Expression for `Difference.where`.
        libcni: Expression for `Difference.libcni`.
        ours: Expression for `Difference.ours`.
        facts: The facts that must hold.
    """

    name: str
    reason: str
    where: re.Pattern[str]
    libcni: re.Pattern[str]
    ours: re.Pattern[str]
    facts: frozenset[str]


_Differ = Callable[[str, str, str], Difference]


def load_classes() -> Sequence[DifferenceClass]:
    """Return the known classes of differences."""
    return tuple(
        DifferenceClass(
            name=name,
            reason=one["reason"],
            where=re.compile(one["where"], re.DOTALL),
            libcni=re.compile(one.get("libcni", ".*"), re.DOTALL),
            ours=re.compile(one.get("ours", ".*"), re.DOTALL),
            facts=frozenset(one.get("facts", ())),
        )
        for name, one in yaml.safe_load(CLASSES.read_text("utf-8")).items()
    )


def find_class(difference: Difference, classes: Sequence[DifferenceClass]) -> DifferenceClass | None:
    """Return the first class that a difference belongs to, None if it is unknown."""
    for known in classes:
        if (
            known.facts <= difference.facts
            and known.where.fullmatch(difference.where)
            and known.libcni.fullmatch(difference.libcni)
            and known.ours.fullmatch(difference.ours)
        ):
            return known
    return None


def compare(case: Case, libcni: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Yield the differences of a case, up to the first after which both are in different states."""
    operations = [{"op": "load"}, *case.request["operations"]]
    facts = set(facts_of_case(case))
    answers: Mapping[str, Any] = {}
    for operation, theirs, own in zip(operations, libcni, ours, strict=False):
        kind = operation["op"]
        if kind in {"answers", "truncate", "replace"}:
            answers = operation.get("answers", answers)
            facts.add(kind)
            continue
        facts.update(_facts(kind, theirs, own))
        found = list(_compare_one(kind, theirs, own, frozenset(facts), answers))
        yield from found
        if any(_ENDS.fullmatch(one.where) for one in found):
            return


def _facts(kind: str, theirs: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for name, seen in (("libcni", theirs), ("ours", own)):
        if seen.get("error"):
            yield f"{name}-failed-{kind}"


def _compare_one(
    kind: str,
    theirs: Mapping[str, Any],
    own: Mapping[str, Any],
    facts: frozenset[str],
    answers: Mapping[str, Any],
) -> Iterator[Difference]:
    def differ(aspect: str, libcni: str, ours: str) -> Difference:
        return Difference(where=f"{kind}/{aspect}", libcni=libcni, ours=ours, facts=facts)

    outcomes = [_outcome(seen) for seen in (theirs, own)]
    failed = [bool(seen.get("error")) for seen in (theirs, own)]
    if failed[0] != failed[1]:
        yield differ("outcome", *outcomes)  # the rest follows from it
        return
    if all(failed) and own["kind"] not in {"PluginFailed", "GcFailed"} and _titles(own) != _titles(theirs):
        yield differ("refused", *outcomes)
        return
    if all(failed) and own["kind"] == "PluginFailed":
        for key in ("code", "msg", "details"):
            values = [json.dumps(seen.get(key), ensure_ascii=False) for seen in (theirs, own)]
            if values[0] != values[1]:
                yield differ(key, *values)
    if not any(failed):
        for path, *pair in _differing(theirs.get("value"), own.get("value")):
            yield differ(f"value {path}", *pair)
    yield from _compare_executions(kind, theirs, own, differ, answers)
    yield from _compare_records(theirs, own, differ)


def _outcome(seen: Mapping[str, Any]) -> str:
    if not seen.get("error"):
        return "ok"
    kind = f" {seen['kind']}" if "kind" in seen else ""
    return f"error{kind} {seen['code']}: {seen['error']}"


def _compare_executions(
    kind: str, theirs: Mapping[str, Any], own: Mapping[str, Any], differ: _Differ, answers: Mapping[str, Any]
) -> Iterator[Difference]:
    libcni, ours = list(theirs.get("executions") or ()), list(own.get("executions") or ())
    if kind != "version":
        asked = [one for one in ours if one["environment"]["CNI_COMMAND"] == "VERSION"]
        if asked:
            yield differ("asked", "absent", "VERSION")
        ours = [one for one in ours if one not in asked]
    once: list[Any] = []
    for one in ours:
        fails = answers.get(one["plugin"], {}).get("DEL", {}).get("status")
        if fails and once and one == once[-1] and _title(one).startswith("DEL:"):
            yield differ(f"repeated {_title(one)}", "once", "again")
        else:
            once.append(one)
    titles = [[_title(execution) for execution in executions] for executions in (libcni, once)]
    if titles[0] != titles[1]:
        goes_on = titles[0] == titles[1][: len(titles[0])]
        yield differ("further" if goes_on else "order", *map(" ".join, titles))
    for one, other in zip(libcni, once, strict=False):
        if _title(one) != _title(other):
            return
        verb = one["environment"]["CNI_COMMAND"]
        environments = [
            {k: v for k, v in execution["environment"].items() if k != "PATH"} for execution in (one, other)
        ]
        for path, *pair in _differing(environments[0], environments[1]):
            yield differ(f"environment {verb} {path}", *pair)
        stdins = [json.loads(base64.b64decode(execution["stdin"])) for execution in (one, other)]
        if stdins[0]["cniVersion"] != stdins[1]["cniVersion"] and stdins[0]["cniVersion"]:
            versions = [json.dumps(stdin.pop("cniVersion")) for stdin in stdins]
            yield differ(f"version {verb}", *versions)
            stdins = [{key: value for key, value in stdin.items() if key != "prevResult"} for stdin in stdins]
        elif _is_converted(stdins[1]) and "prevResult" in stdins[0] and not _is_converted(stdins[0]):
            pair = [json.dumps(stdin.pop("prevResult")) for stdin in stdins]
            yield differ(f"converted {verb}", *pair)
        for path, *values in _differing(stdins[0], stdins[1]):
            yield differ(f"stdin {verb} {path}", *values)


def _is_converted(stdin: Mapping[str, Any]) -> bool:
    """Return whether a plugin receives a result, and in the version of the request."""
    previous = stdin.get("prevResult")
    return isinstance(previous, dict) and previous.get("cniVersion") in {None, stdin["cniVersion"]}


def _titles(seen: Mapping[str, Any]) -> list[str]:
    return [title for title in map(_title, seen.get("executions") or ()) if not title.startswith("VERSION")]


def _title(execution: Mapping[str, Any]) -> str:
    return f"{execution['environment']['CNI_COMMAND']}:{execution['plugin']}"


def _compare_records(theirs: Mapping[str, Any], own: Mapping[str, Any], differ: _Differ) -> Iterator[Difference]:
    libcni, ours = (seen.get("records") or {} for seen in (theirs, own))
    if libcni.keys() != ours.keys():
        yield differ("records", json.dumps(sorted(libcni)), json.dumps(sorted(ours)))
        return
    for name in libcni:
        pair = [parse_stored(base64.b64decode(records[name])) for records in (libcni, ours)]
        for path, *values in _differing(pair[0], pair[1]):
            yield differ(f"record {path}", *values)


def _differing(libcni: Any, ours: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the path and both values of each difference between two documents."""
    if isinstance(libcni, dict) and isinstance(ours, dict):
        for key in {**libcni, **ours}:
            yield from _differing(libcni.get(key, _ABSENT), ours.get(key, _ABSENT), f"{path}/{key}")
    elif isinstance(libcni, list) and isinstance(ours, list) and len(libcni) == len(ours):
        for index, pair in enumerate(zip(libcni, ours, strict=True)):
            yield from _differing(pair[0], pair[1], f"{path}/{index}")
    elif libcni is not ours and (isinstance(libcni, bool) or isinstance(ours, bool) or libcni != ours):
        yield path or "/", _shown(libcni), _shown(ours)


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
