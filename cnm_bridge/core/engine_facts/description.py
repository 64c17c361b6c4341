# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the engine says of itself in `GET /info`; pure."""

from dataclasses import dataclass
from typing import Final, Self

from cni_bridge_spec import JsonObject, get_str, get_strings

_ROOTLESS: Final = "name=rootless"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """An engine.

    Attributes:
        version: E.g. `28.5.2+dfsg3`.
        is_rootless: Whether it runs in a user namespace, without root's rights on the host.
    """

    version: str
    is_rootless: bool

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the answer to `GET /info`.

        Raises:
            JsonError: A key is missing or its value has another type.
        """
        return cls(
            version=get_str(document, "ServerVersion"),
            is_rootless=_ROOTLESS in get_strings(document, "SecurityOptions"),
        )
