# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All requests at the admin socket: the table, those that change something, and the stream of events."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cnm_bridge.core.settings import Settings, option_name
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.documents import IpamDocuments, Status, describe_pending
from cnm_bridge.server.admin.endpoints import EndpointChecks, EndpointDocuments
from cnm_bridge.server.admin.http import AdminError, ErrorKind, Request
from cnm_bridge.system.journal import Event, Journal

_PATIENCE_S: Final = 45.0
"""Time limit of a request that changes something; the work continues in the background. Clients wait for a minute."""

_AT_ONCE: Final = 64
"""How many of the kept events are rendered in one turn of the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The requests that change something: a round of comparison, teardowns that run again, addresses released."""

    teardowns: TeardownQueue
    reconciler: Reconciler
    ipam: IpamDocuments

    async def compare(self, _: Mapping[str, str]) -> JsonObject:
        """Run a round of comparison now, which removes leftovers; return what is left (`spec/admin/cleanup.json`)."""
        is_complete = True
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.reconciler.wait_round()
        except TimeoutError:
            is_complete = False
        return self._left(is_complete=is_complete)

    async def retry(self, parameters: Mapping[str, str]) -> JsonObject:
        """Run failed teardowns now, all or that of the endpoint `id`; return what is left.

        Raises:
            AdminError: The endpoint has no failed teardown.
        """
        failed = [failed_id for failed_id, pending in self.teardowns.all.items() if pending.attempts]
        if "id" in parameters:
            endpoint_id = EndpointId(parameters["id"])
            if endpoint_id not in failed:
                raise AdminError(ErrorKind.NOT_FOUND, f"endpoint {endpoint_id} has no failed teardown")
            failed = [endpoint_id]
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.teardowns.retry(failed)
        return self._left()

    async def release(self, parameters: Mapping[str, str]) -> JsonObject:
        """Release the address `id`; return what is left.

        Raises:
            AdminError: There is none.
            Refused, KernelError: It is in use, or that cannot be determined.
        """
        if not await self.ipam.release(parameters["id"]):
            raise AdminError(
                ErrorKind.NOT_FOUND,
                f"there is no unclaimed address {parameters['id']}; `cni-bridge cleanup` shows those that there are",
            )
        return self._left()

    async def show(self, _: Mapping[str, str]) -> JsonObject:
        """Return what is left, as it was found last."""
        return self._left()

    def _left(self, *, is_complete: bool = True) -> JsonObject:
        return {
            "isComplete": is_complete,
            "isEngineUp": bool(self.reconciler.engine_is_up),
            "pendingTeardowns": describe_pending(self.teardowns),
            "unclaimedAddresses": self.ipam.unclaimed_addresses(),
        }


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
        return await asyncio.to_thread(b"".join, store.export_in_parts())

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
        Request(path="/v1/cleanup", answer=actions.show),
        Request(verb="POST", path="/v1/addresses/{id}/release", answer=actions.release),
    )


def settings_request(settings: Settings) -> Request:
    """Return the request for the settings and limits, by the names and with the values of the configuration file."""

    async def get_settings(_: Mapping[str, str]) -> JsonObject:
        return {option_name(field.name): _to_json(getattr(settings, field.name)) for field in fields(settings)}

    return Request(path="/v1/settings", answer=get_settings)


def _to_json(value: object) -> JsonValue:
    match value:
        case bool() | int() | float() | None:
            return value
        case tuple():
            return [_to_json(item) for item in value]
        case _:
            return str(value)


async def open_events(journal: Journal, parameters: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """Return the last `last` events, and with `follow=1` all that happen later: one `spec/admin/event.json` a line.

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
