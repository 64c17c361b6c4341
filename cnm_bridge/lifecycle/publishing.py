# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Publishes the ports of a container at the endpoint that is its way to the outside, and takes them back.

Ports go where the answers leave (docs/decisions, 10). So they are not a part of CreateEndpoint's ADD: the plugins that
declare `portMappings` are taken back and added again, with the ports, when Docker makes the endpoint the gateway.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from cni_invoker import CniError, NetworkConfigurationList, PluginFailed, Result, Runtime
from cnm_bridge.errors import CannotPublish
from cnm_bridge.lifecycle.attachment import cni_attachment
from cnm_bridge.lifecycle.ports import (
    CAPABILITY,
    FreePorts,
    PortMapping,
    choose_ports,
    parse_mappings,
    refuse_other_families,
)
from cnm_bridge.wire import PortRequest
from state import EndpointId, EndpointRecord, StateError, Store

__all__ = ["Publishing"]

log = structlog.get_logger()


class Publishing:
    """Knows whose the host's ports are.

    The caller holds the endpoint's lock. A port is claimed before anything waits, so that no two endpoints can have it.

    Args:
        store: The records; the ports that an earlier life published are in them.
        runtime: Runs the plugins.
        free: The ports of the host's programs.
    """

    def __init__(self, store: Store, runtime: Runtime, free: FreePorts) -> None:
        self._store = store
        self._runtime = runtime
        self._free = free
        self._claims: dict[EndpointId, tuple[PortMapping, ...]] = {}
        for record in store.endpoints():
            mappings = parse_mappings(record.attachment.capability_args)
            if mappings:
                self._claims[record.id] = mappings

    async def publish(self, record: EndpointRecord, requests: Sequence[PortRequest]) -> EndpointRecord:
        """Publish ports; return the record as it is stored then. Repeated, the same ports are published again.

        Raises:
            CannotPublish: The list has no plugin that publishes, or a port is of a family that the container does not
                have. Nothing has been changed.
            Refused: A port belongs to another endpoint, or to a program of the host. Nothing has been changed.
            CniError: A plugin failed; no port is published.
            StateError: The record cannot be written; nothing has been changed.
        """
        publishers = _publishers(record)
        if publishers is None:
            name = NetworkConfigurationList.from_document(record.attachment.configuration).name
            raise CannotPublish(
                f"ports cannot be published (-p, -P): CNI configuration {name} has no plugin after its first with the "
                'capability portMappings; add { "type": "portmap", "capabilities": { "portMappings": true } } '
                "to its plugins"
            )
        result = Result.from_document(record.result)
        refuse_other_families(requests, result.addresses_of(record.attachment.ifname))
        mappings = self._claim(record, requests)
        await self._runtime.delete(publishers, cni_attachment(record), result)
        record = _with_ports(record, mappings)
        await self._store.put_endpoint(record)  # from here on a DEL with these ports is owed
        try:
            await self._add(record, publishers, result)
        except BaseException:
            await self._take_back(record, publishers)
            raise
        log.info("endpoint.published", ports=[str(mapping) for mapping in mappings])
        return record

    async def revoke(self, record: EndpointRecord) -> EndpointRecord:
        """Take the ports back, if there are any; they stay reserved for the endpoint, as long as it lives.

        Raises:
            CniError: A plugin failed twice; the ports are still published.
            StateError: The record cannot be written.
        """
        publishers = _publishers(record)
        if publishers is None or not parse_mappings(record.attachment.capability_args):
            return record
        await self._runtime.delete(publishers, cni_attachment(record), Result.from_document(record.result))
        record = _with_ports(record, ())
        await self._store.put_endpoint(record)
        log.info("endpoint.ports_revoked")
        return record

    def find_owners(self, endpoint_id: EndpointId, requests: Sequence[PortRequest]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints of other containers that have a port which is asked for by its number.

        Endpoints of the same container are not among them: their rules lead to the same container, and Docker moves the
        ports from one to the other, also while the container stops (before Engine 29).
        """
        record = self._store.find_endpoint(endpoint_id)
        found = (
            self._store.find_endpoint(other)
            for other, claimed in self._claims.items()
            if other != endpoint_id and any(mapping.may_serve(asked) for mapping in claimed for asked in requests)
        )
        return tuple(owner for owner in found if owner is not None and not _same_container(owner, record))

    def _claim(self, record: EndpointRecord, requests: Sequence[PortRequest]) -> tuple[PortMapping, ...]:
        """Choose ports and make them the endpoint's; without waiting, so that nobody comes between."""

        def find_owner(mapping: PortMapping) -> str | None:
            for endpoint_id, claimed in tuple(self._claims.items()):
                if any(mapping.overlaps(other) for other in claimed) and self._is_others(endpoint_id, record):
                    return f"it is published for endpoint {endpoint_id} already"
            return None

        chosen = choose_ports(requests, self._claims.get(record.id, ()), find_owner, self._free)
        self._claims[record.id] = chosen
        return chosen

    def _is_others(self, endpoint_id: EndpointId, record: EndpointRecord) -> bool:
        """Tell whether an endpoint is of another container; one that is gone has no claim any more."""
        owner = self._store.find_endpoint(endpoint_id)
        if owner is None:
            del self._claims[endpoint_id]
            return False
        return not _same_container(owner, record)

    async def _add(self, record: EndpointRecord, publishers: NetworkConfigurationList, result: Result) -> None:
        """Run ADD, and if a plugin is killed, once more.

        While another network is disconnected Docker only logs what goes wrong, and does not ask again (libnetwork,
        `sbLeave`): a container that runs would lose its ports. The first error is what the user must see. What a plugin
        says itself it would say again, and one that hangs would keep Docker waiting once more.
        """
        add = partial(
            self._runtime.add, publishers, cni_attachment(record), prev_result=result.converted(publishers.cni_version)
        )
        try:
            await add()
        except PluginFailed as exc:
            if exc.signal is None:
                raise
            log.warning("endpoint.publishing_again", error=str(exc))
            try:
                await self._runtime.delete(publishers, cni_attachment(record), result)
                await add()
            except CniError as again:
                log.warning("endpoint.publishing_failed", error=str(again))
                raise exc from None

    async def _take_back(self, record: EndpointRecord, publishers: NetworkConfigurationList) -> None:
        """Undo a failed ADD at once; if that fails as well, the endpoint's tear down does it."""
        try:
            await self._runtime.delete(publishers, cni_attachment(record), Result.from_document(record.result))
            await self._store.put_endpoint(_with_ports(record, ()))
        except (CniError, StateError) as exc:  # the first error is what the user must see
            log.warning("endpoint.ports_owed", error=str(exc))


def _same_container(one: EndpointRecord, other: EndpointRecord | None) -> bool:
    return other is not None and one.sandbox_key is not None and one.sandbox_key == other.sandbox_key


def _publishers(record: EndpointRecord) -> NetworkConfigurationList | None:
    """Return the end of the list that publishes ports; None if there is none.

    The first plugin makes the link: it cannot be run again.
    """
    attachment = record.attachment
    network = NetworkConfigurationList.from_document(attachment.configuration).with_version(attachment.cni_version)
    chosen = [plugin for plugin in network.plugins[1:] if CAPABILITY in plugin.capabilities]
    return network.with_plugins(chosen) if chosen else None


def _with_ports(record: EndpointRecord, mappings: Sequence[PortMapping]) -> EndpointRecord:
    others = {key: value for key, value in record.attachment.capability_args.items() if key != CAPABILITY}
    ports = {CAPABILITY: [mapping.to_json() for mapping in mappings]} if mappings else {}
    return replace(record, attachment=replace(record.attachment, capability_args={**others, **ports}))
