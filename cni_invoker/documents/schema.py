# SPDX-License-Identifier: Apache-2.0
"""JSON Schema, draft 2020-12, for CNI's four documents: `error`, `list`, `plugin` and `result`.

It knows the keywords that these schemas use; see docs/decisions/0021.
"""

import pkgutil
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from cni_invoker.documents.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json

__all__ = ["SchemaError", "Validator", "inline_references", "load_schema", "load_validator", "show"]

Validator = Callable[[JsonValue], JsonObject]
"""Returns the document if it is valid, or raises `SchemaError`."""

_ERRORS: Final = 20
"""How many errors are compared to find the one that is nearest to the root; a hostile document has millions."""

_TYPES: Final[Mapping[str, type]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "object": dict,
    "string": str,
}
_DESCRIPTIONS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
}


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
    return as_object(inline_references("cni", {"$ref": f"#/$defs/{name}"}, _read), name)


@cache
def load_validator(name: str) -> Validator:
    """Return the validator of the schema called `name`, which is read now."""
    rule = _compile(load_schema(name))

    def validate(document: JsonValue) -> JsonObject:
        errors = tuple(islice(_errors(rule, document), _ERRORS))
        if errors:
            _, where, reason = min(errors, key=lambda error: error[0])
            raise SchemaError(where, reason)
        return as_object(document, name)

    return validate


class _Rule(NamedTuple):
    """The keywords of a schema, ready for use."""

    kinds: Sequence[str]
    types: frozenset[type]
    required: Sequence[str]
    properties: Mapping[str, "_Rule"]
    others: "_Rule | None"
    items: "_Rule | None"
    is_nonempty: bool


def _compile(schema: Mapping[str, Any]) -> _Rule:
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    others, items = schema.get("additionalProperties"), schema.get("items")
    return _Rule(
        kinds=kinds,
        types=frozenset(_TYPES[kind] for kind in kinds),
        required=schema.get("required", ()),
        properties={key: _compile(inner) for key, inner in schema.get("properties", {}).items()},
        others=_compile(others) if others else None,
        items=_compile(items) if items else None,
        is_nonempty="minLength" in schema,
    )


def inline_references(name: str, part: JsonValue, read: Callable[[str], JsonValue]) -> JsonValue:
    """Return a part of the schema called `name` with references resolved; they must not be recursive.

    A reference is a relative path (`_defs.json#/$defs/networkId`), or a place in the same file. Resolving it during
    validation would take most of the time.

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
    data = pkgutil.get_data(__package__, f"{name}.json")
    return parse_json(data or b"")


def _errors(rule: _Rule, value: JsonValue, where: str = "", depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """Yield depth, place and reason of each violation, in the words of the library jsonschema."""
    kind = int if type(value) is float and value.is_integer() else type(value)
    if rule.types and kind not in rule.types:
        yield depth, where, f"{show(value)} is not of type {', '.join(map(repr, rule.kinds))}"
    if isinstance(value, dict):
        for key in rule.required:
            if key not in value:
                yield depth, where, f"{key!r} is a required property"
        for key, item in value.items():
            inner = rule.properties.get(key, rule.others)
            # A string needs no call of its own, which would take most of the time.
            if inner is not None and (type(item) is not str or str not in inner.types or inner.is_nonempty):
                yield from _errors(inner, item, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(value, list) and rule.items is not None:
        for index, item in enumerate(value):
            yield from _errors(rule.items, item, f"{where}[{index}]", depth + 1)
    elif value == "" and rule.is_nonempty:
        yield depth, where, f"{show(value)} should be non-empty"


def show(value: object) -> str:
    """Return how an error shows a value: only the type of what may be a credential, or the whole document."""
    return _DESCRIPTIONS.get(type(value)) or repr(value)
