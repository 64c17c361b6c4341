# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Migrates records of earlier schema versions to the current one; pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, as_object

Step = Mapping[str, Callable[[JsonObject], JsonObject]]
"""Kind of record, as in its key → what leads from its document to that of the next version, where it changes."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps from each schema version to the next.

    Attributes:
        steps: The first leads from version 1 to 2. A step of a release never changes again.
    """

    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        """The current schema version, to which the last step leads."""
        return len(self.steps) + 1

    def migrate(self, key: str, document: JsonValue, version: int) -> JsonObject:
        """Return a record's document in the current version; it is not validated.

        Args:
            key: Its key, e.g. `endpoint/4f2a`.
            document: The record.
            version: The schema version that it was written in.

        Raises:
            ValueError: The document is not a record of that version; a `JsonError` if a key has another type.
        """
        current = as_object(document, key)
        for step in self.steps[version - 1 :]:
            change = step.get(key.partition("/")[0])
            if change is not None:
                current = change(current)
        return current


MIGRATIONS: Final = Migrations()
"""Those of this release."""

SCHEMA_VERSION: Final = MIGRATIONS.version
