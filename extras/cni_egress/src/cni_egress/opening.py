# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Opens the addresses of answers in the kernel, in a thread of its own: the kernel may be busy for seconds."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from cni_egress.elements import Elements
from cni_egress.nftables import Nftables
from cni_egress.policy import Ports
from cni_egress.records import IpAddress, Record, Records
from cni_egress.routes import Routes

__all__ = ["OpeningThread"]


class OpeningThread:
    """The thread that opens addresses, one answer after another.

    Args:
        records: Says whether the record that an answer is for is still in force.
    """

    def __init__(self, records: Records) -> None:
        self._nftables = Nftables()
        self._elements = Elements(self._nftables, records)
        self._routes = Routes()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="opening")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._routes.close()
        self._nftables.close()

    @property
    def port(self) -> int:
        """The netlink port of what it changes."""
        return self._nftables.netlink.port

    async def open(
        self, record: Record, addresses: tuple[IpAddress, ...], ports: Ports, timeout_s: float
    ) -> frozenset[IpAddress]:
        """Let a container reach addresses at ports, and return when the kernel has acknowledged it.

        Returns:
            Those among the addresses that are the host's own, which are not opened.

        Raises:
            RecordGone: The record is no longer in force; nothing was opened.
            NetlinkError: The kernel refuses.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._open, record, addresses, ports, timeout_s)

    def _open(
        self, record: Record, addresses: tuple[IpAddress, ...], ports: Ports, timeout_s: float
    ) -> frozenset[IpAddress]:
        own = frozenset(address for address in addresses if self._routes.is_hosts_own(address))
        destinations = [address for address in addresses if address not in own]
        if destinations:
            self._elements.allow(record, destinations, ports, timeout_s)
        return own
