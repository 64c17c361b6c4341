# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Foreign documents in records: stored ones stay text, and are parsed when somebody reads them.

A result and a snapshot take most of the time that it takes to read a record, and five times the memory of their text.
Only the calls for their own endpoint read them. Each read gives a new document.
"""

from dataclasses import dataclass
from typing import overload

from spec import JsonObject, as_object, parse_json
from state.stored_value import line_of

__all__ = ["Document", "StoredDocument"]


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A line of a stored value.

    Attributes:
        value: The stored value, which the database holds as well.
        number: The line, counted from 0.
    """

    value: bytes
    number: int

    def parse(self) -> JsonObject | None:
        """Return the document, None for `null`."""
        document = parse_json(line_of(self.value, self.number))
        return None if document is None else as_object(document, f"line {self.number}")


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
        held = self.held(record)
        return held.parse() if isinstance(held, StoredDocument) else held

    def __set__(self, record: object, value: JsonObject | StoredDocument | None) -> None:
        record.__dict__[self._name] = value

    def held(self, record: object) -> JsonObject | StoredDocument | None:
        """Return what the field was given."""
        found: JsonObject | StoredDocument | None = record.__dict__[self._name]
        return found
