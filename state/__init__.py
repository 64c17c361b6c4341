# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Durable state: networks and endpoints in LevelDB. Knows nothing of CNI, HTTP or netlink."""

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
from state.salvage.damage_report import Finding
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
