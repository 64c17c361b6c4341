# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests and releases of pools and addresses, as Docker makes them of its IPAM driver.

```
RequestPool       store the pool
RequestAddress    store PENDING ─▶ ADD of the IPAM plugin ─▶ store RESERVED ─▶ reply
ReleaseAddress    store RELEASING ─▶ DEL (repeated until it completes) ─▶ remove the record
```

RequestAddress tells neither network nor endpoint, so nothing here depends on one. No call asks the engine: it holds
locks meanwhile (moby #50586).
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface, ip_network
from typing import Final

import structlog

from cni_bridge_state import (
    AddressId,
    AddressPhase,
    AddressPoolRecord,
    AddressRecord,
    AddressUse,
    PoolId,
    ReservationRecord,
)
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed, Runtime, run_preflight
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.ipam.address import is_assignable, plan_address, refuse_address, take_address
from cnm_bridge.core.ipam.sections import (
    NAME_IT,
    OPTION,
    ChosenPool,
    IpamSection,
    choose_pool,
    parse_pool_id,
    refuse_overlap,
    render_pool_id,
    section_name,
)
from cnm_bridge.core.ipam.wire import ReleaseAddress, RequestAddress, RequestPool
from cnm_bridge.core.link_state import IpAddress, IpInterface
from cnm_bridge.core.lists.address_ranges import overlap
from cnm_bridge.driver.ipam.releases import PluginRuns, Releases
from cnm_bridge.driver.ipam.sections import Sections
from cnm_bridge.driver.teardown.address_owners import describe_address, describe_holders
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_DIGITS: Final = 4
"""The bytes that tell pools of one subnet apart."""

_ID_BYTES: Final = 32

_REPEATED: Final = 8
_REPEATED_WITHIN_S: Final = 2.0
"""A repetition takes some milliseconds; an operator does not make as many networks of one section in this time."""

_PATIENCE_S: Final = 10.0
"""How long a call waits for pending DELs of other addresses."""

_UNDO_S: Final = 2.0
"""How long a refused call waits for its own undo, which continues in the background."""


class RepeatedRequests:
    """Notices that Docker requests the same pool again and again.

    For a network without `--subnet`, libnetwork repeats RequestPool as long as the pool overlaps a route or a name
    server of the host (moby `libnetwork/ipams/remote/remote.go`, RequestPool; before 27 `network.go`,
    requestPoolHelper). An IPAM section has one subnet, so that would never end.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Hashable, deque[float]] = {}

    def is_endless(self, request: Hashable) -> bool:
        """Note a request; return whether it is one of a loop."""
        now = self._clock()
        self._seen = {key: times for key, times in self._seen.items() if now - times[-1] < _REPEATED_WITHIN_S}
        times = self._seen.setdefault(request, deque(maxlen=_REPEATED))
        times.append(now)
        if len(times) < _REPEATED or now - times[0] > _REPEATED_WITHIN_S:
            return False
        del self._seen[request]
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamService:
    """Gives Docker pools and addresses."""

    store: Store
    sections: Sections
    runtime: Runtime
    plugins: PluginRuns
    releases: Releases
    _locks: KeyedLocks[tuple[str, IpAddress]] = field(default_factory=KeyedLocks, init=False)
    _repeated: RepeatedRequests = field(default_factory=RepeatedRequests, init=False)

    async def request_pool(self, request: RequestPool) -> AddressPoolRecord:
        """Store a pool of the section that the request names.

        Raises:
            BadOption: An option is missing or unknown.
            Refused: There is no such section, or it does not have what is requested.
            CniError: Its plugin is missing or too old.
        """
        section = await self._find_section(request)
        chosen = choose_pool(section, request)
        if request.subnet is None and self._repeated.is_endless((section.name, chosen.subnet)):
            raise Refused(
                f"Docker repeats its request for a pool of {section}: {chosen.subnet} overlaps a route or a name "
                f"server of this host. If that is right, as for a network on the host's own LAN, add "
                f"--subnet {chosen.subnet}"
            )
        preflight = await run_preflight(self.runtime, section.configuration)
        if not preflight.is_good:
            raise Refused(f"{section} cannot be used: {'; '.join(preflight.all_problems)}")
        await self._refuse_overlap(section, chosen)
        pool = _new_pool(render_pool_id(chosen, secrets.token_hex(_DIGITS)), chosen)
        await self.store.ipam.pools.put(pool)
        log.info("pool.given", pool_id=pool.id)
        return pool

    async def _refuse_overlap(self, section: IpamSection, chosen: ChosenPool) -> None:
        """Refuse a pool with addresses that Docker has from another section, too."""
        others = []
        for pool in self.store.ipam.pools.all():
            if pool.section != section.name and overlap(pool.subnet, chosen.subnet):
                other = None
                with suppress(Refused):  # its section is no longer there
                    other = await asyncio.to_thread(self.sections.find, pool.section)
                others.append((pool, other))
        refuse_overlap(section, chosen, others)

    async def _find_section(self, request: RequestPool) -> IpamSection:
        name = section_name(request.options)
        if name is not None:
            return await asyncio.to_thread(self.sections.find, name)
        if request.subnet is not None:
            return await asyncio.to_thread(self.sections.find_with_subnet, request.subnet)
        raise BadOption(OPTION, f"it is missing; {NAME_IT}")

    async def release_pool(self, pool_id: PoolId) -> None:
        """Remove a pool, if there is one. Its network is gone, so addresses that it still has are released."""
        await self.releases.release_all(self.store.ipam.in_pool(pool_id))
        await self.store.ipam.pools.remove(pool_id)

    async def request_address(self, request: RequestAddress) -> IpInterface:
        """Reserve an address, and return it with its prefix length.

        Raises:
            Refused: The pool is unknown, or cannot give this address: it is outside, or in use.
            CniError: The plugin refuses, such as when all addresses are assigned.
            KernelError: The plugin has not run.
        """
        pool = self.store.ipam.pools.find(request.pool) or await self._make_again(request.pool)
        if request.is_gateway and pool.gateway is not None and request.address in {None, pool.gateway}:
            return ip_interface(f"{pool.gateway}/{pool.subnet.prefixlen}")  # the plugin never assigns it
        section = await asyncio.to_thread(self.sections.find, pool.section)
        if request.address is None:
            return await self._reserve_after_releases(section, pool, request)
        refuse_address(pool, request.address, is_gateway=request.is_gateway)
        async with self._locks.hold((pool.section, request.address)):
            await self._refuse_held(pool, request.address, is_gateway=request.is_gateway)
            if is_assignable(section, pool, request.address):
                return await self._reserve_after_releases(section, pool, request)
            address = ip_interface(f"{request.address}/{pool.subnet.prefixlen}")
            record = replace(_new_address(pool, request), phase=AddressPhase.RESERVED, address=address)
            await self.store.ipam.put_address(record)
        log.info("address.reserved", pool_id=pool.id, address=str(address), name=request.name)
        return address

    async def release_address(self, request: ReleaseAddress) -> None:
        """Begin the release of an address, if it is reserved.

        Docker also releases gateways, and addresses of network drivers. It does not wait for the plugin, which may need
        seconds if its store does not answer; a request that needs the address waits for that.
        """
        held = [
            record
            for record in self.store.ipam.in_pool(request.pool)
            if record.address is not None and record.address.ip == request.address
        ]
        await self.releases.begin_all(held)

    async def _reserve_after_releases(
        self, section: IpamSection, pool: AddressPoolRecord, request: RequestAddress
    ) -> IpInterface:
        """Reserve an address; if the plugin refuses, again as soon as another one has been released."""
        now = asyncio.get_running_loop().time
        deadline = now() + _PATIENCE_S
        wanted = (pool.sub_pool or pool.subnet) if request.address is None else ip_network(request.address)
        while True:
            released = self.releases.count_released(section.name)
            try:
                return await self._reserve(section, pool, request)
            except CniError as exc:
                limit_s = deadline - now()
                if (
                    not _is_refusal(exc)
                    or limit_s <= 0
                    or not await self.releases.wait_released(section.name, wanted, released, limit_s)
                ):
                    asked_for = () if request.address is None or not _is_refusal(exc) else (request.address,)
                    if holders := describe_holders(self.store, section.name, asked_for):
                        raise Refused(f"{exc}; {holders}") from exc
                    raise

    async def _reserve(self, section: IpamSection, pool: AddressPoolRecord, request: RequestAddress) -> IpInterface:
        plan = plan_address(section, pool, request.address)
        network = await self.runtime.negotiate(plan.configuration)
        reservation = ReservationRecord(
            netns=str(self.plugins.netns),
            configuration=network.document,
            args=plan.args,
            capability_args=plan.capability_args,
        )
        record = replace(_new_address(pool, request), phase=AddressPhase.PENDING, reservation=reservation)
        try:
            async with self.releases.hold(record.id):  # so that the release of its pool waits
                await self.store.ipam.put_address(record)
                result = await self.plugins.add(record, reservation)
                address = take_address(pool, result, request.address)
                self._refuse_kept(section, address)
                reservation = replace(reservation, result=result.document)
                reserved = replace(record, phase=AddressPhase.RESERVED, address=address, reservation=reservation)
                await self.store.ipam.put_address(reserved)
        except BaseException as exc:
            if not _is_refusal(exc):
                self.releases.note_unanswered(record.id)
            await self.releases.wait_tried([record.id], _UNDO_S)
            raise
        log.info("address.reserved", pool_id=pool.id, address=str(address), name=request.name)
        return address

    def _refuse_kept(self, section: IpamSection, address: IpInterface) -> None:
        """Refuse an address that the plugin could not assign when a record alone was made for it."""
        for record in self.store.ipam.find_holders(section.name, address.ip):
            if record.reservation is None:
                raise Refused(
                    f"{section} assigned {address}, which {describe_address(record)} has since before the range was "
                    "extended; try again for another address"
                )

    async def _refuse_held(self, pool: AddressPoolRecord, address: IpAddress, *, is_gateway: bool) -> None:
        """Refuse an address that is reserved; if it is being released, wait for that."""
        holders = self.store.ipam.find_holders(pool.section, address)
        leaving = [record.id for record in holders if record.phase is AddressPhase.RELEASING]
        if leaving:
            await self.releases.wait_tried(leaving, _PATIENCE_S)
            holders = self.store.ipam.find_holders(pool.section, address)
        for record in holders:
            is_shared = is_gateway and record.use is AddressUse.GATEWAY and record.reservation is None
            if not is_shared:
                pending = self.releases.all.get(record.id)
                reason = f"; its release fails: {pending.error}" if pending is not None and pending.error else ""
                raise Refused(
                    f"{address} of IPAM section {pool.section} is in use by {describe_address(record)}{reason}; "
                    "choose another address; `GET /v1/addresses` at the admin socket shows all"
                )

    async def _make_again(self, pool_id: PoolId) -> AddressPoolRecord:
        """Store a pool that Docker knows and whose record was lost."""
        found = parse_pool_id(pool_id)
        if found is None:
            raise Refused(f"pool {pool_id} is not one of cni-bridge; remove the network, and make it again")
        request = RequestPool(
            subnet=found.subnet,
            sub_pool=found.sub_pool,
            options={},
            is_ipv6=found.subnet.version != 4,  # noqa: PLR2004
        )
        section = await asyncio.to_thread(self.sections.find, found.section)
        record = _new_pool(pool_id, choose_pool(section, request))
        await self.store.ipam.pools.put(record)
        log.warning("pool.rebuilt", pool_id=pool_id)
        return record


def _is_refusal(exc: BaseException) -> bool:
    """Return whether a plugin has answered that it gives no address; after any other error it may have assigned one."""
    return isinstance(exc, PluginFailed) and exc.exit_status is not None


def _new_pool(pool_id: PoolId, chosen: ChosenPool) -> AddressPoolRecord:
    return AddressPoolRecord(
        id=pool_id,
        section=chosen.section,
        subnet=chosen.subnet,
        sub_pool=chosen.sub_pool,
        gateway=chosen.gateway,
        engine=None,
        created_at=int(time.time()),
    )


def _new_address(pool: AddressPoolRecord, request: RequestAddress) -> AddressRecord:
    return AddressRecord(
        id=AddressId(secrets.token_hex(_ID_BYTES)),
        pool=pool.id,
        section=pool.section,
        phase=AddressPhase.PENDING,
        use=AddressUse.GATEWAY if request.is_gateway else AddressUse.ANY,
        address=None,
        name=request.name,
        reservation=None,
        created_at=int(time.time()),
    )
