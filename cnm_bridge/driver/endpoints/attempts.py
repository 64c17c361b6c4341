# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins of CreateEndpoint and Join in every attach mode, undoes a failure, and repeats a refused attempt.

There is one rule for an ADD that a plugin refuses: it waits for the pending teardowns of its CNI network, because an
endpoint that is being deleted may hold what a new one needs, tears down what is dead there, and is tried again, three
times at most. What calls themselves make and undo does not count. If it asks for addresses that it may do without
(`cni.sticky`), it is tried again without them. dockerd holds a lock of the network meanwhile, so all waits of a call
end after ten seconds. See docs/retries.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.core.errors import Refused, endpoint_option
from cnm_bridge.core.link_state import IpAddress
from cnm_bridge.core.wire import EndpointReference
from cnm_bridge.driver.teardown.address_owners import describe_holders
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.teardown import first_pending_plugin
from cnm_bridge.system.scheduling import KeyedLocks

_WHAT_TO_DO: Final = (
    "try again when `cni-bridge status` no longer shows that endpoint; "
    "if it stays, its plugin hangs or fails: see the log"
)

WAIT_LIMIT_S: Final = 10.0
"""Limit for all waits of one call. dockerd delays other calls for the network meanwhile."""

_RETRIES: Final = 3
"""Each wait before one takes its share of the time that is left: a DEL that hangs does not keep what others free."""

_BRIDGE_WITHOUT_MAC: Final = "could not set bridge's mac"
"""`bridge` fails so once on a bridge without ports and without an address, as an ADD leaves it whose IPAM plugin has
failed, or that was killed (https://github.com/containernetworking/plugins/issues/620). It has set the address by then,
so the next ADD succeeds. There is no code for it."""


def wait_deadline() -> float:
    """Return when all waits of a call end that begins now, in event loop time."""
    return asyncio.get_running_loop().time() + WAIT_LIMIT_S


@dataclass(slots=True)
class Contention:
    """The waits of one call for a new endpoint on a CNI network."""

    dead: DeadEndpoints
    network: str
    deadline: float
    """When all waits end, in event loop time."""
    endpoint: EndpointReference
    addresses: Collection[IpAddress]
    """The addresses that it asks for."""
    may_ask_for_none: bool = False
    """Whether later attempts may ask for no addresses. The waits for these end when half of the time is over."""
    asks_for_none: bool = field(default=False, init=False)
    """Whether attempts ask for no addresses from now on."""
    _end: float = field(init=False)
    _retries: int = field(default=_RETRIES, init=False)
    _ended: int = field(init=False)

    def __post_init__(self) -> None:
        self._end = self.deadline
        if self.may_ask_for_none:
            self.deadline -= self.remaining_s / 2
        self.note_attempt()

    @property
    def remaining_s(self) -> float:
        """The seconds until all waits end; 0 afterwards."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    async def wait_for_addresses(self) -> None:
        """Wait until no endpoint with one of the addresses is being deleted.

        `firewall` finds its rules by address: the DEL of such an endpoint would remove the rules of the new one. A
        teardown that has failed is tried once more. If it fails again, or if its plugin hung, it is not waited for;
        `address_owners.py` handles it. Raises `Refused` if such an endpoint is still being deleted when the time is up.
        """
        wanted = frozenset(map(str, self.addresses))
        holders = self.dead.store.endpoints_with_address(wanted)
        again = (record.id for record in holders if not self.dead.teardowns.has_hung(record.id))
        if await self._wait_or_retry([record.id for record in holders], again):
            return
        for record in holders:
            if record.id in self.dead.teardowns.leaving:
                if self._ask_for_none():
                    return
                shared = ", ".join(sorted(wanted.intersection(record.addresses)))
                raise Refused(f"address {shared} is not free yet: {self._describe(record)}; {_WHAT_TO_DO}")

    async def wait_for_attachment(self, attachment_id: AttachmentId) -> None:
        """Wait until no endpoint has an attachment, which has the same ID after each restart of its container.

        A teardown of its holder that has failed is tried once more. A holder that is dead is torn down. Raises
        `Refused` if an endpoint has it when the time is up.
        """
        holder = self.dead.store.find_attachment(attachment_id)
        if holder is None:
            return
        await self._wait_or_retry([holder.id], [holder.id])
        current = self.dead.store.find_endpoint(holder.id)
        if current is not None and not self.dead.teardowns.is_pending(holder.id):
            await self.dead.tear_down([current], self.deadline)
        remaining = self.dead.store.find_endpoint(holder.id)
        if remaining is None:
            return
        what = "DHCP client identifier"
        if self.dead.teardowns.is_pending(holder.id):
            raise Refused(f"the {what} is not free yet: {self._describe(remaining)}; {_WHAT_TO_DO}")
        remedy = f"give each container its own with {endpoint_option('cni.dhcp.client-id', 'NAME')}"
        raise Refused(f"endpoint {holder.id} has the same {what}; {remedy}")

    def note_attempt(self) -> None:
        """Note that an attempt begins now: teardowns that end from now on may let the next one succeed."""
        self._ended = self.dead.teardowns.pending.ended[self.network]

    async def wait_or_raise(self, exc: PluginFailed) -> None:
        """Return when another attempt may succeed after a plugin refused an ADD; raise `exc` if none may.

        `Refused` is the same, with who has a requested address, or an endpoint that may hold what was refused.
        """
        if _BRIDGE_WITHOUT_MAC in exc.msg and self._retries == _RETRIES:
            self._retries -= 1
            return
        if await self._wait_before_retry() or self._ask_for_none():
            return
        holders = describe_holders(self.dead.store, self.network, self.addresses, self.endpoint)
        reason = holders or self._describe_pending()
        if not reason:
            raise exc
        raise Refused(f"{exc}; {reason}") from exc

    def _ask_for_none(self) -> bool:
        """Ask for no addresses from now on; return whether that changes anything."""
        if not self.may_ask_for_none or self.asks_for_none:
            return False
        self.asks_for_none, self.addresses = True, ()
        self.deadline, self._retries = self._end, _RETRIES
        return True

    async def _wait_before_retry(self) -> bool:
        """Wait until another attempt may succeed; return whether one may.

        One may if `_has_ended`, also by an attempt that failed, because plugins may have freed something before. Dead
        endpoints are searched for when no teardown is pending, or when the pending ones have freed nothing.
        """
        while self._retries and self.remaining_s:
            pending, is_first = self._pending, self._retries == _RETRIES
            until = asyncio.get_running_loop().time() + self.remaining_s / self._retries
            self._retries -= 1
            if not self._has_ended and not (pending and is_first):
                await self.dead.begin_on(self.network, self.endpoint.endpoint_id, until)
                pending = self._pending
            await self._in_time(self.dead.teardowns.wait_left(pending), until)
            if self._has_ended or not pending:
                return self._has_ended
        return False

    @property
    def _pending(self) -> frozenset[EndpointId]:
        return self.dead.teardowns.leaving_network(self.network) - {self.endpoint.endpoint_id}

    @property
    def _has_ended(self) -> bool:
        """Whether an attempt to tear down another endpoint of the network has ended since `note_attempt`."""
        return self._ended != self.dead.teardowns.pending.ended[self.network]

    async def _wait_or_retry(self, holders: Collection[EndpointId], again: Iterable[EndpointId]) -> bool:
        """Wait until none of the holders is being deleted; return whether that was so in time.

        What made a DEL fail may be gone, and the pause before its next attempt may be minutes. So the failed ones in
        `again` are tried once more.
        """
        if not holders:
            return True
        return await self._in_time(self.dead.teardowns.wait_left(holders)) and await self._in_time(
            self.dead.teardowns.retry(again, go_first=True)
        )

    async def _in_time(self, wait: Awaitable[None], until: float | None = None) -> bool:
        """Return whether `wait` completes before a moment in event loop time, by default the end of the time limit."""
        try:
            async with asyncio.timeout_at(self.deadline if until is None else until):
                await wait
        except TimeoutError:
            return False
        return True

    def _describe_pending(self) -> str:
        for record in filter(None, map(self.dead.store.find_endpoint, sorted(self._pending))):
            return f"perhaps what it needs is not free yet: {self._describe(record)}; {_WHAT_TO_DO}"
        return ""

    def _describe(self, record: EndpointRecord) -> str:
        plugin = first_pending_plugin(record)
        what = f"plugin {plugin} has not completed its DEL" if plugin else "its record has not been removed"
        error = self.dead.teardowns.find_error(record.id)
        why = "" if error is None else f" (last error: {error})"
        return f"endpoint {record.id} is being deleted, {what}{why}"


Attempt = Callable[[EndpointRecord | None], Awaitable[EndpointRecord]]
"""Makes one attempt, under the endpoint's lock. It receives the record from before the first one, None if there was
none, waits for what is known to be needed, calls `Contention.note_attempt`, and runs the plugins."""


@dataclass(slots=True, eq=False)
class Call:
    """A call under way; `is_stopped` if Docker has deleted its endpoint since it began."""

    endpoint_id: EndpointId
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts to create or join an endpoint."""

    store: Store
    dead: DeadEndpoints
    locks: KeyedLocks[EndpointId]
    _calls: dict[EndpointId, set[Call]] = field(default_factory=dict, init=False)

    def stop(self, endpoint_id: EndpointId) -> None:
        """Let the calls under way for an endpoint make no further attempt, because Docker deletes it.

        An attempt that is running continues. Later calls are not affected.
        """
        for call in self._calls.get(endpoint_id, ()):
            call.is_stopped = True

    @contextmanager
    def under_way(self, endpoint_id: EndpointId) -> Iterator[Call]:
        """Yield a call for an endpoint, which `stop` finds during the block, also before the first attempt."""
        call = Call(endpoint_id)
        calls = self._calls.setdefault(endpoint_id, set())
        calls.add(call)
        try:
            yield call
        finally:
            calls.remove(call)
            if not calls:
                del self._calls[endpoint_id]

    async def make(self, call: Call, contention: Contention, attempt: Attempt) -> EndpointRecord:
        """Make attempts until one succeeds; return its record.

        What was done before the first attempt, such as a reservation, is kept between two attempts. After an error
        nothing is left of the endpoint, if plugins have run. The undo goes on in the background if it takes long or
        fails. An attempt of another call is never undone.

        The error is that of the last attempt; `Refused` may be the same, with an endpoint that may hold what was
        refused, or say that Docker has deleted the endpoint before the first attempt.
        """
        before: EndpointRecord | None = None
        error: Exception = Refused(f"endpoint {call.endpoint_id} has been deleted")
        while True:
            async with self.locks.hold(call.endpoint_id):
                if call.is_stopped:
                    raise error
                stored = self.store.find_endpoint(call.endpoint_id)
                is_kept = _is_kept(stored, before)
                before = before if is_kept else stored
                try:
                    return await attempt(before)
                except Exception as exc:  # begin to undo it before another call can see what it has left
                    error, refusal = exc, _find_refusal(exc, before)
                    is_changed = is_kept or self.store.find_endpoint(call.endpoint_id) != stored
                    keep = None if refusal is None else before
                    if not is_changed or not await self.dead.teardowns.begin_undo(call.endpoint_id, keep=keep):
                        raise
            limit_s, may_succeed = 0.0, False
            try:
                if refusal is not None:
                    await contention.wait_or_raise(refusal)  # beside the undo
                    limit_s, may_succeed = contention.remaining_s, not call.is_stopped
            except (PluginFailed, Refused) as exc:
                error = exc
            is_undone = await self.dead.teardowns.wait_undone(call.endpoint_id, limit_s)
            if not is_undone or not may_succeed:
                if is_undone:
                    await self._undo_kept(call.endpoint_id, before)
                raise error

    async def _undo_kept(self, endpoint_id: EndpointId, before: EndpointRecord | None) -> None:
        async with self.locks.hold(endpoint_id):
            is_kept = _is_kept(self.store.find_endpoint(endpoint_id), before)
            is_undoing = is_kept and await self.dead.teardowns.begin_undo(endpoint_id)
        if is_undoing:
            await self.dead.teardowns.wait_undone(endpoint_id)


def _is_kept(stored: EndpointRecord | None, before: EndpointRecord | None) -> bool:
    """Return whether a stored record is what an undo has kept for the next attempt."""
    return stored is not None and before is not None and stored == replace(before, phase=Phase.JOINING)


def _find_refusal(exc: Exception, before: EndpointRecord | None) -> PluginFailed | None:
    """Return the error of an attempt if a plugin refused it, and if an undo can keep what was there before.

    After Leave, an endpoint still has what the plugins of an earlier Join made.
    """
    can_be_kept = before is None or before.added_plugins == int(before.attachment.has_reservation)
    return exc if isinstance(exc, PluginFailed) and exc.exit_status is not None and can_be_kept else None
