# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds running containers whose endpoint has no record, by the addresses of their links.

An older state was imported, or its directory came back from a copy: the containers that were started or restarted since
then have no record until the engine has been asked. Until then the DEL of an old record must not remove rules that are
found by an address alone, because such a container may have that address by now.

A namespace that cannot be read, which may be another program's, is skipped: it must not stop all these DELs.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from cni_bridge_state import AttachmentId
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cni_invoker.protocol import ErrorCode
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.naming import attachment_of
from cnm_bridge.system.kernel import Kernel

__all__ = ["AddressInUse", "UnrecordedLinks"]

log = structlog.get_logger()


class AddressInUse(CniError):
    """A plugin's DEL has to wait: a running container whose endpoint has no record has one of the addresses."""

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, plugin: str, attachment_id: AttachmentId) -> None:
        super().__init__(
            f"the DEL of plugin {plugin} waits, because it would remove the rules of a running container: endpoint "
            f"{attachment_id} has no record and has the same address; the DEL runs "
            "when the engine lists that endpoint, or when its container ends"
        )


class UnrecordedLinks:
    """Finds the links in running containers that belong to endpoints without a record.

    Only what existed when the daemon started can be without a record, because a record is stored before anything is
    done. So the namespaces are read once, before the first DEL that needs it. They are read again only to see whether
    such a link still exists.

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
        self._unread: tuple[str, ...] = ()
        self._reading = asyncio.Lock()

    async def look(self, addresses: Collection[str]) -> None:
        """Read the namespaces if a DEL for some addresses needs it, which would hold a plugin slot meanwhile."""
        with suppress(KernelError):  # that DEL tries again, and fails with the reason
            async with self._reading:
                if self._found is None or self._user_of(addresses) is not None:
                    self._found = await self._read()

    async def refuse_if_used(self, plugin: str, addresses: Collection[str]) -> None:
        """Return if no such link has any of some addresses, which are without prefixes. The caller calls `look` before.

        Raises:
            AddressInUse: One has; `plugin` is the type of the plugin that would remove the rules.
            KernelError: It cannot be read which namespaces there are.
        """
        async with self._reading:
            if self._found is None:
                self._found = await self._read()
            user = self._user_of(addresses)
        if user is not None:
            raise AddressInUse(plugin, user)

    async def _read(self) -> Mapping[AttachmentId, frozenset[str]]:
        """Return the links and their addresses; of what was found before, nothing is lost in an unread namespace."""
        seen = await self._kernel.addresses_by_altname(self._run_dir)
        if seen.unread and seen.unread != self._unread:
            log.warning("teardown.namespaces_unread", namespaces=len(seen.unread), error=seen.unread[0])
        self._unread = seen.unread
        by_attachment = {attachment_of(altname): addresses for altname, addresses in seen.by_altname.items()}
        found = {
            attachment_id: addresses
            for attachment_id, addresses in by_attachment.items()
            if attachment_id is not None and self._store.find_attachment(attachment_id) is None
        }
        return {**(self._found or {}), **found} if seen.unread else found

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
