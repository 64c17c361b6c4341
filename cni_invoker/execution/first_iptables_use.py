# SPDX-License-Identifier: Apache-2.0
"""Serializes, on the whole host, the first users of iptables chains that plugins share.

`portmap`, `firewall`, and masquerading in `bridge` and `ptp` use chains of the host, which the first user creates.
Plugins check first and write later, so concurrent first users all write: 16 parallel first ADDs left duplicate jumps in
4 of 4 trials. Once the chains exist, parallel use is safe.

Each object tracks for which of them an ADD has succeeded. The lock is shared by all objects and processes: each runs
its own first ADD under it.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from cni_invoker.documents.attachment import Attachment
from cni_invoker.documents.jsontypes import find_object, render_json
from cni_invoker.documents.lists import PluginConfiguration
from cni_invoker.documents.results import Result
from cni_invoker.messages import log_event
from cni_invoker.waiting import Slots, take_file_lock

DEFAULT_LOCK_DIR: Final = Path("/run/cni-invoker")
"""Shared by all runtimes of a host. Like the chains, it does not survive a reboot."""

WAIT_S: Final = 3.0
"""How long an ADD waits for the lock."""

_LOCK: Final = "shared-chains.lock"
_PAUSE_S: Final = 0.005

_Kind = tuple[str, int | str]
"""Owner of the chains, and the address family: 4 or 6, or a word if it is known only after the ADD."""


class FirstIptablesUse:
    """Tracks which shared chains have been created since this object exists, and holds the lock for first users.

    At most one first ADD on the host holds the lock; other ADDs run without it. So does a first ADD that has waited for
    `WAIT_S`, which is logged once: a duplicate rule does less harm than a host whose containers all wait.

    Args:
        directory: Directory of the lock file. None, or if it cannot be created, which is logged once: only users of
            this object are serialized.
        wait_s: How long to wait for it.
    """

    def __init__(self, directory: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self._directory = directory
        self._wait_s = wait_s
        self._made: set[_Kind] = set()
        self._first = Slots(1)
        self._is_reported = False

    @asynccontextmanager
    async def serialize_first_add(
        self, plugin: PluginConfiguration, attachment: Attachment, prev_result: Result | None
    ) -> AsyncIterator[None]:
        """Run the body, the ADD of `plugin`, under the lock unless one of the same kind has already succeeded."""
        kinds = _kinds(plugin, attachment, prev_result)
        if kinds <= self._made:
            yield
            return
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._wait_s):
                    await held.enter_async_context(self._first.held())
                    if not kinds <= self._made:
                        await self._lock_file(held)
            except TimeoutError:
                if not self._is_reported:
                    self._is_reported = True
                    file = None if self._directory is None else str(self._directory / _LOCK)
                    log_event(__name__, "lock.kept", file=file, waited_s=self._wait_s)
            if kinds <= self._made:  # its predecessor has made them
                await held.aclose()
            yield
            self._made |= kinds

    async def _lock_file(self, held: AsyncExitStack) -> None:
        """Wait for the first ADDs of other processes."""
        descriptor = self._open()
        if descriptor is None:
            return
        held.callback(os.close, descriptor)
        # Polling, because a blocking wait in a thread cannot be cancelled.
        while not take_file_lock(descriptor):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)

    def _open(self) -> int | None:
        if self._directory is None:
            return None
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            log_event(__name__, "lock.unavailable", directory=str(self._directory), reason=exc.strerror)
            self._directory = None
            return None


def _kinds(plugin: PluginConfiguration, attachment: Attachment, prev_result: Result | None) -> frozenset[_Kind]:
    """Return which shared chains an ADD of `plugin` creates if it is the first, empty for none.

    IPv4 and IPv6 have separate chains, which are created with the first address of the family.
    """
    match plugin.type:
        case "firewall":
            families = _families_of(prev_result)
        case "portmap" if "portMappings" in plugin.capabilities and attachment.capability_args.get("portMappings"):
            families = _families_of(prev_result)
        case "bridge" | "ptp" if plugin.document.get("ipMasq"):
            return frozenset(("masquerade", family) for family in _families_to_come(plugin, attachment))
        case _:
            return frozenset()
    return frozenset((plugin.type, family) for family in families)


def _families_of(result: Result | None) -> frozenset[int | str]:
    found: frozenset[int | str] = frozenset(ip.address.version for ip in result.ips) if result else frozenset()
    return found or frozenset({"unknown"})


def _families_to_come(plugin: PluginConfiguration, attachment: Attachment) -> frozenset[int | str]:
    """Return the families of the addresses that IPAM will assign, or the plugin's name if only IPAM knows them."""
    ipam = {key: value for key, value in (find_object(plugin.document, "ipam") or {}).items() if key != "routes"}
    asked = [attachment.capability_args.get(key) for key in ("ips", "ipRanges")]
    arguments = [value for key, value in attachment.args if key == "IP"]
    text = render_json([ipam, asked, arguments]).decode()
    found = frozenset(version for version, address in _ADDRESSES.items() if address.search(text))
    return found or frozenset({f"of {plugin.ipam_type}"})


_ADDRESSES: Final = {4: re.compile(r"\d\.\d+\.\d+\.\d"), 6: re.compile(r"[0-9a-fA-F]::?[0-9a-fA-F/]")}
