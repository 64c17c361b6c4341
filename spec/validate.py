# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON Schema, draft 2020-12: the schemas of this package and the validator that applies them.

This is the only module that imports jsonschema. A schema is named by its path below this package without `.json`:
`cnm/CreateNetwork`, `cni/list`, `state/endpoint`. References between schemas are relative paths
(`_defs.json#/$defs/networkId`).
"""

import importlib.resources
import posixpath
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from spec.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json
from spec.quick import Check, compile_check

__all__ = ["SchemaError", "Validator", "load_schema", "load_validator", "schema_names"]

Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]
Validator = Callable[[JsonValue], JsonObject]
"""Returns the document if it is valid, or raises `SchemaError`."""

_REASON_CHARACTERS = 200
_ERRORS = 20
"""How many errors are compared to find the most relevant one; a hostile document has millions."""


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


def schema_names() -> tuple[str, ...]:
    """Return the names of all schemas of this package, sorted."""
    root = importlib.resources.files("spec")
    return tuple(
        sorted(
            f"{folder.name}/{file.name.removesuffix('.json')}"
            for folder in root.iterdir()
            if folder.is_dir()
            for file in folder.iterdir()
            if file.name.endswith(".json")
        )
    )


@cache
def load_schema(name: str) -> JsonObject:
    """Return the schema called `name`, with every reference replaced by its target.

    Resolving references during validation would take most of the time.
    """
    return as_object(_inline(name, _read(name)), name)


@cache
def load_validator(name: str) -> Validator:
    """Return the validator of the schema called `name`, compiled once per process."""
    validator = _Patient(load_schema(name))

    def validate(document: JsonValue) -> JsonObject:
        error = best_match(islice(validator.iter_errors(document), _ERRORS))
        if error is not None:
            raise SchemaError(_path(error), _reason(error))
        return as_object(document, name)

    return validate


def _unless_larger(check: Keyword, limit: str) -> Keyword:
    """Wrap a check so that it skips a container larger than its schema's `limit`.

    The size is an error already, and checking millions of items takes minutes.
    """

    def checked(
        validator: object, value: object, instance: object, schema: Mapping[str, int]
    ) -> Iterable[ValidationError]:
        if not isinstance(instance, list | dict) or len(instance) <= schema.get(limit, sys.maxsize):
            yield from check(validator, value, instance, schema) or ()

    return checked


def _items(
    validator: Draft202012Validator, items: JsonObject | bool, instance: object, schema: Mapping[str, object]
) -> Iterable[ValidationError]:
    """Check the items of an array; jsonschema sees only those that fail the quick check."""
    check = _find_check(items) if isinstance(items, dict) and "prefixItems" not in schema else None
    if check is None:
        yield from Draft202012Validator.VALIDATORS["items"](validator, items, instance, schema) or ()
    elif isinstance(instance, list):
        for index, item in enumerate(instance):
            if not check(item):
                yield from validator.descend(item, items, path=index)


def _find_check(schema: JsonObject) -> Check | None:
    """Return the quick check of a part of a schema, compiled once; schemas live as long as the process."""
    if id(schema) not in _CHECKS:
        _CHECKS[id(schema)] = (schema, compile_check(schema))
    return _CHECKS[id(schema)][1]


_CHECKS: Final[dict[int, tuple[JsonObject, Check | None]]] = {}

_Patient: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "items": _unless_larger(_items, "maxItems"),
        "propertyNames": _unless_larger(Draft202012Validator.VALIDATORS["propertyNames"], "maxProperties"),
        "additionalProperties": _unless_larger(
            Draft202012Validator.VALIDATORS["additionalProperties"], "maxProperties"
        ),
    },
)


@cache
def _read(name: str) -> JsonValue:
    return parse_json((importlib.resources.files("spec") / f"{name}.json").read_bytes())


def _inline(name: str, part: JsonValue) -> JsonValue:
    """Return a part of the schema called `name` with references resolved; they must not be recursive."""
    if isinstance(part, list):
        return [_inline(name, item) for item in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref")
    if isinstance(reference, str):
        file, _, pointer = reference.partition("#")
        target = posixpath.normpath(posixpath.join(name, "..", file.removesuffix(".json"))) if file else name
        return _inline(target, _find(_read(target), pointer))
    return {key: _inline(name, value) for key, value in part.items()}


def _find(document: JsonValue, pointer: str) -> JsonValue:
    """Return the target of a JSON pointer (RFC 6901, without escapes)."""
    for step in pointer.split("/")[1:]:
        document = as_object(document, pointer)[step]
    return document


def _path(error: ValidationError) -> str:
    path = ""
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _reason(error: ValidationError) -> str:
    """Return jsonschema's message, truncated: it may contain the whole document."""
    message = error.message
    return message if len(message) <= _REASON_CHARACTERS else f"{message[:_REASON_CHARACTERS]}…"
