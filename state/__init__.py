# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Durable state: networks and endpoints in LevelDB. Knows nothing of CNI, HTTP or netlink."""

from cni_bridge_state.errors import (
    ImportRefused,
    RecordDamaged,
    RecordNotFound,
    SchemaTooNew,
    StateError,
    StateLocked,
    StateUnusable,
    WrongPhase,
)
from cni_bridge_state.migrations import SCHEMA_VERSION
from cni_bridge_state.phases import TRANSITIONS, Phase
from cni_bridge_state.records import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    DnsOption,
    EndpointId,
    EndpointRecord,
    IdentityKind,
    IdentityRequest,
    NetworkId,
    NetworkRecord,
    PoolRecord,
    ProcessRecord,
    RequestedInterface,
    ReservationInput,
)
from cni_bridge_state.salvage.damage_report import Finding
from cni_bridge_state.store import Store

__all__ = [
    "SCHEMA_VERSION",
    "TRANSITIONS",
    "AttachMode",
    "AttachmentId",
    "AttachmentRecord",
    "DnsOption",
    "EndpointId",
    "EndpointRecord",
    "Finding",
    "IdentityKind",
    "IdentityRequest",
    "ImportRefused",
    "NetworkId",
    "NetworkRecord",
    "Phase",
    "PoolRecord",
    "ProcessRecord",
    "RecordDamaged",
    "RecordNotFound",
    "RequestedInterface",
    "ReservationInput",
    "SchemaTooNew",
    "StateError",
    "StateLocked",
    "StateUnusable",
    "Store",
    "WrongPhase",
]
