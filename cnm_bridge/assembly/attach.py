# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.attach`."""

from dataclasses import dataclass

from cni_bridge_state import AttachMode, EndpointId
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.attach.attacher import Attachers
from cnm_bridge.attach.move.attacher import MoveAttacher
from cnm_bridge.attach.move.detacher import MoveDetacher
from cnm_bridge.attach.new_records import NewRecords
from cnm_bridge.attach.sandbox_sync import SandboxSync
from cnm_bridge.scheduling.keyed_locks import KeyedLocks

__all__ = ["AttachRoom", "make_attach"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRoom:
    """The room `attach`, and the locks of endpoints, which all rooms above it share."""

    attachers: Attachers
    sandbox_sync: SandboxSync
    new_records: NewRecords
    locks: KeyedLocks[EndpointId]


def make_attach(resources: Resources) -> AttachRoom:
    """Return the objects of the room."""
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    sandbox_sync = SandboxSync(resources.store, resources.kernel, locks)
    detacher = MoveDetacher(resources.runtime, resources.kernel)
    return AttachRoom(
        attachers={AttachMode.MOVE: MoveAttacher(resources.runtime, resources.kernel, sandbox_sync, detacher)},
        sandbox_sync=sandbox_sync,
        new_records=NewRecords(resources.settings.run_dir, resources.boot_id),
        locks=locks,
    )
