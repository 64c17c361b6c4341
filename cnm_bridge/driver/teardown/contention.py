# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Resolves contention: a new endpoint needs an address or a port that an endpoint being deleted, or dead, still holds.

DeleteEndpoint is answered before the plugins have run (docs/decisions, 13). Most later calls do not notice, because
plugins can run ADD and DEL for several containers concurrently. A new endpoint that needs a specific address waits for
the endpoint that holds it. If a plugin refuses an ADD, the new endpoint waits for endpoints that are being deleted, and
tries again; if that does not help, dead endpoints are torn down (`driver/teardown/evictions.py`). dockerd holds a lock
of the network meanwhile, so there is one time limit for all these waits.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Final

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord
from cni_invoker import PluginFailed
from cnm_bridge.core.errors import Refused, endpoint_option
from cnm_bridge.core.link_state import IpAddress
from cnm_bridge.core.wire import EndpointReference
from cnm_bridge.driver.teardown.address_holders import describe_holders
from cnm_bridge.driver.teardown.evictions import Evictions
from cnm_bridge.driver.teardown.teardown import first_pending_plugin

_WHAT_TO_DO: Final = (
    "try again when `cni-bridge status` no longer shows that endpoint; "
    "if it stays, its plugin hangs or fails: see the log"
)

WAIT_LIMIT_S: Final = 10.0
"""Limit for all waits of one call. dockerd delays other calls for the network meanwhile."""

_RETRY_S: Final = 0.5
"""The part of them that evictions leave, so that another attempt can follow."""

_BRIDGE_WITHOUT_MAC: Final = "could not set bridge's mac"
"""`bridge` fails so once on a bridge without ports and without an address, as an ADD leaves it whose IPAM plugin has
failed, or that was killed (https://github.com/containernetworking/plugins/issues/620). It has set the address by then,
so the next ADD succeeds. There is no code for it."""

_BRIEFLY_S: Final = 1.0
"""Limit for what may not help: endpoints of other networks seldom hold what was refused, and a DEL may hang."""


def wait_deadline() -> float:
    """Return when all waits of a call end that begins now, in event loop time."""
    return asyncio.get_running_loop().time() + WAIT_LIMIT_S


class Contention:
    """The waits of one new endpoint on a CNI network.

    Args:
        evictions: Tears down dead endpoints.
        network: The CNI network.
        deadline: When all waits end, in event loop time.
        endpoint: The endpoint.
        addresses: The addresses that it asks for.
    """

    def __init__(
        self,
        evictions: Evictions,
        network: str,
        deadline: float,
        endpoint: EndpointReference,
        addresses: Collection[IpAddress] = (),
    ) -> None:
        self._evictions = evictions
        self._store = evictions.store
        self._teardowns = evictions.teardowns
        self._network = network
        self.deadline = deadline
        self._endpoint = endpoint
        self._addresses = frozenset(addresses)
        self._here: set[EndpointId] = set()
        self._elsewhere: set[EndpointId] = set()
        self._retried: set[EndpointId] = set()
        self._has_been_refused = False
        self._has_evicted_all = False
        self._has_repeated_bridge = False
        self._evicted = evictions.count(network)

    async def wait_for_addresses(self) -> None:
        """Wait until no endpoint with one of the addresses is being deleted.

        `firewall` finds its rules by address: the DEL of such an endpoint would remove the rules of the new one. A
        teardown that has failed is tried once more. If it fails again, or if its plugin hung, it is not waited for;
        `address_owners.py` handles it.

        Raises:
            Refused: An endpoint with such an address is still being deleted when the time is up.
        """
        wanted = frozenset(map(str, self._addresses))
        holders = [record.id for record in self._store.endpoints_with_address(wanted)]
        if await self._wait_or_retry(holders, but_not=self._teardowns.has_hung):
            return
        for record in self._records(self._teardowns.leaving.intersection(holders)):
            shared = ", ".join(sorted(wanted.intersection(record.addresses)))
            raise Refused(f"address {shared} is not free yet: {self._describe(record)}; {_WHAT_TO_DO}")

    async def wait_for_attachment(self, attachment_id: AttachmentId) -> None:
        """Wait until no endpoint has an attachment, which has the same ID after each restart of its container.

        A teardown of its holder that has failed is tried once more. A holder that is dead is torn down.

        Raises:
            Refused: An endpoint has it when the time is up.
        """
        holder = self._store.find_attachment(attachment_id)
        if holder is not None:
            remedy = f"give each container its own with {endpoint_option('cni.dhcp.client-id', 'NAME')}"
            await self.wait_for_holder(holder.id, "DHCP client identifier", remedy)

    async def wait_for_holder(self, endpoint_id: EndpointId, what: str, remedy: str) -> None:
        """Wait until an endpoint is gone that has what only one can have; as `wait_for_attachment`.

        Args:
            endpoint_id: The endpoint.
            what: What it has, for the error.
            remedy: What to do, for the error.

        Raises:
            Refused: The endpoint exists when the time is up.
        """
        await self._wait_or_retry([endpoint_id])
        holder = self._store.find_endpoint(endpoint_id)
        if holder is not None and not self._teardowns.is_pending(endpoint_id):
            await self._evictions.evict_dead([holder], self._remaining_s)
        remaining = self._store.find_endpoint(endpoint_id)
        if remaining is None:
            return
        if self._teardowns.is_pending(endpoint_id):
            raise Refused(f"the {what} is not free yet: {self._describe(remaining)}; {_WHAT_TO_DO}")
        raise Refused(f"endpoint {endpoint_id} has the same {what}; {remedy}")

    def note_leaving(self) -> None:
        """Note before each attempt which endpoints are being deleted, at the first one, and how many were evicted.

        If a plugin refuses the ADD, one of these may have been the reason.
        """
        self._evicted = self._evictions.count(self._network)
        if not self._has_been_refused:
            self._remember_leaving()

    async def extend_undo_s(self, endpoint_id: EndpointId) -> float:
        """Return how much longer a call waits for the undo of a refused attempt, which takes long already, in seconds.

        It is the rest of the time of all waits if another attempt may succeed afterwards: while others of the network
        are being torn down, if some have been since the attempt, or if dead ones are found. These are torn down beside
        the undo.
        """
        leaving = self._teardowns.leaving
        others = (self._of_network(leaving) | (self._here - leaving)) - {endpoint_id}
        return max(0.0, self._remaining_s) if others or await self._evict_dead() else 0.0

    async def wait_or_raise(self, exc: PluginFailed) -> None:
        """Return when another attempt may succeed after a plugin refused an ADD and the attempt was undone.

        Raises:
            PluginFailed: `exc`: there is nothing to wait for.
            Refused: The same, with who has a requested address, or an endpoint that may hold what was refused.
        """
        if self._is_bridge_ready_now(exc) or await self._wait_before_retry():
            return
        holders = describe_holders(self._store, self._network, self._addresses, self._endpoint)
        reason = holders or self._describe_leaving()
        if not reason:
            raise exc
        raise Refused(f"{exc}; {reason}") from exc

    def _is_bridge_ready_now(self, exc: PluginFailed) -> bool:
        """Return whether `bridge` has failed because its bridge was not complete, for the first time in this call."""
        is_first = _BRIDGE_WITHOUT_MAC in exc.msg and not self._has_repeated_bridge
        self._has_repeated_bridge |= is_first
        return is_first

    async def _wait_before_retry(self) -> bool:
        """Wait, after a plugin refused the ADD, until another attempt may succeed.

        Another attempt may succeed when, in this order:

        1. since the last attempt, dead endpoints have been torn down, by this call or by another one;
        2. an endpoint has left the CNI network within a second, or an attempt to tear it down has failed;
        3. dead endpoints have been found, and one of them has been torn down (tried until there are none);
        4. an endpoint has left the CNI network later, or an attempt to tear it down has failed;
        5. endpoints have left other networks within a second (tried once).

        Endpoints that begin to leave after the first refusal do not count: on a busy host the wait would never end.

        Returns:
            False if there is nothing left to wait for, or the time is up.
        """
        if not self._has_been_refused:
            self._remember_leaving()
            self._has_been_refused = True
        if self._has_evicted() or await self._wait_any_left(self._here, _BRIEFLY_S) or self._has_evicted():
            return True
        if not self._has_evicted_all and self._remaining_s > 0:
            if await self._evict_dead():
                return True
            self._has_evicted_all = True
        return await self._wait_any_left(self._here) or await self._wait_elsewhere()

    def _describe_leaving(self) -> str:
        """Return a message that names an endpoint still being deleted on the CNI network, "" if there is none."""
        for record in self._records(self._of_network(self._teardowns.leaving)):
            return f"perhaps what it needs is not free yet: {self._describe(record)}; {_WHAT_TO_DO}"
        return ""

    async def _evict_dead(self) -> bool:
        """Tear down the dead endpoints of the network until one is gone; return whether one is, in time."""
        here = [record for record in self._store.endpoints() if record.attachment.network == self._network]
        limit_s = self._remaining_s - _RETRY_S
        is_any_gone = limit_s > 0 and await self._evictions.evict_dead(
            here, limit_s, leaving=self._here, or_leftovers_of=self._network
        )
        self._here |= self._of_network(self._evictions.find_evicting())  # one of them may have what the first had not
        return is_any_gone

    def _has_evicted(self) -> bool:
        """Return whether dead endpoints have been torn down since the last attempt, for any call, and time is left."""
        return self._remaining_s > 0 and self._evicted != self._evictions.count(self._network)

    def _remember_leaving(self) -> None:
        leaving = self._teardowns.leaving
        here = self._of_network(leaving)
        self._here |= here
        self._elsewhere |= leaving - here - self._here

    async def _wait_any_left(self, endpoints: set[EndpointId], limit_s: float = math.inf) -> bool:
        """Wait until one of these endpoints has left, and remove those that have; return whether one has in time."""
        if not endpoints or self._remaining_s <= 0:
            return False
        limit = min(self.deadline, asyncio.get_running_loop().time() + limit_s)
        if not await self._in_time(self._teardowns.wait_any_left(endpoints), limit):
            return False
        endpoints &= self._teardowns.leaving
        return True

    async def _wait_elsewhere(self) -> bool:
        """Wait up to a second, once, for endpoints that leave other networks; return whether any has left.

        The wait is short because most refusals have nothing to do with them.
        """
        elsewhere, self._elsewhere = self._elsewhere, set()
        if not elsewhere or self._remaining_s <= 0:
            return False
        limit = min(self.deadline, asyncio.get_running_loop().time() + _BRIEFLY_S)
        await self._in_time(self._teardowns.wait_left(elsewhere, go_first=False), limit)
        return not elsewhere <= self._teardowns.leaving

    async def _wait_or_retry(
        self, holders: Collection[EndpointId], but_not: Callable[[EndpointId], bool] = lambda _: False
    ) -> bool:
        """Wait until none of these endpoints is being deleted; return whether that was so in time.

        What made a DEL fail may be gone, and the pause before its next attempt may be minutes. So each teardown that
        has failed is tried once more, except those that `but_not` excludes.
        """
        if not await self._in_time(self._teardowns.wait_left(holders)):
            return False
        failed = [one for one in holders if self._teardowns.find_error(one) is not None and not but_not(one)]
        again = frozenset(failed) - self._retried
        self._retried |= again
        return not again or await self._in_time(self._teardowns.retry(again, go_first=True))

    async def _in_time(self, wait: Awaitable[None], limit: float | None = None) -> bool:
        """Return whether `wait` completes before a moment in event loop time, by default the end of the time limit."""
        try:
            async with asyncio.timeout_at(self.deadline if limit is None else limit):
                await wait
        except TimeoutError:
            return False
        return True

    @property
    def _remaining_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def _of_network(self, endpoints: Iterable[EndpointId]) -> frozenset[EndpointId]:
        return frozenset(record.id for record in self._records(endpoints) if record.attachment.network == self._network)

    def _records(self, endpoints: Iterable[EndpointId]) -> Iterator[EndpointRecord]:
        """Return the records of these endpoints, without those that are gone."""
        return filter(None, map(self._store.find_endpoint, endpoints))

    def _describe(self, record: EndpointRecord) -> str:
        plugin = first_pending_plugin(record)
        what = f"plugin {plugin} has not completed its DEL" if plugin else "its record has not been removed"
        error = self._teardowns.find_error(record.id)
        why = "" if error is None else f" (last error: {error})"
        return f"endpoint {record.id} is being deleted, {what}{why}"
