# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How the fields of a dataclass are written in a JSON document, and read again with a check of each type; pure.

A `Fields` is the table of one dataclass. Each field has one name in the document and one `Form`:

```
_PROCESS = Fields(ProcessRecord, {"pid": ("pid", WHOLE), "started": ("started", WHOLE)})
```

A document is closed: all names of the table are there, and no other. An error names the field with those around it,
e.g. `attachment: identity: kind is not one of docker, kubernetes`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, cast

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    get_bool,
    get_int,
    get_ints,
    get_object,
    get_objects,
    get_str,
    get_strings,
)

T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)


def _unchanged(value: Any) -> JsonValue:  # noqa: ANN401 - a value that is JSON
    return cast("JsonValue", value)


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How a value is written.

    Attributes:
        parse: Takes a document and the name of a field, which is there and not null; returns its value. Raises a
            `JsonError` that names the field.
        render: Takes a value, and returns its JSON.
        is_optional: Whether the value may be None, which is written as null.
    """

    parse: Callable[[JsonObject, str], T]
    render: Callable[[T], JsonValue] = _unchanged
    is_optional: bool = False


TEXT: Final = Form(get_str)
WHOLE: Final = Form(get_int)
FLAG: Final = Form(get_bool)
DOCUMENT: Final = Form(get_object)
TEXTS: Final = Form(get_strings)
WHOLES: Final = Form(get_ints)


def optional(form: Form[T]) -> Form[T | None]:
    """Return the form of a value that may be None."""
    return cast("Form[T | None]", replace(form, is_optional=True))


def nested(parse: Callable[[JsonObject, str], T], render: Callable[[T], JsonValue] = _unchanged) -> Form[T]:
    """Return the form of a value that has names of its own: an error in it also names the field that it is in."""

    def parse_within(document: JsonObject, name: str) -> T:
        try:
            return parse(document, name)
        except JsonError as exc:
            raise JsonError(f"{name}: {exc}") from exc

    return Form(parse_within, render)


def converted(convert: Callable[[str], T]) -> Form[T]:
    """Return the form of a value that is written as `str` gives it, and read by a function that raises ValueError."""

    def parse(document: JsonObject, name: str) -> T:
        text = get_str(document, name)
        try:
            return convert(text)
        except ValueError as exc:
            raise JsonError(f"{name}: {exc}") from exc

    return Form(parse, str)


def one_of(kind: type[Choice]) -> Form[Choice]:
    """Return the form of an enumeration."""
    members = {member.value: member for member in kind}

    def parse(document: JsonObject, name: str) -> Choice:
        found = members.get(get_str(document, name))
        if found is None:
            raise JsonError(f"{name} is not one of {', '.join(members)}")
        return found

    return Form(parse, lambda member: member.value)


def refuse_unknown(document: JsonObject, names: Collection[str]) -> None:
    """Refuse a document with other fields than these.

    Raises:
        JsonError: It has one; the first is named.
    """
    unknown = document.keys() - set(names)
    if unknown:
        raise JsonError(f"{min(unknown)} is not a field of the record")


@dataclass(frozen=True, slots=True)
class Fields(Generic[T]):
    """The fields of a dataclass.

    Attributes:
        kind: The dataclass.
        forms: Attribute → its name in the document, its form; in the order of the document.
    """

    kind: type[T]
    forms: Mapping[str, tuple[str, Form[Any]]]

    def render(self, record: T) -> JsonObject:
        """Return the document of a record."""
        values = ((name, form, getattr(record, attribute)) for attribute, (name, form) in self.forms.items())
        return {name: None if value is None else form.render(value) for name, form, value in values}

    def parse(self, document: JsonObject) -> T:
        """Return the record of a document.

        Raises:
            JsonError: A field is missing, has another type, or is unknown.
        """
        values: dict[str, object] = {}
        for attribute, (name, form) in self.forms.items():
            if document.get(name) is not None:
                values[attribute] = form.parse(document, name)
            elif form.is_optional and name in document:
                values[attribute] = None
            else:
                raise JsonError(f"{name} is missing" if name not in document else f"{name} is null")
        if len(document) != len(values):
            refuse_unknown(document, [name for name, _ in self.forms.values()])
        return self.kind(**values)

    @property
    def one(self) -> Form[T]:
        """The form of a field that has such a record."""
        return nested(lambda document, name: self.parse(get_object(document, name)), self.render)

    @property
    def many(self) -> Form[tuple[T, ...]]:
        """The form of a field that has any number of such records."""
        return nested(
            lambda document, name: tuple(map(self.parse, get_objects(document, name))),
            lambda records: [self.render(record) for record in records],
        )
