# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachers as the daemon makes them."""

from cni_bridge_state import AttachMode, Store
from cni_invoker import Runtime
from cnm_bridge.attach.attacher import Attachers
from cnm_bridge.attach.move.attacher import MoveAttacher
from cnm_bridge.attach.move.detacher import MoveDetacher
from cnm_bridge.attach.sandbox_sync import SandboxSync
from cnm_bridge.kernel import Kernel
from cnm_bridge.scheduling.keyed_locks import KeyedLocks


def make_attachers(store: Store, runtime: Runtime, kernel: Kernel) -> Attachers:
    """Make an attacher for each mode."""
    sandbox_sync = SandboxSync(store, kernel, KeyedLocks())
    return {AttachMode.MOVE: MoveAttacher(runtime, kernel, sandbox_sync, MoveDetacher(runtime, kernel))}
