# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Durable state: networks and endpoints in LevelDB. Knows nothing of CNI, HTTP or netlink.

Here are the records, their phases and the errors. The store is `cni_bridge_state.store.Store`, which loads LevelDB.
"""

from cni_bridge_state.address_records import (
    AddressId,
    AddressPoolRecord,
    AddressRecord,
    AddressUse,
    PoolId,
    ReservationRecord,
)
from cni_bridge_state.errors import (
    ImportRefused,
    NotJoined,
    RecordDamaged,
    RecordNotFound,
    StateError,
    StateLocked,
    StateUnusable,
    UnknownSchema,
    WrongPhase,
)
from cni_bridge_state.phases import TRANSITIONS, AddressPhase, Phase
from cni_bridge_state.records import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    EndpointId,
    EndpointRecord,
    IdentityRequest,
    MemoryId,
    MemoryRecord,
    NetworkId,
    NetworkRecord,
    PoolRecord,
    PortRequest,
    ProcessRecord,
    RequestedInterface,
    ReservationInput,
    StickyRecord,
)

__all__ = [
    "TRANSITIONS",
    "AddressId",
    "AddressPhase",
    "AddressPoolRecord",
    "AddressRecord",
    "AddressUse",
    "AttachMode",
    "AttachmentId",
    "AttachmentRecord",
    "EndpointId",
    "EndpointRecord",
    "IdentityRequest",
    "ImportRefused",
    "MemoryId",
    "MemoryRecord",
    "NetworkId",
    "NetworkRecord",
    "NotJoined",
    "Phase",
    "PoolId",
    "PoolRecord",
    "PortRequest",
    "ProcessRecord",
    "RecordDamaged",
    "RecordNotFound",
    "RequestedInterface",
    "ReservationInput",
    "ReservationRecord",
    "StateError",
    "StateLocked",
    "StateUnusable",
    "StickyRecord",
    "UnknownSchema",
    "WrongPhase",
]
