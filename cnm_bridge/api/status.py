# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The status call of `cni-bridge status` on the plugin socket; the only call that is not part of Docker's protocol."""

from cni_bridge_spec import JsonObject
from cnm_bridge.api.rpc import Method
from cnm_bridge.status_report import Status

__all__ = ["status_method"]


def status_method(status: Status) -> Method:
    """Return the method, which takes no body and changes nothing."""

    async def answer(_: JsonObject, __: int) -> bytes:
        return await status.render()

    return Method(name="CniBridge.Status", schema=None, answer=answer, from_docker=False)
