# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Describes what is wrong with an invalid document, using jsonschema; no other module imports it.

Documents that the quick check accepts do not need it. Importing it takes a tenth of a second and 2 MB, so the first
document that the quick check does not accept does so.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from cni_bridge_spec.quick_check import compile_check
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, show

Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

_REASON_CHARACTERS: Final = 200
_ERRORS: Final = 20
"""How many errors are compared to find the most relevant one; a hostile document has millions."""


def find_error(schema: JsonObject, document: JsonValue) -> tuple[str, str] | None:
    """Return where a document violates a schema, e.g. `plugins[1].type`, and how; None if it is valid."""
    error = best_match(islice(_Validator(schema).iter_errors(document), _ERRORS))
    return None if error is None else (_path(error), _reason(error))


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
    validator: Draft202012Validator, items: JsonObject, instance: object, _: object
) -> Iterable[ValidationError]:
    """Check the items of an array; jsonschema sees only those that fail the quick check."""
    check = compile_check(items)
    for index, item in enumerate(instance if isinstance(instance, list) else ()):
        if not check(item):
            yield from validator.descend(item, items, path=index)


_Validator: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "items": _unless_larger(_items, "maxItems"),
        "propertyNames": _unless_larger(Draft202012Validator.VALIDATORS["propertyNames"], "maxProperties"),
        "additionalProperties": _unless_larger(
            Draft202012Validator.VALIDATORS["additionalProperties"], "maxProperties"
        ),
    },
)


def _path(error: ValidationError) -> str:
    path = ""
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _reason(error: ValidationError) -> str:
    """Return jsonschema's message without a value that may be a credential; truncated."""
    message = error.message
    if "propertyNames" not in error.absolute_schema_path:  # a name is shown, a value is not
        message = message.replace(repr(error.instance), show(error.instance), 1)
    return message if len(message) <= _REASON_CHARACTERS else f"{message[:_REASON_CHARACTERS]}…"
