# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What must not be forgotten: networks and endpoints in LevelDB. Knows no CNI, no HTTP, no netlink."""

from state.errors import (
    ImportRefused,
    RecordDamaged,
    RecordNotFound,
    SchemaTooNew,
    StateError,
    StateLocked,
    StateUnusable,
    WrongPhase,
)
from state.migrations import SCHEMA_VERSION
from state.phases import TRANSITIONS, Phase
from state.records import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    PoolRecord,
    ProcessRecord,
    RequestedInterface,
)
from state.salvage.finding import Finding
from state.store import Store

__all__ = [
    "SCHEMA_VERSION",
    "TRANSITIONS",
    "AttachMode",
    "AttachmentId",
    "AttachmentRecord",
    "EndpointId",
    "EndpointRecord",
    "Finding",
    "ImportRefused",
    "NetworkId",
    "NetworkRecord",
    "Phase",
    "PoolRecord",
    "ProcessRecord",
    "RecordDamaged",
    "RecordNotFound",
    "RequestedInterface",
    "SchemaTooNew",
    "StateError",
    "StateLocked",
    "StateUnusable",
    "Store",
    "WrongPhase",
]
