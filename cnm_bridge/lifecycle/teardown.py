# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The one undo: failed creates, DeleteEndpoint and recovery all use it, and it may be repeated at any point.

The recipe is measured: CNI plugins clean up after themselves only when DEL finds the link in the namespace of the ADD,
under the same name and with exactly the result's addresses; masquerade rules, for one, are found by them. So the link
is brought back from wherever it is, or a placeholder stands in for it.
"""

from dataclasses import replace
from pathlib import Path

import structlog

from cni_invoker import NetworkConfigurationList, Result, Runtime
from cnm_bridge.kernel import IpInterface, Kernel, Snapshot
from cnm_bridge.lifecycle.attachment import cni_attachment
from cnm_bridge.lifecycle.handover import given_addresses
from cnm_bridge.lifecycle.naming import alternative_name, host_link_name
from state import EndpointRecord, Phase, StateError, StateUnusable, Store

__all__ = ["TearDown"]

log = structlog.get_logger()


class TearDown:
    """Undoes an endpoint.

    Args:
        store: The records.
        runtime: Runs the plugins' DEL.
        kernel: Brings links back.
    """

    def __init__(self, store: Store, runtime: Runtime, kernel: Kernel) -> None:
        self._store = store
        self._runtime = runtime
        self._kernel = kernel

    async def __call__(self, record: EndpointRecord) -> None:
        """Undo all that was done for `record`, whatever its phase; the caller holds the endpoint's lock.

        The record is gone when this returns. When it raises, it is still there, and calling again goes on.

        Raises:
            CniError: A plugin's DEL failed twice.
            KernelError: The link or the namespace cannot be had.
            StateError: The record cannot be written; all else is undone.
        """
        unwritten: StateError | None = None
        if record.phase is not Phase.DELETING:
            try:
                await self._store.put_endpoint(replace(record, phase=Phase.DELETING))
            except StateUnusable as exc:  # a full disk must not keep the address and the link
                unwritten = exc
        attachment = record.attachment
        staging = Path(attachment.netns)
        result = Result.from_document(record.result) if record.result is not None else None
        found = await self._kernel.bring_back(
            staging,
            attachment.ifname,
            host_name=host_link_name(record.id),
            altname=alternative_name(record.id),
            sandbox=Path(record.sandbox_key) if record.sandbox_key else None,
            addresses=_addresses(record, result),
        )
        stored = NetworkConfigurationList.from_document(attachment.configuration)
        configuration = stored.with_version(attachment.cni_version)
        await self._runtime.delete(configuration, cni_attachment(record), result, answered=record.answered)
        await self._kernel.remove_staging(staging)
        if unwritten is not None:
            raise unwritten
        await self._store.remove_endpoint(record.id)
        log.info("endpoint.torn_down", endpoint_id=record.id, link=found.value)


def _addresses(record: EndpointRecord, result: Result | None) -> tuple[IpInterface, ...] | None:
    """Return the addresses that the link must have for DEL, None for those it has.

    They are the result's; but the last plugin of a chain may print a result without any, and the masquerading of the
    first is found by what it gave.
    """
    told = result.addresses_of(record.attachment.ifname) if result else ()
    if told or record.snapshot is None:
        return told or None
    return given_addresses(Snapshot.from_json(record.snapshot))
