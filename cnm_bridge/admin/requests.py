# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of all requests at the admin socket."""

from collections.abc import Mapping

from cnm_bridge.admin.http import Request
from cnm_bridge.admin.status import Status

__all__ = ["admin_requests"]


def admin_requests(status: Status) -> tuple[Request, ...]:
    """Return the requests of version 1."""

    async def get_status(_: Mapping[str, str]) -> bytes:
        return await status.render()

    return (Request(path="/v1/status", answer=get_status),)
