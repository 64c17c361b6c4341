# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's calls to a daemon in this process, without HTTP."""

from cni_bridge_spec import JsonObject
from cnm_bridge.assembly import Daemon

__all__ = ["call"]


async def call(daemon: Daemon, method: str, body: JsonObject, *, service: str = "NetworkDriver") -> JsonObject:
    """Make a call of a service as Docker does, and return its reply."""
    (answer,) = (found.answer for found in daemon.methods if found.name == f"{service}.{method}")
    assert callable(answer)
    reply = await answer(body, 0)
    assert not isinstance(reply, bytes)
    return reply
