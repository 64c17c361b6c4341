# SPDX-License-Identifier: Apache-2.0
"""JSON Schema, draft 2020-12: checks for the keywords that our schemas use, and CNI's four documents.

A check takes 1 µs for an item such as a published port. The library jsonschema takes about 90 µs, and a request may
have ten thousand of them: that would block all other requests for a second. A check only decides whether a value is
valid. What is wrong with an `error`, `list`, `plugin` or `result` of CNI is reported here, in the words of jsonschema;
see docs/decisions/0021.
"""

import pkgutil
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, TypeGuard

from cni_invoker.documents.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json

__all__ = [
    "Check",
    "SchemaError",
    "Validator",
    "compile_check",
    "inline_references",
    "load_schema",
    "load_validator",
    "show",
]

Check = Callable[[object], bool]
"""Returns whether a value is valid."""

Validator = Callable[[JsonValue], JsonObject]
"""Returns the document if it is valid, or raises `SchemaError`."""

_ERRORS: Final = 20
"""How many errors are compared to find the one that is nearest to the root; a hostile document has millions."""

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
    check = _compile(schema)

    def validate(document: JsonValue) -> JsonObject:
        if not check(document):
            errors = islice(_errors(schema, document), _ERRORS)
            _, where, reason = min(errors, key=lambda error: error[0])
            raise SchemaError(where, reason)
        return as_object(document, name)

    return validate


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


def compile_check(schema: JsonObject) -> Check | None:
    """Return a check that agrees with JSON Schema, draft 2020-12; None if the schema uses an unsupported keyword."""
    try:
        return _compile(schema)
    except KeyError:
        return None


def _compile(schema: Mapping[str, Any]) -> Check:
    """Return the check of a schema; raise `KeyError` if it uses an unsupported keyword."""
    # The size goes first: of a container that is too large no item is looked at.
    keywords = sorted(schema.keys() - _ANNOTATIONS, key=lambda keyword: keyword not in _SIZES)
    checks = [_COMPILERS[keyword](schema[keyword], schema) for keyword in keywords]

    def check(value: object) -> bool:
        for one in checks:  # noqa: SIM110  # `all` with a generator takes twice as long
            if not one(value):
                return False
        return True

    return checks[0] if len(checks) == 1 else check


_TYPES: Final[Mapping[str, frozenset[type]]] = {
    "array": frozenset({list}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "null": frozenset({type(None)}),
    "number": frozenset({int, float}),
    "object": frozenset({dict}),
    "string": frozenset({str}),
}


def _type(kinds: str | list[str], _: object) -> Check:
    kinds = [kinds] if isinstance(kinds, str) else kinds
    types = frozenset[type]().union(*(_TYPES[kind] for kind in kinds))
    if "integer" in kinds:
        return lambda value: type(value) in types or (type(value) is float and value.is_integer())
    return lambda value: type(value) in types


def _required(names: list[str], _: object) -> Check:
    wanted = frozenset(names)
    return lambda value: not isinstance(value, dict) or wanted <= value.keys()


def _properties(schemas: Mapping[str, Any], _: object) -> Check:
    checks = {name: _compile(schema) for name, schema in schemas.items()}

    def check_all(value: object) -> bool:
        if isinstance(value, dict):
            for name, found in value.items():
                if name in checks and not checks[name](found):
                    return False
        return True

    return check_all


def _additional_properties(schema: Any, whole: Mapping[str, Any]) -> Check:  # noqa: ANN401  # an object, or false
    known = whole.get("properties", {}).keys()
    if schema is False:
        return lambda value: not isinstance(value, dict) or value.keys() <= known
    check = _compile(schema)
    return lambda value: (
        not isinstance(value, dict) or all(check(found) for name, found in value.items() if name not in known)
    )


def _property_names(schema: Mapping[str, Any], _: object) -> Check:
    check = _compile(schema)
    return lambda value: not isinstance(value, dict) or all(map(check, value))


def _items(schema: Mapping[str, Any], _: object) -> Check:
    check = _compile(schema)
    return lambda value: not isinstance(value, list) or all(map(check, value))


def _pattern(pattern: str, _: object) -> Check:
    search = re.compile(pattern).search
    return lambda value: not isinstance(value, str) or search(value) is not None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and type(value) is not bool


_ANNOTATIONS: Final = frozenset({"$comment", "$defs", "$schema", "description", "title"})
_SIZES: Final = frozenset({"maxItems", "maxProperties", "maxLength"})
_COMPILERS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Check]]] = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "items": _items,
    "pattern": _pattern,
    "minimum": lambda least, _: lambda value: not _is_number(value) or value >= least,
    "maximum": lambda most, _: lambda value: not _is_number(value) or value <= most,
    "minLength": lambda least, _: lambda value: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda most, _: lambda value: not isinstance(value, str) or len(value) <= most,
    "maxItems": lambda most, _: lambda value: not isinstance(value, list) or len(value) <= most,
    "maxProperties": lambda most, _: lambda value: not isinstance(value, dict) or len(value) <= most,
}
"""For each keyword what returns its check: called with its value, and with the schema that it is in."""


def _errors(
    schema: Mapping[str, Any], value: JsonValue, where: str = "", depth: int = 0
) -> Iterator[tuple[int, str, str]]:
    """Yield depth, place and reason of each violation of a schema of CNI."""
    kinds = schema.get("type")
    if kinds is not None and not _type(kinds, schema)(value):
        named = [kinds] if isinstance(kinds, str) else kinds
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


def show(value: object) -> str:
    """Return how an error shows a value: only the type of what may be a credential, or the whole document."""
    return _DESCRIPTIONS.get(type(value)) or repr(value)
