# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds running containers whose endpoint has no record, by the addresses of their links.

An older state was imported, or its directory came back from a copy: the containers that were started or restarted since
then have no record until the engine has been asked. Until then the DEL of an old record must not remove rules that are
found by an address alone, because such a container may have that address by now.
"""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from cni_bridge_state import AttachmentId
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cni_invoker.protocol import ErrorCode
from cnm_bridge.core.model.naming import attachment_of
from cnm_bridge.system.kernel import Kernel

__all__ = ["AddressInUse", "UnrecordedLinks"]


class AddressInUse(CniError):
    """A plugin's DEL has to wait: a running container whose endpoint has no record has one of the addresses."""

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, plugin: str, attachment_id: AttachmentId) -> None:
        super().__init__(
            f"the DEL of plugin {plugin} waits, because it would remove the rules of a running container: endpoint "
            f"{attachment_id} has no record and has the same address; its record is made as soon as the engine answers"
        )


class UnrecordedLinks:
    """Finds the links in running containers that belong to endpoints without a record.

    Only what existed when the daemon started can be without a record, because a record is stored before anything is
    done. So the namespaces are read once, when the first DEL needs it, and again only to see whether such a link still
    exists.

    Args:
        store: The records.
        kernel: Reads links and addresses.
        run_dir: The parent directory of staging namespaces and pins, which are not containers.
    """

    def __init__(self, store: Store, kernel: Kernel, run_dir: Path) -> None:
        self._store = store
        self._kernel = kernel
        self._run_dir = run_dir
        self._found: Mapping[AttachmentId, frozenset[str]] | None = None
        self._reading = asyncio.Lock()

    async def refuse_if_used(self, plugin: str, addresses: Collection[str]) -> None:
        """Return if no such link has any of some addresses, which are without prefixes.

        Raises:
            AddressInUse: One has; `plugin` is the type of the plugin that would remove the rules.
            KernelError: The namespaces or their links cannot be read.
        """
        async with self._reading:
            if self._found is None or self._user_of(addresses) is not None:
                self._found = await self._read()
            user = self._user_of(addresses)
        if user is not None:
            raise AddressInUse(plugin, user)

    async def _read(self) -> Mapping[AttachmentId, frozenset[str]]:
        found = await self._kernel.addresses_by_altname(self._run_dir)
        by_attachment = {attachment_of(altname): addresses for altname, addresses in found.items()}
        return {
            attachment_id: addresses
            for attachment_id, addresses in by_attachment.items()
            if attachment_id is not None and self._store.find_attachment(attachment_id) is None
        }

    def _user_of(self, addresses: Collection[str]) -> AttachmentId | None:
        """Return an attachment whose link has one of the addresses, and which has no record even now."""
        return next(
            (
                attachment_id
                for attachment_id, used in (self._found or {}).items()
                if not used.isdisjoint(addresses) and self._store.find_attachment(attachment_id) is None
            ),
            None,
        )
