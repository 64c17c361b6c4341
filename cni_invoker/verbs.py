# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The operations of the CNI specification, by their words on the wire."""

from enum import StrEnum

__all__ = ["Verb"]


class Verb(StrEnum):
    """What a plugin is asked to do: the value of `CNI_COMMAND`."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"
