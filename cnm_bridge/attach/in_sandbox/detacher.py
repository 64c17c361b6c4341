# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Undoes an attachment of mode *hybrid* or *direct*: runs DEL through the pin of the sandbox.

The pin keeps the sandbox, with the link and its addresses, until then; usually the container has ended and Docker has
removed its own mount. If the link is not there, because the host was rebooted, an operator removed it, or it left a
running container, DEL runs in a staging namespace as in mode *move*.
"""

from pathlib import Path
from typing import Final

from cni_bridge_state import EndpointRecord
from cni_invoker import Runtime
from cni_invoker.advanced import DeleteHooks
from cnm_bridge.attach.attacher import DeleteProgress
from cnm_bridge.attach.move.detacher import DeletePlace, MoveDetacher
from cnm_bridge.kernel import Kernel
from cnm_bridge.model.endpoint import Endpoint
from cnm_bridge.model.naming import pin_path, staging_path

__all__ = ["SandboxDetacher"]

_RESERVATION: Final = 0
"""The index of the IPAM plugin in a list that has a reservation."""


class SandboxDetacher:
    """Runs DEL in sandboxes.

    Args:
        runtime: Runs the plugins' DEL.
        kernel: Finds links, and removes pins.
        move: Runs DEL for a link in a namespace, or for a veth that replaces it.
        run_dir: The parent directory of pins and staging namespaces.
    """

    def __init__(self, runtime: Runtime, kernel: Kernel, move: MoveDetacher, run_dir: Path) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self._move = move
        self._run_dir = run_dir

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Undo an attachment; see `Attacher.detach`."""
        endpoint = Endpoint(record)
        pin, staging = pin_path(self._run_dir, record.attachment_id), staging_path(self._run_dir, record.attachment_id)
        pending = frozenset(range(len(endpoint.network.plugins))) - progress.deleted
        has_link = await self._kernel.has_pinned_link(pin, None, endpoint.altname)
        if record.attachment.has_reservation and pending == {_RESERVATION} and not has_link:
            await self._release(endpoint, progress)
            link = "none"
        else:
            if has_link and record.added_plugins <= 1:  # the record dates from before Join
                progress.deleted = frozenset()
            link = await self._move.run_plugins(endpoint, progress, await self._find_place(endpoint, pin, staging))
        await self._kernel.remove_staging(staging)
        await self._kernel.remove_staging(pin)
        return link

    async def _find_place(self, endpoint: Endpoint, pin: Path, staging: Path) -> DeletePlace:
        # Without a snapshot the link was not finished: it has no alternative name. If it was finished, a link of that
        # name belongs to another network.
        ifname = endpoint.record.attachment.ifname if endpoint.record.snapshot is None else None
        if await self._kernel.has_pinned_link(pin, ifname, endpoint.altname):
            return DeletePlace(netns=pin, sandbox=None)
        return DeletePlace(netns=staging, sandbox=endpoint.sandbox)

    async def _release(self, endpoint: Endpoint, progress: DeleteProgress) -> None:
        """Run DEL of the IPAM plugin, which needs no link."""
        await self._runtime.delete(
            endpoint.network,
            endpoint.attachment,
            endpoint.result,
            added_plugins=endpoint.record.added_plugins,
            deleted=progress.deleted,
            hooks=DeleteHooks(slot=progress.slot),
        )
