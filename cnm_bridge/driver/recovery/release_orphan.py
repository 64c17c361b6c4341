# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes an orphan that an operator has named, after looking once more whether it is in use.

An orphan may belong to another runtime. So it is kept if a record or libcni's cache has its container, and if any
network namespace has its address.
"""

import asyncio
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.recovery.artifacts import PluginArtifact, is_chain_name, remove_reservation
from cnm_bridge.driver.recovery.orphan_audit import OrphanAudit
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.process.commands import run_command

log = structlog.get_logger()

_ADDRESS: Final = re.compile(r"(?<![\w.:])(?P<address>[0-9a-fA-F.:]+)/(?:32|128)(?!\d)")

_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ReleaseOrphan:
    """Removes orphans."""

    audit: OrphanAudit
    kernel: Kernel

    async def __call__(self, orphan: PluginArtifact) -> None:
        """Remove an orphan.

        Raises:
            Refused: It is in use, or cannot be removed; nothing has been changed.
            KernelError: Whether it is in use cannot be determined; nothing has been changed.
        """
        owner = await asyncio.to_thread(self.audit.find_owner, orphan)
        if owner is not None:
            raise Refused(f"{orphan.what} is in use by {owner}; nothing has been changed")
        used = self._addresses_of(orphan) & (await self.kernel.look_into_sandboxes()).addresses
        if used:
            raise Refused(
                f"{orphan.what} is in use: a network namespace has the address {', '.join(sorted(used))}; find its "
                "container (`podman ps`, `nerdctl ps`, `ip netns`); nothing has been changed"
            )
        if orphan.what.startswith("/"):
            await asyncio.to_thread(_remove_reservation, orphan)
        elif orphan.what.startswith("link "):
            raise Refused(f"cni-bridge does not delete links of others; if it is unused: {_del_link(orphan)}")
        else:
            await _remove_rule(shlex.split(orphan.what))
        self.audit.forget(orphan)
        log.info("orphan.released", network=orphan.network, container_id=orphan.container_id, what=orphan.what)

    def _addresses_of(self, orphan: PluginArtifact) -> frozenset[str]:
        """Return the addresses of all orphans with the same container ID."""
        same = [one.what for one in self.audit.orphans if one.container_id == orphan.container_id]
        if orphan.what.startswith("/"):
            same.append(f"{Path(orphan.what).name.replace('_', ':')}/32")
        texts = [orphan.what, *(same if orphan.container_id != "?" else ())]
        return frozenset(match["address"].lower() for text in texts for match in _ADDRESS.finditer(text))


def _remove_reservation(orphan: PluginArtifact) -> None:
    try:
        if not remove_reservation(Path(orphan.what), orphan.container_id):
            raise Refused(f"{orphan.what} no longer belongs to {orphan.container_id}; nothing has been changed")
    except OSError as exc:
        raise Refused(f"{orphan.what} cannot be removed: {exc}; is host-local running? Try again") from exc


async def _remove_rule(command: Sequence[str]) -> None:
    """Remove what a command such as `iptables -t nat -A …` has made, and a container's own chain that it leads to."""
    add = next((index for index, word in enumerate(command) if word in {"-A", "-N"}), None)
    if add is None:
        raise Refused(f"it is not known how to remove {shlex.join(command)}")
    program, rest = command[:add], command[add + 1 :]
    await _run(*program, "-D" if command[add] == "-A" else "-X", *rest)
    target = rest[rest.index("-j") + 1] if "-j" in rest else ""
    if command[add] == "-A" and is_chain_name(target):
        await _run(*program, "-F", target)
        await _run(*program, "-X", target)


async def _run(*command: str) -> None:
    try:
        done = await run_command(*command, limit_s=_LIMIT_S)
    except TimeoutError as exc:
        raise Refused(f"{shlex.join(command)} did not end within {_LIMIT_S:g} s") from exc
    if not done.succeeded:
        raise Refused(f"{shlex.join(command)} failed: {done.error}")


def _del_link(orphan: PluginArtifact) -> str:
    return f"ip link del {orphan.what.split()[1]}"
