# SPDX-License-Identifier: Apache-2.0
"""JSON Schema, draft 2020-12: CNI's four documents, `error`, `list`, `plugin` and `result`.

Errors have the words of the library jsonschema, which this package does not need
(docs/decisions/keep-the-library-apart.md). Only the keywords that these schemas use are known.
"""

import pkgutil
import posixpath
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from cni_invoker.documents.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json

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
    schema = load_schema(name)

    def validate(document: JsonValue) -> JsonObject:
        errors = islice(_errors(schema, document), _ERRORS)
        found = min(errors, key=lambda error: error[0], default=None)
        if found is not None:
            _, where, reason = found
            raise SchemaError(where, reason)
        return as_object(document, name)

    return validate


def inline_references(name: str, part: JsonValue, read: Callable[[str], JsonValue]) -> JsonValue:
    """Return a part of the schema called `name` with references resolved; they must not be recursive.

    A reference is a relative path (`_defs.json#/$defs/networkId`), or a place in the same file. Resolving it during
    validation would take most of the time.
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


def _errors(
    schema: Mapping[str, Any], value: JsonValue, where: str = "", depth: int = 0
) -> Iterator[tuple[int, str, str]]:
    """Yield depth, place and reason of each violation of a schema of CNI."""
    if not schema:  # anything is allowed
        return
    kinds = schema.get("type", ())
    named = [kinds] if isinstance(kinds, str) else kinds
    if named and not any(_is_of_type(value, kind) for kind in named):
        yield depth, where, f"{show(value)} is not of type {', '.join(map(repr, named))}"
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield depth, where, f"{key!r} is a required property"
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            yield from _errors(inner, item, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _errors(schema.get("items", {}), item, f"{where}[{index}]", depth + 1)
    elif value == "" and "minLength" in schema:
        yield depth, where, f"{show(value)} should be non-empty"


def _is_of_type(value: object, kind: str) -> bool:
    return type(value) is _TYPES[kind] or (kind == "integer" and type(value) is float and value.is_integer())


def show(value: object) -> str:
    """Return how an error shows a value: only the type of what may be a credential, or the whole document."""
    return _DESCRIPTIONS.get(type(value)) or repr(value)
