# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fields of records that stay text when a record is read, and are parsed when they are first needed.

The attachment, a result and a snapshot take most of the time that it takes to read a record, and five times the memory
of their text. A start needs none of them.

- `Later`: the value is kept once it has been parsed;
- `Document`: a foreign document, which only the calls for its own endpoint read. The most recent ones are kept: equal
  texts give the same object, which must not be changed.
"""

from collections import OrderedDict
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, overload

from cni_bridge_spec import JsonObject, as_object, parse_json
from cni_bridge_state.stored_value import line_of

__all__ = ["Document", "Later", "Stored", "StoredDocument"]

Value_co = TypeVar("Value_co", covariant=True)
Value = TypeVar("Value")

_RECENT: Final = 64
"""How many documents are kept. Those of all endpoints would take five times the memory of their texts."""


class StoredDocument(NamedTuple):
    """A line of a stored value; a tuple is made in a third of the time of a dataclass.

    Attributes:
        value: The stored value, which the database holds as well.
        number: The line, counted from 0.
    """

    value: bytes
    number: int

    def parse(self) -> JsonObject | None:
        """Return the document, None for `null`."""
        text = line_of(self.value, self.number)
        found = _recent.get(text)
        if found is None:
            document = parse_json(text)
            if document is None:
                return None
            found = _keep(text, as_object(document, "a stored document"))
        else:
            _recent.move_to_end(text)
        return found

    @classmethod
    def made_of(cls, document: JsonObject | None, value: bytes, number: int) -> "StoredDocument":
        """Return the line that has been rendered from a document, which `parse` will return without parsing it."""
        stored = cls(value, number)
        if document is not None:
            _keep(line_of(value, number), document)
        return stored


_recent: Final[OrderedDict[bytes, JsonObject]] = OrderedDict()


def _keep(text: bytes, document: JsonObject) -> JsonObject:
    _recent[text] = document
    if len(_recent) > _RECENT:
        _recent.popitem(last=False)
    return document


class Stored(Protocol[Value_co]):
    """The text of a value."""

    def parse(self) -> Value_co:
        """Return the value."""
        ...


class Later(Generic[Value]):
    """A field of a record (a descriptor): set to a value or to its stored text, it returns the value.

    Args:
        kind: The type of the values, which distinguishes them from stored text.
    """

    def __init__(self, kind: type[Value]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, record: object | None, owner: type) -> Value:
        if record is None:  # dataclasses asks so for the default
            raise AttributeError(self._name)
        held: Value | Stored[Value] = record.__dict__[self._name]
        if isinstance(held, self._kind):
            return held
        parsed: Value = held.parse()  # type: ignore[union-attr]  # mypy does not narrow by a type in a variable
        record.__dict__[self._name] = parsed
        return parsed

    def __set__(self, record: object, value: Value | Stored[Value]) -> None:
        record.__dict__[self._name] = value


class Document:
    """A field of a record (a descriptor): is given a document, or where one is stored, and gives the document."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    @overload
    def __get__(self, record: None, owner: type) -> None: ...
    @overload
    def __get__(self, record: object, owner: type) -> JsonObject | None: ...
    def __get__(self, record: object | None, owner: type) -> JsonObject | None:
        if record is None:  # dataclasses asks so for the default
            return None
        held: JsonObject | StoredDocument | None = record.__dict__[self._name]
        return held.parse() if isinstance(held, StoredDocument) else held

    def __set__(self, record: object, value: JsonObject | StoredDocument | None) -> None:
        record.__dict__[self._name] = value
