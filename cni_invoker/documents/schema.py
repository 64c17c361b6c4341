# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON Schema, draft 2020-12, for CNI's four documents: `error`, `list`, `plugin` and `result`.

A check of our own decides and explains; see docs/decisions/0021. References between schemas are relative paths
(`plugin.json#/$defs/name`).
"""

import pkgutil
import posixpath
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Final

from cni_invoker.documents.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json
from cni_invoker.documents.quick_check import TYPES, compile_check

__all__ = ["SchemaError", "Validator", "inline_references", "load_schema", "load_validator"]

Validator = Callable[[JsonValue], JsonObject]
"""Returns the document if it is valid, or raises `SchemaError`."""

_SHOWN_CHARACTERS: Final = 150
_ERRORS: Final = 20
"""How many errors are compared to find the one that is nearest to the root; a hostile document has millions."""


class SchemaError(JsonError):
    """A document violates its schema.

    Attributes:
        where: The place in the document, e.g. `plugins[1].type`; empty for the document itself.
        reason: What is wrong there.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where
        self.reason = reason


@cache
def load_schema(name: str) -> JsonObject:
    """Return the schema called `name`, with every reference replaced by its target."""
    return as_object(inline_references(name, _read(name), _read), name)


@cache
def load_validator(name: str) -> Validator:
    """Return the validator of the schema called `name`, compiled once per process."""
    schema = load_schema(name)
    check = compile_check(schema)
    assert check is not None, name  # noqa: S101  # these schemas have the keywords that it knows

    def validate(document: JsonValue) -> JsonObject:
        if not check(document):
            _, where, reason = min(islice(_errors(schema, document), _ERRORS), key=lambda error: error[0])
            raise SchemaError(where, reason)
        return as_object(document, name)

    return validate


def inline_references(name: str, part: JsonValue, read: Callable[[str], JsonValue]) -> JsonValue:
    """Return a part of the schema called `name` with references resolved; they must not be recursive.

    Resolving references during validation would take most of the time.

    Args:
        name: The schema's name.
        part: The part.
        read: Returns the schema of a name.
    """
    if isinstance(part, list):
        return [inline_references(name, item, read) for item in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref")
    if isinstance(reference, str):
        file, _, pointer = reference.partition("#")
        target = posixpath.normpath(posixpath.join(name, "..", file.removesuffix(".json"))) if file else name
        return inline_references(target, _find(read(target), pointer), read)
    return {key: inline_references(name, value, read) for key, value in part.items()}


def _find(document: JsonValue, pointer: str) -> JsonValue:
    """Return the target of a JSON pointer (RFC 6901, without escapes)."""
    for step in pointer.split("/")[1:]:
        document = as_object(document, pointer)[step]
    return document


@cache
def _read(name: str) -> JsonValue:
    data = pkgutil.get_data(__package__, f"schemas/{name}.json")
    return parse_json(data or b"")


def _errors(schema: JsonObject, value: JsonValue, where: str = "", depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """Yield depth, place and reason of each violation, in the words of the library jsonschema.

    It knows the keywords that the four schemas use.
    """
    wanted = schema.get("type", [])
    kinds = [wanted] if isinstance(wanted, str) else [str(kind) for kind in _items(wanted)]
    if kinds and not any(TYPES[kind](value) for kind in kinds):
        yield depth, where, f"{_show(value)} is not of type {', '.join(map(repr, kinds))}"
    if isinstance(value, dict):
        for key in _items(schema.get("required", [])):
            if key not in value:
                yield depth, where, f"{key!r} is a required property"
        known = as_object(schema.get("properties", {}), "properties")
        for key, item in value.items():
            inner = known.get(key, schema.get("additionalProperties"))
            if isinstance(inner, dict):
                yield from _errors(inner, item, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(value, list):
        inner = schema.get("items")
        for index, item in enumerate(value if isinstance(inner, dict) else ()):
            yield from _errors(as_object(inner, "items"), item, f"{where}[{index}]", depth + 1)
    elif value == "" and schema.get("minLength"):
        yield depth, where, f"{_show(value)} should be non-empty"


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _show(value: JsonValue) -> str:
    """Return a value, truncated: it may be the whole document."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"
