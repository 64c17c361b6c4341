# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Works on one link in a container's sandbox.

It waits until libnetwork has placed the link, adds what the plan lacks, and removes the plan's rules again. Each call
runs completely in one short-lived thread, which starts in the host namespace.
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

from cnm_bridge.core.link_state import IpAddress, NamespaceMissing, Placement, SandboxPlan, Snapshot, attempt
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, enter, namespace_id, open_namespace
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import Link, find_link_by_altname
from cnm_bridge.system.kernel.netlink.routes import find_routes
from cnm_bridge.system.kernel.netlink.rules import find_rules
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.sandbox.announcement import announce
from cnm_bridge.system.kernel.sandbox.apply import is_placed, sync, withdraw

_CHANGES: Final = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE
_RECEIVE_BYTES: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInSandbox:
    """Work on one link in its sandbox. `Kernel` describes the methods.

    Attributes:
        host: The host namespace.
        sandbox: The path of the container's namespace.
        altname: The alternative name of the link.
        reply_limit_s: Time limit of one netlink reply, in seconds.
    """

    host: NamespaceId
    sandbox: Path
    altname: str
    reply_limit_s: float

    def sync(self, sandbox_plan: SandboxPlan) -> tuple[str, ...] | None:
        """Add what is missing and return it in words; None if the link is not in the sandbox."""
        with attempt("sync", str(self)), self._found() as found:
            return None if found is None else sync(*found, sandbox_plan)

    def look(self) -> Snapshot | None:
        """Return the link with its addresses and routes, and the sandbox's rules; None if it is not there."""
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

    def announce(self) -> tuple[IpAddress, ...] | None:
        """Announce the link's addresses and return them; None if the link is not in the sandbox."""
        with attempt("announce the addresses of", str(self)), self._found() as found:
            return None if found is None else announce(*found)

    def withdraw(self, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
        """Remove the plan's policy rules and return them in words; none if the link is not in the sandbox."""
        with attempt("withdraw", str(self)), self._found() as found:
            return () if found is None else withdraw(*found, sandbox_plan)

    def wait_placed(self, placement: Placement, stop_fd: int, limit_s: float) -> bool:
        """Wait until libnetwork is done, `limit_s` has passed, or `stop_fd` is readable; return whether it is done."""
        deadline = time.monotonic() + limit_s
        with attempt("wait for", str(self)), self._inside() as netlink:
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

    def __str__(self) -> str:
        return f"link {self.altname} in {self.sandbox}"

    @contextmanager
    def _found(self) -> Iterator[tuple[Netlink, Link] | None]:
        """Move the thread into the sandbox; yield a netlink socket there, and the link, None if it is not there."""
        with self._inside() as netlink:
            link = None if netlink is None else find_link_by_altname(netlink, self.altname)
            yield None if netlink is None or link is None else (netlink, link)

    @contextmanager
    def _inside(self) -> Iterator[Netlink | None]:
        """Move the thread into the sandbox; yield a netlink socket there; None if it is missing or the host's."""
        try:
            with open_namespace(self.sandbox) as fd:
                if is_sandbox := namespace_id(fd) != self.host:
                    enter(fd, host=self.host)
        except NamespaceMissing:
            is_sandbox = False
        if not is_sandbox:
            yield None
            return
        with Netlink(reply_limit_s=self.reply_limit_s) as netlink:
            yield netlink


def _drain(changes: socket.socket) -> None:
    """Discard the notifications so far, because the caller reads the complete state anyway."""
    while True:
        try:
            changes.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # ENOBUFS: the kernel dropped notifications
            continue
