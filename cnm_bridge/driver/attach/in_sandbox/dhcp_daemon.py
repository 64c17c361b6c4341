# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the CNI DHCP daemon, to which the IPAM plugin `dhcp` passes its requests.

Its leases are in its memory: another process at the same socket has none of them.
"""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_state import ProcessRecord
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.process.sockets import find_peer

_LIMIT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DhcpConnection:
    """An open connection to a daemon, on which nothing is sent.

    Attributes:
        process: The daemon; None if it is not visible.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    process: ProcessRecord | None

    async def wait_closed(self) -> None:
        """Wait until the daemon has ended."""
        try:
            while await self.reader.read(1024):
                pass
        except OSError:
            pass

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


@dataclass(frozen=True, slots=True)
class DhcpDaemons:
    """Finds DHCP daemons by their sockets."""

    kernel: Kernel

    async def connect(self, path: Path) -> DhcpConnection:
        """Connect to the daemon that listens at a socket. With socket activation it starts now.

        Raises:
            Refused: None does.
        """
        reader, writer = await _connect(path)
        return DhcpConnection(reader, writer, self._find_process(_listener(writer)))

    async def find(self, path: Path) -> ProcessRecord | None:
        """Return the daemon that listens at a socket, None if it is not visible.

        Raises:
            Refused: None does.
        """
        connection = await self.connect(path)
        connection.close()
        return connection.process

    def _find_process(self, pid: int) -> ProcessRecord | None:
        try:
            started = self.kernel.find_start(pid) if pid else None
        except KernelError:
            return None
        return None if started is None else ProcessRecord(pid=pid, started=started)


async def find_listener(path: Path) -> int:
    """Return the ID of the process that listens at a daemon's socket, 0 if it is not visible.

    Raises:
        Refused: None does.
    """
    _, writer = await _connect(path)
    pid = _listener(writer)
    writer.close()
    return pid


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError) as exc:
        raise Refused(
            f"the CNI DHCP daemon does not answer at {path}: {_reason(exc)}; start it with `systemctl enable "
            "--now cni-bridge-dhcp`, or as plugin `dhcp daemon`"
        ) from exc


def _listener(writer: asyncio.StreamWriter) -> int:
    connected: socket.socket = writer.get_extra_info("socket")
    return find_peer(connected)


def _reason(exc: OSError | TimeoutError) -> str:
    return exc.strerror or f"no connection within {_LIMIT_S:g} s"
