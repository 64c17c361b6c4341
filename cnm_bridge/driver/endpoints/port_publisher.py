# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Publishes the ports of a container at its gateway endpoint, and revokes them.

Ports are published at the endpoint through which replies leave (docs/decisions/publish-ports-at-the-gateway.md), so
not during the ADD of CreateEndpoint. When Docker chooses the gateway endpoint, the plugins that declare `portMappings`
run DEL, if they have made anything, and then ADD with the ports.
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeVar

import structlog

from cni_bridge_spec import get_list
from cni_bridge_state import EndpointId, EndpointRecord, PortRequest, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList, Result, Runtime
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import Interrupted
from cnm_bridge.core.planning.ports import (
    CAPABILITY,
    PortClaims,
    PortMapping,
    cannot_publish,
    makes_nothing_without_ports,
    parse_mappings,
    publishing_plugins,
    refuse_other_families,
)
from cnm_bridge.driver.endpoints.port_allocation import choose_ports
from cnm_bridge.system.kernel import HostPorts
from cnm_bridge.system.scheduling import TimeSlice

log = structlog.get_logger()

_LOGGED: Final = 100

T = TypeVar("T")


class _Publication:
    """The publication of one endpoint's ports, which a Leave interrupts; its long steps go through `step`."""

    def __init__(self) -> None:
        self._interrupted: str | None = None
        self._step: asyncio.Timeout | None = None

    async def step(self, coroutine: Coroutine[object, object, T]) -> T:
        """Return the result of a step; `Interrupted`, after its end, if interrupted before or during it."""
        if self._interrupted is not None:
            coroutine.close()
            raise Interrupted(self._interrupted)
        try:
            async with asyncio.timeout(None) as self._step:
                return await coroutine
        except TimeoutError:
            if self._interrupted is None:
                raise
            raise Interrupted(self._interrupted) from None
        finally:
            self._step = None

    def interrupt(self, reason: str) -> None:
        """Cancel the current step and refuse later ones; does not block."""
        if self._interrupted is None:
            self._interrupted = reason
            if self._step is not None:
                self._step.reschedule(asyncio.get_running_loop().time())


@dataclass(frozen=True, slots=True)
class PortPublisher:
    """Publishes and revokes ports, and knows the owner of each port of the host.

    The caller holds the endpoint's lock. Each port is claimed when it is chosen, so no two endpoints can have it. Only
    one endpoint at a time chooses: of two that request the same ports, one receives all of them.
    """

    store: Store
    runtime: Runtime
    free: HostPorts
    claims: PortClaims
    _choosing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _under_way: dict[EndpointId, _Publication] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.store.when_removed(self.claims.release)

    async def load(self) -> None:
        """Claim the ports that the previous run published. Must complete before anything is published."""
        time_slice = TimeSlice()
        for record in self.store.endpoints():
            for mapping in parse_mappings(record.attachment.capability_args):
                self.claims.add(record.id, mapping)
                await time_slice.pause()
            await time_slice.pause()
            if self.store.find_endpoint(record.id) is None:  # removed in one of the pauses
                self.claims.release(record.id)

    async def publish(self, record: EndpointRecord, requests: Sequence[PortRequest]) -> EndpointRecord:
        """Publish ports and return the stored record. A repeated request publishes the same ports again.

        An endpoint keeps its claim to the earlier ports until the record with the new ones is stored, because rules for
        them may still exist.

        Raises:
            CannotPublish: The list has no plugin that publishes. Nothing has been changed.
            Refused: A port belongs to another endpoint or to a program of the host, or its address has a family that
                the container does not have. Nothing has been changed.
            CniError: A plugin failed. The new ports are not published; the endpoint keeps the earlier ones, unless
                their DEL has completed.
            StateError: The record cannot be written. Nothing has been changed.
            Interrupted: `interrupt` was called; the teardown, or the next call, removes what was published.
        """
        publishers = _publishers(record)
        if publishers is None:
            raise cannot_publish(Endpoint(record).chain)
        result = Result.from_document(record.result)
        refuse_other_families(requests, result.addresses_of(record.attachment.ifname))
        with self._publication(record.id) as publication:
            earlier, chosen = await self._claim(record, requests)
            new = [mapping for mapping in chosen if mapping not in earlier]
            changed = _with_ports(record, tuple(chosen))
            has_ports = self.has_ports(record)
            published = parse_mappings(record.attachment.capability_args)
            both = _with_ports(record, tuple(dict.fromkeys((*published, *chosen)))) if has_ports else changed
            try:
                await self.store.put_endpoint(both)  # from here on a DEL with all of them is pending
            except StateError:
                await self._discard(record.id, new)
                raise
            try:
                if has_ports or not makes_nothing_without_ports(publishers):
                    await publication.step(self.runtime.delete(publishers, Endpoint(record).attachment, result))
            except BaseException:
                await self._restore(record, new)
                raise
            try:
                attachment = Endpoint(changed).attachment
                before = result.converted(publishers.cni_version)
                await publication.step(self.runtime.add(publishers, attachment, prev_result=before))
            except Interrupted:
                raise
            except BaseException:
                await publication.step(self._take_back(both, publishers))
                raise
            if both != changed:
                try:
                    await self.store.put_endpoint(changed)
                except StateError as exc:  # the ports are published, and a DEL of the earlier ones does no harm
                    log.warning("endpoint.ports_pending", error=str(exc))
                    return both
            await self._discard(record.id, (mapping for mapping in earlier if mapping not in chosen))
        log.info("endpoint.published", count=len(chosen), ports=[str(mapping) for mapping in islice(chosen, _LOGGED)])
        return changed

    def interrupt(self, endpoint_id: EndpointId) -> None:
        """Interrupt a running publication of an endpoint's ports, because Docker revokes it; does not block.

        A plugin that hangs or publishes thousands of ports must not hold the endpoint for minutes.
        """
        reason = f"endpoint {endpoint_id} leaves its container, or is no longer its gateway; no port is published"
        publication = self._under_way.get(endpoint_id)
        if publication is not None:
            publication.interrupt(reason)

    @contextmanager
    def _publication(self, endpoint_id: EndpointId) -> Iterator[_Publication]:
        publication = self._under_way[endpoint_id] = _Publication()
        try:
            yield publication
        finally:
            del self._under_way[endpoint_id]

    def has_ports(self, record: EndpointRecord) -> bool:
        """Return whether ports of an endpoint are published, as far as its record says."""
        return bool(get_list(record.attachment.capability_args, CAPABILITY))

    async def revoke(self, record: EndpointRecord) -> EndpointRecord:
        """Revoke the endpoint's ports, if it has any; they stay reserved for it until it is deleted.

        After a `CniError`, when a plugin failed twice, they are still published. `StateError`: it cannot be stored.
        """
        publishers = _publishers(record)
        if publishers is None or not self.has_ports(record):
            return record
        await self.runtime.delete(publishers, Endpoint(record).attachment, Result.from_document(record.result))
        record = _with_ports(record, ())
        await self.store.put_endpoint(record)
        log.info("endpoint.ports_revoked")
        return record

    async def find_owners(self, endpoint_id: EndpointId, requests: Sequence[PortRequest]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints of other containers that have a port that is requested by number.

        Endpoints of the same container are not included: their rules lead to the same container, and Docker moves ports
        from one to the other, before Engine 29 also while the container stops.
        """
        record = self.store.find_endpoint(endpoint_id)
        time_slice = TimeSlice()
        found: set[EndpointId] = set()
        for request in requests:
            for port in range(request.host_port, request.host_port_end + 1):
                found.update(self.claims.find_serving(request, port))
                await time_slice.pause()
        owners = (self.store.find_endpoint(other) for other in sorted(found - {endpoint_id}))
        return tuple(owner for owner in owners if owner is not None and not _same_container(owner, record))

    async def _claim(
        self, record: EndpointRecord, requests: Sequence[PortRequest]
    ) -> tuple[Collection[PortMapping], Collection[PortMapping]]:
        """Choose ports and claim them for the endpoint, in addition to those that it has.

        Returns the earlier ports and the chosen ones, both with constant-time membership tests. After `Refused` the
        endpoint's claims are unchanged.
        """

        def find_owner(mapping: PortMapping) -> str | None:
            for endpoint_id in self.claims.find_overlapping(mapping):
                owner = self.store.find_endpoint(endpoint_id)
                if endpoint_id != record.id and owner is not None and not _same_container(owner, record):
                    return f"it is already published for endpoint {endpoint_id}"
            return None

        async with self._choosing:
            earlier = dict.fromkeys(self.claims.of(record.id))
            chosen: dict[PortMapping, None] = {}
            try:
                async for mapping in choose_ports(requests, earlier, find_owner, self.free):
                    chosen[mapping] = None
                    self.claims.add(record.id, mapping)
            except BaseException:
                await self._discard(record.id, (mapping for mapping in chosen if mapping not in earlier))
                raise
        return earlier.keys(), chosen.keys()

    async def _discard(self, endpoint_id: EndpointId, mappings: Iterable[PortMapping]) -> None:
        time_slice = TimeSlice()
        for mapping in mappings:
            self.claims.discard(endpoint_id, mapping)
            await time_slice.pause()

    async def _restore(self, record: EndpointRecord, new: Iterable[PortMapping]) -> None:
        """Store an earlier record, and give up the claims to new ports; keep them if the record cannot be written."""
        try:
            await self.store.put_endpoint(record)
        except StateError as exc:  # the first error is what the user must see
            log.warning("endpoint.ports_pending", error=str(exc))
        else:
            await self._discard(record.id, new)

    async def _take_back(self, record: EndpointRecord, publishers: NetworkConfigurationList) -> None:
        """Undo a failed ADD now; if that also fails, the endpoint's teardown does it."""
        try:
            await self.runtime.delete(publishers, Endpoint(record).attachment, Result.from_document(record.result))
            await self.store.put_endpoint(_with_ports(record, ()))
        except (CniError, StateError) as exc:  # the first error is what the user must see
            log.warning("endpoint.ports_pending", error=str(exc))


def _same_container(one: EndpointRecord, other: EndpointRecord | None) -> bool:
    return other is not None and one.sandbox_key is not None and one.sandbox_key == other.sandbox_key


def _publishers(record: EndpointRecord) -> NetworkConfigurationList | None:
    network = Endpoint(record).chain
    chosen = publishing_plugins(network)
    return network.with_plugins(chosen) if chosen else None


def _with_ports(record: EndpointRecord, mappings: Sequence[PortMapping]) -> EndpointRecord:
    others = {key: value for key, value in record.attachment.capability_args.items() if key != CAPABILITY}
    ports = {CAPABILITY: [mapping.to_json() for mapping in mappings]} if mappings else {}
    return replace(record, attachment=replace(record.attachment, capability_args={**others, **ports}))
