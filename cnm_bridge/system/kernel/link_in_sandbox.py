# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Works on one link in a container's sandbox.

It waits until libnetwork has placed the link, adds what the plan lacks, and removes the plan's rules again. Each call
runs completely in one short-lived thread.
"""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyroute2.netlink import NETLINK_ROUTE
from pyroute2.netlink.rtnl import (
    RTMGRP_IPV4_IFADDR,
    RTMGRP_IPV4_ROUTE,
    RTMGRP_IPV6_IFADDR,
    RTMGRP_IPV6_ROUTE,
    RTMGRP_LINK,
)

from cnm_bridge.core.link_state import IpAddress, Placement, SandboxPlan, Snapshot, attempt
from cnm_bridge.system.kernel.announcement import announce
from cnm_bridge.system.kernel.host import Host, in_thread
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import Link, find_link_by_altname
from cnm_bridge.system.kernel.netlink.routes import find_routes
from cnm_bridge.system.kernel.netlink.rules import find_rules
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.sync import is_placed, sync, withdraw

_CHANGES: Final = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE
_RECEIVE_BYTES: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInSandbox:
    """A link in a container's sandbox, found by its alternative name; its name there does not matter.

    Attributes:
        host: The host namespace.
        sandbox: The path of the container's namespace. If it does not exist or is the host namespace, the link is not
            there.
        altname: The alternative name of the link.
    """

    host: Host
    sandbox: Path
    altname: str

    @in_thread
    def look(self) -> Snapshot | None:
        """Return the link with its addresses and routes, and the sandbox's policy rules; None if it is not there.

        Raises:
            KernelError: The namespace cannot be read.
        """
        with attempt("look at", str(self)), self._found() as found:
            if found is None:
                return None
            netlink, link = found
            return Snapshot(
                link=link.state,
                addresses=find_addresses(netlink, link),
                routes=find_routes(netlink, link),
                rules=find_rules(netlink),
            )

    async def wait_placed(self, placement: Placement, limit_s: float) -> bool:
        """Wait until libnetwork has configured the link. A cancellation ends the wait immediately.

        Returns:
            Whether libnetwork has configured it within the limit.

        Raises:
            KernelError: The namespace cannot be read.
        """
        return await self.host.watch(lambda stop_fd: self._wait_placed(placement, limit_s, stop_fd))

    @in_thread
    def sync(self, sandbox_plan: SandboxPlan) -> tuple[str, ...] | None:
        """Add to the sandbox what it lacks of the plan.

        Returns:
            What was missing, in words; empty if nothing was, None if the link is not in the sandbox.

        Raises:
            SandboxNotSynced: Some of it could not be added; the rest has been.
            KernelError: The namespace cannot be read.
        """
        with attempt("sync", str(self)), self._found() as found:
            return None if found is None else sync(*found, sandbox_plan)

    @in_thread
    def withdraw(self, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
        """Remove the policy rules that `sync` added: the kernel does not remove them with the link.

        Args:
            sandbox_plan: The plan that `sync` received.

        Returns:
            The rules that have been removed, in words; none if the link is not in the sandbox.

        Raises:
            KernelError: The namespace cannot be read, or a rule cannot be removed.
        """
        with attempt("withdraw", str(self)), self._found() as found:
            return () if found is None else withdraw(*found, sandbox_plan)

    @in_thread
    def announce(self) -> tuple[IpAddress, ...] | None:
        """Announce the addresses of the link to its neighbours, see `announcement.py`.

        Returns:
            The addresses, none if the link cannot announce any; None if the link is not in the sandbox.

        Raises:
            KernelError: The kernel refused.
        """
        with attempt("announce the addresses of", str(self)), self._found() as found:
            return None if found is None else announce(*found)

    def __str__(self) -> str:
        return f"link {self.altname} in {self.sandbox}"

    def _wait_placed(self, placement: Placement, limit_s: float, stop_fd: int) -> bool:
        """Wait until libnetwork is done, `limit_s` has passed, or `stop_fd` is readable; return whether it is done."""
        deadline = time.monotonic() + limit_s
        with attempt("wait for", str(self)), self.host.inside_sandbox(self.sandbox) as netlink:
            if netlink is None:
                return False
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, NETLINK_ROUTE) as changes:
                changes.bind((0, _CHANGES))
                poll = select.poll()
                poll.register(changes, select.POLLIN)
                poll.register(stop_fd, select.POLLIN)
                while True:
                    link = find_link_by_altname(netlink, self.altname)
                    if link is not None and is_placed(netlink, link, placement):
                        return True
                    ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
                    if not ready or stop_fd in ready:
                        return False
                    _drain(changes)

    @contextmanager
    def _found(self) -> Iterator[tuple[Netlink, Link] | None]:
        """Move the thread into the sandbox; yield a netlink socket there, and the link, None if it is not there."""
        with self.host.inside_sandbox(self.sandbox) as netlink:
            link = None if netlink is None else find_link_by_altname(netlink, self.altname)
            yield None if netlink is None or link is None else (netlink, link)


def _drain(changes: socket.socket) -> None:
    """Discard the notifications so far, because the caller reads the complete state anyway."""
    while True:
        try:
            changes.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # ENOBUFS: the kernel dropped notifications
            continue
