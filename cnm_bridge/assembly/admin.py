# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.admin`."""

from dataclasses import dataclass

from cnm_bridge.admin.http import Request
from cnm_bridge.admin.requests import admin_requests
from cnm_bridge.admin.status import Status
from cnm_bridge.assembly.endpoints import EndpointRoom
from cnm_bridge.assembly.recovery import RecoveryRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.assembly.teardown import TeardownRoom

__all__ = ["AdminRoom", "make_admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRoom:
    """The room `admin`.

    Attributes:
        requests: The requests that the daemon answers at the admin socket.
    """

    requests: tuple[Request, ...]


def make_admin(
    resources: Resources, *, teardown: TeardownRoom, recovery: RecoveryRoom, endpoints: EndpointRoom
) -> AdminRoom:
    """Return the objects of the room."""
    status = Status(resources.store, teardown.queue, recovery.reconciler, recovery.audit, endpoints.unpublished)
    return AdminRoom(requests=admin_requests(status))
