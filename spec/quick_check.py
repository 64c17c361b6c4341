# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fast checks for the keywords that the schemas of this package use; pure.

jsonschema takes about 90 µs for an item such as a published port, and a request may have ten thousand of them: that
would block all other requests for a second. A check from this module takes 1 µs. It only decides whether a value is
valid; for an invalid value, jsonschema produces the message.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, as_object

__all__ = ["TYPES", "Check", "compile_check"]

Check = Callable[[object], bool]
"""Returns whether a value is valid."""


def compile_check(schema: JsonObject) -> Check | None:
    """Return a check that agrees with JSON Schema, draft 2020-12; None if the schema uses an unsupported keyword."""
    checks: list[Check] = []
    # The size goes first: of a container that is too large no item is looked at.
    for keyword in sorted(schema.keys() - _ANNOTATIONS, key=lambda keyword: keyword not in _SIZES):
        if keyword == "additionalProperties":
            check = _additional_properties(schema[keyword], as_object(schema.get("properties", {}), "properties"))
        else:
            compiler = _COMPILERS.get(keyword)
            check = compiler(schema[keyword]) if compiler is not None else None
        if check is None:
            return None
        checks.append(check)
    return _all_of(checks)


def _all_of(checks: Sequence[Check]) -> Check:
    def check(value: object) -> bool:
        for one in checks:  # noqa: SIM110  # `all` with a generator takes twice as long
            if not one(value):
                return False
        return True

    return checks[0] if len(checks) == 1 else check


def _is_number(value: object) -> bool:
    return type(value) is int or type(value) is float


TYPES: Final[Mapping[str, Check]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": _is_number,
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
"""Whether a value has a type of JSON Schema."""


def _type(value: JsonValue) -> Check | None:
    if isinstance(value, str):
        return TYPES[value]
    if not isinstance(value, list):
        return None
    checks = [TYPES[name] for name in value]
    return lambda instance: any(check(instance) for check in checks)


def _required(names: JsonValue) -> Check | None:
    if not isinstance(names, list):
        return None
    wanted = frozenset(names)
    return lambda value: not isinstance(value, dict) or wanted <= value.keys()


def _properties(schemas: JsonValue) -> Check | None:
    found = as_object(schemas, "properties")
    checks = {name: _find_check(found[name]) for name in found}
    known = [(name, check) for name, check in checks.items() if check is not None]

    def check_all(value: object) -> bool:
        if isinstance(value, dict):
            for name, check in known:
                if name in value and not check(value[name]):
                    return False
        return True

    return check_all if len(known) == len(checks) else None


def _additional_properties(schema: JsonValue, known: JsonObject) -> Check | None:
    if schema is False:
        return lambda value: not isinstance(value, dict) or value.keys() <= known.keys()
    check = _find_check(schema)
    if check is None:
        return None
    return lambda value: (
        not isinstance(value, dict) or all(check(found) for name, found in value.items() if name not in known)
    )


def _property_names(schema: JsonValue) -> Check | None:
    check = _find_check(schema)
    return None if check is None else lambda value: not isinstance(value, dict) or all(map(check, value))


def _items(schema: JsonValue) -> Check | None:
    check = _find_check(schema)
    return None if check is None else lambda value: not isinstance(value, list) or all(map(check, value))


def _find_check(schema: JsonValue) -> Check | None:
    return compile_check(schema) if isinstance(schema, Mapping) else None


def _minimum(limit: JsonValue) -> Check | None:
    if not isinstance(limit, int):
        return None
    return lambda value: not isinstance(value, int | float) or value >= limit or type(value) is bool


def _maximum(limit: JsonValue) -> Check | None:
    if not isinstance(limit, int):
        return None
    return lambda value: not isinstance(value, int | float) or value <= limit or type(value) is bool


def _min_length(limit: JsonValue) -> Check | None:
    if not isinstance(limit, int):
        return None
    return lambda value: not isinstance(value, str) or len(value) >= limit


def _at_most(kind: type[Sized]) -> Callable[[JsonValue], Check | None]:
    """Return the compiler of a keyword that limits the size of values of a type."""

    def compile_limit(limit: JsonValue) -> Check | None:
        if not isinstance(limit, int):
            return None
        return lambda value: not isinstance(value, kind) or len(value) <= limit

    return compile_limit


def _pattern(pattern: JsonValue) -> Check | None:
    if not isinstance(pattern, str):
        return None
    search = re.compile(pattern).search
    return lambda value: not isinstance(value, str) or search(value) is not None


_ANNOTATIONS: Final = frozenset({"$comment", "$defs", "$schema", "description", "title"})
_SIZES: Final = frozenset({"maxItems", "maxProperties", "maxLength"})
_COMPILERS: Final[Mapping[str, Callable[[JsonValue], Check | None]]] = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "propertyNames": _property_names,
    "items": _items,
    "minimum": _minimum,
    "maximum": _maximum,
    "minLength": _min_length,
    "maxLength": _at_most(str),
    "maxItems": _at_most(list),
    "maxProperties": _at_most(dict),
    "pattern": _pattern,
}
