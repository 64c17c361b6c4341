# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of all requests at the admin socket."""

import asyncio
from collections.abc import Mapping

from cni_bridge_state.store import Store
from cnm_bridge.server.admin.actions import Actions
from cnm_bridge.server.admin.checks import EndpointChecks
from cnm_bridge.server.admin.endpoints import EndpointDocuments
from cnm_bridge.server.admin.events import EventStream
from cnm_bridge.server.admin.http import Request
from cnm_bridge.server.admin.status import Status

__all__ = ["admin_requests"]


def admin_requests(
    *,
    store: Store,
    status: Status,
    endpoints: EndpointDocuments,
    checks: EndpointChecks,
    actions: Actions,
    events: EventStream,
) -> tuple[Request, ...]:
    """Return the requests of version 1."""

    async def get_status(_: Mapping[str, str]) -> bytes:
        return await status.render()

    async def get_state(_: Mapping[str, str]) -> bytes:
        return await asyncio.to_thread(lambda: b"".join(store.export_in_parts()))

    return (
        Request(path="/v1/status", answer=get_status),
        Request(path="/v1/endpoints", answer=endpoints.render_list),
        Request(path="/v1/endpoints/{id}", answer=endpoints.describe),
        Request(path="/v1/endpoints/{id}/check", answer=checks.check),
        Request(verb="POST", path="/v1/compare", answer=actions.compare),
        Request(verb="POST", path="/v1/retry", answer=actions.retry),
        Request(verb="POST", path="/v1/retry/{id}", answer=actions.retry),
        Request(path="/v1/events", answer=events.open, content_type="application/x-ndjson"),
        Request(path="/v1/state", answer=get_state),
        Request(path="/v1/leftovers", answer=actions.show),
        Request(verb="POST", path="/v1/leftovers/{id}/release", answer=actions.release),
    )
