# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The DHCP leases of endpoints: which daemon keeps one, how to get it again, how to release it.

The CNI DHCP daemon has its leases in its memory: another process at the same socket has none of them. The first plugin
of a list gets the lease itself, in its ADD, and releases it in its DEL. Here the IPAM plugin `dhcp` is executed alone:
the link and its addresses stay as they are.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_state import EndpointRecord, ProcessRecord
from cni_invoker import NetworkConfigurationList, PluginConfiguration, Result, Runtime
from cni_invoker.advanced import DeleteHooks
from cni_invoker.errors import PluginError
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import KernelError, Refused
from cnm_bridge.core.lists.dhcp import daemon_socket, explain_no_lease, find_dhcp, lease_list
from cnm_bridge.core.planning.ports import idle_without_ports
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.sockets import find_peer

_NO_SLOT: Final = DeleteHooks(in_slot=False)

_LIMIT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DhcpConnection:
    """An open connection to a daemon, on which nothing is sent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    process: ProcessRecord | None
    """The daemon; None if it is not visible."""

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


async def find_listener(path: Path) -> int:
    """Return the ID of the process that listens at a socket, 0 if it is not visible; `Refused` if none does."""
    _, writer = await _connect(path)
    pid = _listener(writer)
    writer.close()
    return pid


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError) as exc:
        reason = exc.strerror or f"no connection within {_LIMIT_S:g} s"
        raise Refused(
            f"the CNI DHCP daemon does not answer at {path}: {reason}; start it with `systemctl enable "
            "--now cni-bridge-dhcp`, or as plugin `dhcp daemon`"
        ) from exc


def _listener(writer: asyncio.StreamWriter) -> int:
    connected: socket.socket = writer.get_extra_info("socket")
    return find_peer(connected)


@dataclass(frozen=True, slots=True)
class Leases:
    """Finds the daemons that keep leases, gets leases again, and releases them; `CniError` if a plugin failed."""

    runtime: Runtime
    kernel: Kernel

    async def connect(self, path: Path) -> DhcpConnection:
        """Connect to the daemon that listens at a socket; `Refused` if none does. With socket activation it starts."""
        reader, writer = await _connect(path)
        pid, process = _listener(writer), None
        with suppress(KernelError):
            started = self.kernel.find_start(pid) if pid else None
            process = None if started is None else ProcessRecord(pid=pid, started=started)
        return DhcpConnection(reader, writer, process)

    async def find_daemon(self, endpoint: Endpoint) -> ProcessRecord | None:
        """Return the daemon of an endpoint's list; None if the list has no DHCP, or the daemon is not visible.

        Raises `Refused` if the list has DHCP, and no daemon answers.
        """
        plugin = find_dhcp(endpoint.network)
        if plugin is None:
            return None
        connection = await self.connect(daemon_socket(plugin))
        connection.close()
        return connection.process

    async def add(
        self, endpoint: Endpoint, network: NetworkConfigurationList, on_result: Callable[[Result, int], Awaitable[None]]
    ) -> Result:
        """Run ADD of a list. `Refused` says that no DHCP server gave an address; other errors are the plugins'."""
        with _explained(find_dhcp(network)):
            skipped = idle_without_ports(network)
            return await self.runtime.add(network, endpoint.attachment, on_result=on_result, skipped=skipped)

    async def release(self, endpoint: Endpoint) -> None:
        """Release the lease of an endpoint while its link is still in the sandbox; DHCP needs it.

        The DEL of the whole list finds no lease then. Does nothing if the list has no DHCP.
        """
        plugin = find_dhcp(endpoint.network)
        if plugin is not None:
            network = lease_list(endpoint.network, plugin)
            await self.runtime.delete(network, endpoint.attachment, endpoint.result, added_plugins=1)

    async def renew(self, record: EndpointRecord) -> None:
        """Get the lease of a joined endpoint again, from a daemon that does not keep it.

        What an earlier attempt may have left in the daemon is released first, because 1.1.1 would keep both leases. If
        the server gives other addresses, they are released; the link keeps its own. The caller limits how many run at
        once: a plugin waits long for a silent server, and must not take the slot of a container that starts. Raises
        `Refused` if no server gave an address, or other ones than before.
        """
        endpoint = Endpoint(record)
        plugin = find_dhcp(endpoint.network)
        if plugin is None:
            return
        network = lease_list(endpoint.network, plugin)
        await self.runtime.delete(network, endpoint.attachment, endpoint.result, added_plugins=1, hooks=_NO_SLOT)
        with _explained(plugin):
            given = await self.runtime.add(network, endpoint.attachment, in_slot=False)
        leased, has = _addresses(given), _addresses(endpoint.result)
        if not leased <= has:
            await self.runtime.delete(network, endpoint.attachment, given, added_plugins=1, hooks=_NO_SLOT)
            raise Refused(
                f"the DHCP server gave {', '.join(sorted(leased))}, and the container has "
                f"{', '.join(sorted(has)) or 'no address'}, which may be another host's now; restart the "
                "container, and give it cni.dhcp.client-id so that the server knows it again"
            )


@contextmanager
def _explained(plugin: PluginConfiguration | None) -> Iterator[None]:
    """Say that no DHCP server gave an address, if that is why an ADD fails."""
    try:
        yield
    except PluginError as exc:
        reason = None if plugin is None else explain_no_lease(plugin, exc)
        if reason is None:
            raise
        raise Refused(reason) from exc


def _addresses(result: Result | None) -> frozenset[str]:
    return frozenset(str(ip.address) for ip in result.ips) if result is not None else frozenset()
