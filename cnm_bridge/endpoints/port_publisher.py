# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Publishes the ports of a container at the endpoint that is its way to the outside, and takes them back.

Ports go where the answers leave (docs/decisions, 10). So they are not a part of CreateEndpoint's ADD: the plugins that
declare `portMappings` are taken back and added again, with the ports, when Docker makes the endpoint the gateway.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

import structlog

from cni_invoker import CniError, NetworkConfigurationList, PluginFailed, Result, Runtime
from cnm_bridge.errors import CannotPublish, Interrupted
from cnm_bridge.model.endpoint import Endpoint
from cnm_bridge.planning.port_allocation import choose_ports
from cnm_bridge.planning.port_claims import PortClaims
from cnm_bridge.planning.port_mappings import CAPABILITY, FreePorts, PortMapping, parse_mappings, refuse_other_families
from cnm_bridge.scheduling.interruptible import Interruptible
from cnm_bridge.scheduling.time_slice import TimeSlice
from cnm_bridge.wire import PortRequest
from spec import get_list
from state import EndpointId, EndpointRecord, StateError, Store

__all__ = ["PortPublisher"]

log = structlog.get_logger()

_LOGGED: Final = 100
"""How many ports of one container are logged."""


class PortPublisher:
    """Knows whose the host's ports are.

    The caller holds the endpoint's lock. Each port is claimed as soon as it is chosen, so that no two endpoints can
    have it. One endpoint at a time chooses: of two that want the same ports, one receives all of them.

    Args:
        store: The records; they hold the ports that the previous run published.
        runtime: Runs the plugins.
        free: The ports of the host's programs.
        claims: The ports of endpoints; those of an endpoint go with its record.
    """

    def __init__(self, store: Store, runtime: Runtime, free: FreePorts, claims: PortClaims) -> None:
        self._store = store
        self._runtime = runtime
        self._free = free
        self._claims = claims
        self._choosing = asyncio.Lock()
        self._under_way: Interruptible[EndpointId] = Interruptible()
        store.when_removed(claims.release)

    async def load(self) -> None:
        """Claim what is published already; nothing is published before."""
        time_slice = TimeSlice()
        for record in self._store.endpoints():
            if not record.has_capability_args:  # of most, the attachment need not be parsed before the first answer
                continue
            for mapping in parse_mappings(record.attachment.capability_args):
                self._claims.add(record.id, mapping)
                await time_slice.pause()
            await time_slice.pause()
            if self._store.find_endpoint(record.id) is None:  # removed in one of the pauses
                self._claims.release(record.id)

    async def publish(self, record: EndpointRecord, requests: Sequence[PortRequest]) -> EndpointRecord:
        """Publish ports; return the record as it is stored then. Repeated, the same ports are published again.

        An endpoint keeps its claim to the earlier ports until the record with the new ones is stored: until then there
        may be rules for them.

        Raises:
            CannotPublish: The list has no plugin that publishes. Nothing has been changed.
            Refused: A port belongs to another endpoint or to a program of the host, or is of a family that the
                container does not have. Nothing has been changed.
            CniError: A plugin failed. The new ports are not published; the earlier ones are the endpoint's still,
                unless their DEL has completed.
            StateError: The record cannot be written; the earlier ports are published again.
            Interrupted: `interrupt` was called; the teardown, or the next call, removes what was published.
        """
        publishers = _publishers(record)
        if publishers is None:
            name = record.cni_network
            raise CannotPublish(
                f"ports cannot be published (-p, -P): CNI configuration {name} has no plugin after its first with the "
                'capability portMappings; add { "type": "portmap", "capabilities": { "portMappings": true } } '
                "to its plugins"
            )
        result = Result.from_document(record.result)
        refuse_other_families(requests, result.addresses_of(record.attachment.ifname))
        with self._under_way.begin(record.id) as work:
            earlier, chosen = await self._claim(record, requests)
            new = (mapping for mapping in chosen if mapping not in earlier)
            try:
                await work.step(self._runtime.delete(publishers, Endpoint(record).attachment, result))
            except BaseException:
                await self._discard(record.id, new)
                raise
            changed = _with_ports(record, tuple(chosen))
            try:
                await self._store.put_endpoint(changed)  # from here on a DEL with these ports is pending
            except StateError:
                await self._discard(record.id, new)
                await work.step(self._restore(record, publishers, result))
                raise
            await self._discard(record.id, (mapping for mapping in earlier if mapping not in chosen))
            try:
                await work.step(self._add(changed, publishers, result))
            except Interrupted:
                raise
            except BaseException:
                await work.step(self._take_back(changed, publishers))
                raise
        log.info("endpoint.published", count=len(chosen), ports=[str(mapping) for mapping in islice(chosen, _LOGGED)])
        return changed

    def interrupt(self, endpoint_id: EndpointId) -> None:
        """End the publishing of an endpoint's ports that is under way, because Docker takes it back; returns at once.

        A plugin that hangs, or has thousands of ports to publish, must not keep the endpoint for minutes.
        """
        reason = f"endpoint {endpoint_id} leaves its container, or is no longer its gateway; no port is published"
        self._under_way.interrupt(endpoint_id, reason)

    async def revoke(self, record: EndpointRecord) -> EndpointRecord:
        """Take the ports back, if there are any; they stay reserved for the endpoint, as long as it lives.

        Raises:
            CniError: A plugin failed twice; the ports are still published.
            StateError: The record cannot be written.
        """
        publishers = _publishers(record)
        if publishers is None or not get_list(record.attachment.capability_args, CAPABILITY):
            return record
        await self._runtime.delete(publishers, Endpoint(record).attachment, Result.from_document(record.result))
        record = _with_ports(record, ())
        await self._store.put_endpoint(record)
        log.info("endpoint.ports_revoked")
        return record

    async def find_owners(self, endpoint_id: EndpointId, requests: Sequence[PortRequest]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints of other containers that have a port which is asked for by its number.

        Endpoints of the same container are not among them: their rules lead to the same container, and Docker moves the
        ports from one to the other, also while the container stops (before Engine 29).
        """
        record = self._store.find_endpoint(endpoint_id)
        time_slice = TimeSlice()
        found: set[EndpointId] = set()
        for request in requests:
            for port in range(request.host_port, request.host_port_end + 1):
                found.update(self._claims.find_serving(request, port))
                await time_slice.pause()
        owners = (self._store.find_endpoint(other) for other in sorted(found - {endpoint_id}))
        return tuple(owner for owner in owners if owner is not None and not _same_container(owner, record))

    async def _claim(
        self, record: EndpointRecord, requests: Sequence[PortRequest]
    ) -> tuple[Collection[PortMapping], Collection[PortMapping]]:
        """Choose ports and make them the endpoint's, beside those that it has.

        Returns:
            Those that it had, and those that were chosen; whether a port is among them costs nothing to ask.

        Raises:
            Refused: One cannot be had; the endpoint has what it had.
        """

        def find_owner(mapping: PortMapping) -> str | None:
            for endpoint_id in self._claims.find_overlapping(mapping):
                if endpoint_id != record.id and self._is_of_another_container(endpoint_id, record):
                    return f"it is published for endpoint {endpoint_id} already"
            return None

        async with self._choosing:
            earlier = dict.fromkeys(self._claims.of(record.id))
            chosen: dict[PortMapping, None] = {}
            try:
                async for mapping in choose_ports(requests, earlier, find_owner, self._free):
                    chosen[mapping] = None
                    self._claims.add(record.id, mapping)
            except BaseException:
                await self._discard(record.id, (mapping for mapping in chosen if mapping not in earlier))
                raise
        return earlier.keys(), chosen.keys()

    async def _discard(self, endpoint_id: EndpointId, mappings: Iterable[PortMapping]) -> None:
        time_slice = TimeSlice()
        for mapping in mappings:
            self._claims.discard(endpoint_id, mapping)
            await time_slice.pause()

    def _is_of_another_container(self, endpoint_id: EndpointId, record: EndpointRecord) -> bool:
        owner = self._store.find_endpoint(endpoint_id)
        return owner is not None and not _same_container(owner, record)

    async def _add(self, record: EndpointRecord, publishers: NetworkConfigurationList, result: Result) -> None:
        """Run ADD, and if a plugin is killed, once more.

        While another network is disconnected Docker only logs what goes wrong, and does not ask again (libnetwork,
        `sbLeave`): a container that runs would lose its ports. The first error is what the user must see. What a plugin
        says itself it would say again, and one that hangs would keep Docker waiting once more.
        """
        add = partial(
            self._runtime.add,
            publishers,
            Endpoint(record).attachment,
            prev_result=result.converted(publishers.cni_version),
        )
        try:
            await add()
        except PluginFailed as exc:
            if exc.signal is None:
                raise
            log.warning("endpoint.publishing_again", error=str(exc))
            try:
                await self._runtime.delete(publishers, Endpoint(record).attachment, result)
                await add()
            except CniError as again:
                log.warning("endpoint.publishing_failed", error=str(again))
                raise exc from None

    async def _restore(self, record: EndpointRecord, publishers: NetworkConfigurationList, result: Result) -> None:
        """Publish again what a record has, because it could not be replaced."""
        if get_list(record.attachment.capability_args, CAPABILITY):
            try:
                await self._add(record, publishers, result)
            except CniError as exc:  # the first error is what the user must see
                log.warning("endpoint.ports_not_restored", error=str(exc))

    async def _take_back(self, record: EndpointRecord, publishers: NetworkConfigurationList) -> None:
        """Undo a failed ADD at once; if that fails as well, the endpoint's tear down does it."""
        try:
            await self._runtime.delete(publishers, Endpoint(record).attachment, Result.from_document(record.result))
            await self._store.put_endpoint(_with_ports(record, ()))
        except (CniError, StateError) as exc:  # the first error is what the user must see
            log.warning("endpoint.ports_pending", error=str(exc))


def _same_container(one: EndpointRecord, other: EndpointRecord | None) -> bool:
    return other is not None and one.sandbox_key is not None and one.sandbox_key == other.sandbox_key


def _publishers(record: EndpointRecord) -> NetworkConfigurationList | None:
    """Return the end of the list that publishes ports; None if there is none.

    The first plugin makes the link: it cannot be run again.
    """
    network = Endpoint(record).network
    chosen = [plugin for plugin in network.plugins[1:] if CAPABILITY in plugin.capabilities]
    return network.with_plugins(chosen) if chosen else None


def _with_ports(record: EndpointRecord, mappings: Sequence[PortMapping]) -> EndpointRecord:
    others = {key: value for key, value in record.attachment.capability_args.items() if key != CAPABILITY}
    ports = {CAPABILITY: [mapping.to_json() for mapping in mappings]} if mappings else {}
    return replace(record, attachment=replace(record.attachment, capability_args={**others, **ports}))
