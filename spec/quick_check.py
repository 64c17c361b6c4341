# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Quick checks of JSON Schema, draft 2020-12: whether a value is valid, not what is wrong with it.

A check takes 1 µs for an item such as a published port. The library jsonschema takes about 90 µs, and a request may
have ten thousand of them: that would block all other requests for a second.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

Check = Callable[[object], bool]
"""Returns whether a value is valid."""


def compile_check(schema: Mapping[str, Any]) -> Check:
    """Return a check that agrees with JSON Schema, draft 2020-12.

    Raises:
        KeyError: The schema uses a keyword that is not known here.
    """
    # The size goes first: of a container that is too large no item is looked at.
    keywords = sorted(schema.keys() - _ANNOTATIONS, key=lambda keyword: keyword not in _SIZES)
    checks = [_COMPILERS[keyword](schema[keyword], schema) for keyword in keywords]

    def check(value: object) -> bool:
        for is_valid in checks:  # noqa: SIM110  # `all` with a generator takes twice as long
            if not is_valid(value):
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
    required = frozenset(names)
    return lambda value: not isinstance(value, dict) or required <= value.keys()


def _properties(schemas: Mapping[str, Any], _: object) -> Check:
    checks = {name: compile_check(schema) for name, schema in schemas.items()}

    def check_all(value: object) -> bool:
        if isinstance(value, dict):
            for name, item in value.items():
                if name in checks and not checks[name](item):
                    return False
        return True

    return check_all


def _additional_properties(schema: Any, whole: Mapping[str, Any]) -> Check:  # noqa: ANN401  # an object, or false
    known = whole.get("properties", {}).keys()
    if schema is False:
        return lambda value: not isinstance(value, dict) or value.keys() <= known
    check = compile_check(schema)
    return lambda value: (
        not isinstance(value, dict) or all(check(item) for name, item in value.items() if name not in known)
    )


def _property_names(schema: Mapping[str, Any], _: object) -> Check:
    check = compile_check(schema)
    return lambda value: not isinstance(value, dict) or all(map(check, value))


def _items(schema: Mapping[str, Any], _: object) -> Check:
    check = compile_check(schema)
    return lambda value: not isinstance(value, list) or all(map(check, value))


def _any_of(schemas: list[Mapping[str, Any]], _: object) -> Check:
    checks = [compile_check(schema) for schema in schemas]
    return lambda value: any(check(value) for check in checks)


def _enum(values: list[str | None], _: object) -> Check:
    return lambda value: (value is None or isinstance(value, str)) and value in values


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
    "anyOf": _any_of,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": lambda least, _: lambda value: not _is_number(value) or value >= least,
    "maximum": lambda most, _: lambda value: not _is_number(value) or value <= most,
    "minLength": lambda least, _: lambda value: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda most, _: lambda value: not isinstance(value, str) or len(value) <= most,
    "maxItems": lambda most, _: lambda value: not isinstance(value, list) or len(value) <= most,
    "maxProperties": lambda most, _: lambda value: not isinstance(value, dict) or len(value) <= most,
}
"""For each keyword what returns its check: called with its value, and with the schema that it is in."""
