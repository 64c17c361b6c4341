# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of all requests at the admin socket, and the stream of events (`spec/admin/event.json`, one a line)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cni_bridge_state.store import Store
from cnm_bridge.core.settings import ManagedNetwork, Settings, option_name
from cnm_bridge.server.admin.actions import Actions
from cnm_bridge.server.admin.checks import EndpointChecks
from cnm_bridge.server.admin.endpoints import EndpointDocuments
from cnm_bridge.server.admin.errors import AdminError, ErrorKind
from cnm_bridge.server.admin.http import Request
from cnm_bridge.server.admin.ipam import IpamDocuments
from cnm_bridge.server.admin.status import Status
from cnm_bridge.system.journal import Event, Journal

_AT_ONCE: Final = 64
"""How many of the kept events are rendered in one turn of the event loop."""


def admin_requests(
    *,
    store: Store,
    status: Status,
    endpoints: EndpointDocuments,
    checks: EndpointChecks,
    actions: Actions,
    ipam: IpamDocuments,
    journal: Journal,
) -> tuple[Request, ...]:
    """Return the requests of version 1."""

    async def get_state(_: Mapping[str, str]) -> bytes:
        return await asyncio.to_thread(lambda: b"".join(store.export_in_parts()))

    return (
        Request(path="/v1/status", answer=status.render),
        Request(path="/v1/endpoints", answer=endpoints.render_list),
        Request(path="/v1/endpoints/{id}", answer=endpoints.describe),
        Request(path="/v1/endpoints/{id}/check", answer=checks.check),
        Request(path="/v1/addresses", answer=ipam.render_list),
        Request(verb="POST", path="/v1/compare", answer=actions.compare),
        Request(verb="POST", path="/v1/retry", answer=actions.retry),
        Request(verb="POST", path="/v1/retry/{id}", answer=actions.retry),
        Request(path="/v1/events", answer=partial(open_events, journal), content_type="application/x-ndjson"),
        Request(path="/v1/state", answer=get_state),
        Request(path="/v1/leftovers", answer=actions.show),
        Request(verb="POST", path="/v1/leftovers/{id}/release", answer=actions.release),
    )


def settings_request(current: Callable[[], Settings]) -> Request:
    """Return the request for the settings and limits, by the names and with the values of the configuration file."""

    async def get_settings(_: Mapping[str, str]) -> JsonObject:
        settings = current()
        return {option_name(field.name): _to_json(getattr(settings, field.name)) for field in fields(settings)}

    return Request(path="/v1/settings", answer=get_settings)


def _to_json(value: object) -> JsonValue:
    match value:
        case bool() | int() | float() | None:
            return value
        case tuple():
            return [_to_json(item) for item in value]
        case ManagedNetwork():
            return {
                "name": value.name,
                "configuration": value.configuration,
                "locked": value.locked,
                "internal": value.internal,
                "options": dict(value.options),
            }
        case _:
            return str(value)


async def open_events(journal: Journal, parameters: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """Return the last `last` events, and with `follow=1` all that happen later.

    Raises:
        AdminError: `last` is not a number.
    """
    last = parameters.get("last", "0")
    if not last.isascii() or not last.isdigit():
        raise AdminError(ErrorKind.BAD_REQUEST, f"last must be a number, not {last!r}")
    return _stream(journal, int(last), follow=parameters.get("follow") == "1")


async def _stream(journal: Journal, last: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    kept = tuple(journal)[-last:] if last else ()
    following = journal.follow()
    try:
        for start in range(0, len(kept), _AT_ONCE):
            yield b"".join(map(_line, kept[start : start + _AT_ONCE]))
            await asyncio.sleep(0)
        if follow:
            async for event in following:
                yield _line(event)
    finally:
        await following.aclose()


def _line(event: Event) -> bytes:
    return render_json(event.as_json()) + b"\n"
