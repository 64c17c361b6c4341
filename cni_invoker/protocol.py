# SPDX-License-Identifier: Apache-2.0
"""What the CNI specification calls by name or number: the operations and the error codes."""

from enum import IntEnum, StrEnum
from typing import Final


class Verb(StrEnum):
    """The operation that a plugin is to perform: the value of `CNI_COMMAND`."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"

    @property
    def since(self) -> str:
        """The first version of the specification that has it, e.g. `1.1.0`."""
        return _LATER.get(self, "0.1.0")


_LATER: Final = {Verb.VERSION: "0.2.0", Verb.CHECK: "0.4.0", Verb.GC: "1.1.0", Verb.STATUS: "1.1.0"}
"""The verbs that the first specification did not have."""


class ErrorCode(IntEnum):
    """The kind of an error (CNI SPEC "Error", well-known codes). Plugin-specific codes start at 100."""

    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    """The container is unknown to the plugin: it needs no DEL."""
    INVALID_ENVIRONMENT = 4
    """A variable is missing or invalid, or a name or path that would become one."""
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_CONFIGURATION = 7
    INVALID_NAMESPACE = 8
    """Not in the specification: the namespace is the plugin's own, as in the reference implementation."""
    TRY_AGAIN_LATER = 11
    NOT_AVAILABLE = 50
    """STATUS: no ADD can succeed."""
    LIMITED_CONNECTIVITY = 51
    """The same, and existing attachments may not work as they should."""
    INTERNAL = 999
    """Not in the specification: any other error, as in the reference implementation."""
