# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON Schema, draft 2020-12: the schemas of this package and the validator that applies them.

A schema is named by its path below this package without `.json`: `cnm/CreateNetwork`, `state/endpoint`.
References between schemas are relative paths (`_defs.json#/$defs/networkId`).
"""

import posixpath
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cni_bridge_spec.quick_check import Check, compile_check
from cni_invoker.documents.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json

_ROOT: Final = Path(__file__).parent


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
    return as_object(_inline_references(name, _read(name)), name)


@dataclass(frozen=True, slots=True)
class Validator:
    """Validates documents with one schema; `accepts` is its quick check."""

    name: str
    schema: JsonObject
    accepts: Check

    def __call__(self, document: JsonValue) -> JsonObject:
        """Return a valid document.

        The first call with a document that the quick check does not accept imports a library. That takes a tenth of a
        second, so the daemon makes such calls in a thread.

        Raises:
            SchemaError: It violates the schema, or that cannot be found out.
        """
        if not self.accepts(document):
            try:
                from cni_bridge_spec.violation import find_error  # noqa: PLC0415 - see above
            except (ImportError, OSError) as exc:  # for example: there is no free descriptor to read the library with
                raise SchemaError("", f"it cannot be checked: {exc}") from exc
            error = find_error(self.schema, document)
            if error is not None:
                raise SchemaError(*error)
        return as_object(document, self.name)


@cache
def load_validator(name: str) -> Validator:
    """Return the validator of the schema called `name`, compiled once per process."""
    schema = load_schema(name)
    return Validator(name, schema, compile_check(schema))


def _inline_references(name: str, part: JsonValue) -> JsonValue:
    """Return a part of the schema called `name` with references resolved; they must not be recursive.

    A reference is a relative path (`_defs.json#/$defs/networkId`), or a place in the same file. Resolving it during
    validation would take most of the time.
    """
    if isinstance(part, list):
        return [_inline_references(name, item) for item in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref")
    if isinstance(reference, str):
        file, _, pointer = reference.partition("#")
        target = posixpath.normpath(posixpath.join(name, "..", file.removesuffix(".json"))) if file else name
        found = _read(target)
        for step in pointer.split("/")[1:]:  # RFC 6901, without escapes
            found = as_object(found, pointer)[step]
        return _inline_references(target, found)
    return {key: _inline_references(name, value) for key, value in part.items()}


@cache
def _read(name: str) -> JsonValue:
    return parse_json((_ROOT / f"{name}.json").read_bytes())
