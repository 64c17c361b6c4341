# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The errors of requests at the admin socket. Each has changed nothing."""

from enum import StrEnum

from cnm_bridge.core.errors import BridgeError


class ErrorKind(StrEnum):
    """What was wrong; programs decide by it, people read the text."""

    UNKNOWN_REQUEST = "unknownRequest"
    """This daemon has no such request: it is older or newer than the program that asks."""
    BAD_REQUEST = "badRequest"
    """A parameter is missing or malformed."""
    NOT_FOUND = "notFound"
    """Nothing has this name."""
    AMBIGUOUS = "ambiguous"
    """Several things have this name."""
    REFUSED = "refused"
    """It is not possible now, for example because it is in use."""
    INTERNAL = "internal"
    """A bug; the daemon's log has the details."""


class AdminError(BridgeError):
    """A request cannot be answered.

    Attributes:
        kind: The reason, for programs.
    """

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
