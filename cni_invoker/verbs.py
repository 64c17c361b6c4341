# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The operations of the CNI specification, as they are called on the wire."""

from enum import StrEnum

__all__ = ["Verb"]


class Verb(StrEnum):
    """The operation that a plugin is to perform: the value of `CNI_COMMAND`."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"
