# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON Schema, draft 2020-12: the schemas of this package and the validator that applies them.

A schema is named by its path below this package without `.json`: `cnm/CreateNetwork`, `state/endpoint`.
References between schemas are relative paths (`_defs.json#/$defs/networkId`).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cni_bridge_spec.quick_check import Check, compile_check
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, as_object, parse_json
from cni_invoker.documents.schema import SchemaError, inline_references

_ROOT: Final = Path(__file__).parent


def schema_names() -> tuple[str, ...]:
    """Return the names of all schemas of this package, sorted."""
    return tuple(
        sorted(
            f"{folder.name}/{file.name.removesuffix('.json')}"
            for folder in _ROOT.iterdir()
            if folder.is_dir()
            for file in folder.iterdir()
            if file.name.endswith(".json")
        )
    )


@cache
def load_schema(name: str) -> JsonObject:
    """Return the schema called `name`, with every reference replaced by its target."""
    return as_object(inline_references(name, _read(name), _read), name)


@dataclass(frozen=True, slots=True)
class Validator:
    """Validates documents with one schema.

    Attributes:
        name: The schema's name.
        schema: The schema.
        accepts: Its quick check, which returns whether a document is valid.
    """

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


@cache
def _read(name: str) -> JsonValue:
    return parse_json((_ROOT / f"{name}.json").read_bytes())
