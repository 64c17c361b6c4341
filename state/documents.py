# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records as JSON documents, in the form that follows from their dataclasses; pure.

A field has its name in camel case (`host_port` is `hostPort`), and the form of its type: an address is a text, a record
is an object, bytes are hexadecimal digits. A document is closed: all fields are there, and no other. An error names the
field with those around it, e.g. `attachment: mode is not one of move, hybrid, direct`.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, reduce
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from operator import or_
from types import NoneType
from typing import Any, Final, TypeVar, get_args

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

R = TypeVar("R")

_Arguments = tuple[tuple[str, str], ...]


def render(record: Any) -> JsonObject:  # noqa: ANN401 - any dataclass
    """Return the document of a record."""
    values = ((field, getattr(record, field.attribute)) for field in _fields_of(type(record)))  # type: ignore[arg-type]  # hashable
    return {field.name: None if value is None else field.render(value) for field, value in values}


def parse(kind: type[R], document: JsonObject) -> R:
    """Return the record of a document.

    Raises:
        JsonError: A field is missing, has another type, or is unknown.
    """
    values: dict[str, Any] = {}
    fields = _fields_of(kind)  # type: ignore[arg-type]  # hashable
    for field in fields:
        if document.get(field.name) is not None:
            values[field.attribute] = field.parse(document, field.name)
        elif field.is_optional and field.name in document:
            values[field.attribute] = None
        else:
            raise JsonError(f"{field.name} is missing" if field.name not in document else f"{field.name} is null")
    if len(document) != len(values):
        _refuse_unknown(document, [field.name for field in fields])
    return kind(**values)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a record, and how it is read and written.

    Attributes:
        attribute: Its name in the record.
        name: Its name in the document.
        is_optional: Whether it may be None, which is written as null.
        parse: Takes a document and the name of a field that is there; raises a `JsonError` that names it.
        render: Returns the JSON of a value.
    """

    attribute: str
    name: str
    is_optional: bool
    parse: Callable[[JsonObject, str], Any]
    render: Callable[[Any], JsonValue]


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...]:  # noqa: ANN401 - a dataclass
    fields = []
    for field in dataclasses.fields(kind):
        first, *rest = field.name.split("_")
        kinds = get_args(field.type)
        is_optional = NoneType in kinds
        form = reduce(or_, (inner for inner in kinds if inner is not NoneType)) if is_optional else field.type
        name = first + "".join(map(str.capitalize, rest))
        fields.append(_Field(field.name, name, is_optional, *_form_of(form)))
    return tuple(fields)


def _form_of(kind: Any) -> tuple[Callable[[JsonObject, str], Any], Callable[[Any], JsonValue]]:  # noqa: ANN401 - a type
    kind = getattr(kind, "__supertype__", kind)  # of a `NewType`
    if kind in _PLAIN:
        return _PLAIN[kind], lambda value: value
    if kind in _TEXTS:
        return _reads(_TEXTS[kind]), bytes.hex if kind is bytes else str
    if kind == _Arguments:
        return _within(_parse_arguments), lambda args: [{"key": key, "value": value} for key, value in args]
    if items := get_args(kind):  # a tuple of records
        item = items[0]
        return (
            _within(lambda document, name: tuple(parse(item, part) for part in get_objects(document, name))),
            lambda records: list(map(render, records)),
        )
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _within(lambda document, name: parse(kind, get_object(document, name))), render
    return _chooses(kind), str


def _within(parse_field: Callable[[JsonObject, str], R]) -> Callable[[JsonObject, str], R]:
    """Return what reads a field with names of its own: an error in it also names the field."""

    def read(document: JsonObject, name: str) -> R:
        try:
            return parse_field(document, name)
        except JsonError as exc:
            raise JsonError(f"{name}: {exc}") from exc

    return read


def _reads(convert: Callable[[str], R]) -> Callable[[JsonObject, str], R]:
    """Return what reads a text with a function that raises ValueError."""

    def read(document: JsonObject, name: str) -> R:
        text = get_str(document, name)
        try:
            return convert(text)
        except ValueError as exc:
            raise JsonError(f"{name}: {exc}") from exc

    return read


def _chooses(kind: type[StrEnum]) -> Callable[[JsonObject, str], StrEnum]:
    members = {member.value: member for member in kind}

    def read(document: JsonObject, name: str) -> StrEnum:
        member = members.get(get_str(document, name))
        if member is None:
            raise JsonError(f"{name} is not one of {', '.join(members)}")
        return member

    return read


def _parse_options(document: JsonObject, name: str) -> Mapping[str, str]:
    options = get_object(document, name)
    return {option: get_str(options, option) for option in options}


def _parse_arguments(document: JsonObject, name: str) -> _Arguments:
    return tuple(map(_parse_argument, get_objects(document, name)))


def _parse_argument(argument: JsonObject) -> tuple[str, str]:
    key, value = get_str(argument, "key"), get_str(argument, "value")
    _refuse_unknown(argument, ("key", "value"))
    return key, value


def _refuse_unknown(document: JsonObject, names: Collection[str]) -> None:
    unknown = document.keys() - set(names)
    if unknown:
        raise JsonError(f"{min(unknown)} is not a field of the record")


_PLAIN: Final[Mapping[Any, Callable[[JsonObject, str], Any]]] = {
    str: get_str,
    int: get_int,
    bool: get_bool,
    JsonObject: get_object,
    tuple[str, ...]: get_strings,
    tuple[int, ...]: get_ints,
    Mapping[str, str]: _within(_parse_options),
}
"""The types that are JSON."""
_TEXTS: Final[Mapping[Any, Callable[[str], Any]]] = {
    bytes: bytes.fromhex,
    IPv4Interface: IPv4Interface,
    IPv6Interface: IPv6Interface,
    IPv4Address | IPv6Address: ip_address,
    IPv4Interface | IPv6Interface: ip_interface,
    IPv4Network | IPv6Network: ip_network,
}
"""The types whose JSON is a text, the one that `str` gives or hexadecimal digits, and what reads it."""
