# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Works on one link in a container's sandbox.

It waits until libnetwork has placed the link, adds what the plan lacks, and removes the plan's rules again.

It announces the link's addresses, so that neighbours on other hosts replace what they knew of an earlier one: an IPv4
address with an ARP announcement (RFC 5227, section 3), an IPv6 address with an unsolicited neighbour advertisement (RFC
4861, section 7.2.6). The frames are sent from a packet socket: a raw ICMPv6 socket would choose its source address by
the sandbox's own routes, and there is no other way for ARP.
"""

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
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

from cnm_bridge.core.errors import attempt
from cnm_bridge.core.link.plan_sandbox import Placement, SandboxPlan
from cnm_bridge.core.link_state import SCOPE_LINK, IpAddress, Snapshot
from cnm_bridge.system.kernel.host import Host, in_thread
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import Link, find_link_by_altname
from cnm_bridge.system.kernel.netlink.routes import find_routes
from cnm_bridge.system.kernel.netlink.rules import find_rules
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.sync import is_placed, sync, withdraw

_CHANGES: Final = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE
_RECEIVE_BYTES: Final = 65536

_ETHERNET: Final = struct.Struct("!6s6sH")
_ARP: Final = struct.Struct("!HHBBH6s4s6s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_ADVERTISEMENT: Final = struct.Struct("!BBHI16sBB6s")

_ETH_P_ARP: Final = 0x0806
_ETH_P_IP: Final = 0x0800
_ETH_P_IPV6: Final = 0x86DD
_BROADCAST: Final = b"\xff" * 6
_ALL_NODES: Final = IPv6Address("ff02::1")
_ALL_NODES_MAC: Final = bytes.fromhex("333300000001")
_MAC_BYTES: Final = 6

_NEIGHBOUR_ADVERTISEMENT: Final = 136
_OVERRIDE: Final = 1 << 29
_TARGET_LINK_LAYER_ADDRESS: Final = 2
_HOP_LIMIT: Final = 255  # others are dropped (RFC 4861, section 7.1.2)
_VERSION_6: Final = 6 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInSandbox:
    """A link in a container's sandbox, found by its alternative name; its name there does not matter.

    Every call raises `KernelError` if the namespace cannot be read, or the kernel refuses. If the namespace does not
    exist or is the host's, the link is not there.
    """

    host: Host
    sandbox: Path
    altname: str

    @in_thread
    def look(self) -> Snapshot | None:
        """Return the link with its addresses and routes, and the sandbox's policy rules; None if it is not there."""
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
        """Return whether libnetwork configures the link within a limit. A cancellation ends the wait immediately."""
        return await self.host.watch(lambda stop_fd: self._wait_placed(placement, limit_s, stop_fd))

    @in_thread
    def sync(self, sandbox_plan: SandboxPlan) -> tuple[str, ...] | None:
        """Add to the sandbox what it lacks of the plan; return it in words, None if the link is not in the sandbox.

        Raise `KernelError` if some of it could not be added; the rest has been.
        """
        with attempt("sync", str(self)), self._found() as found:
            return None if found is None else sync(*found, sandbox_plan)

    @in_thread
    def withdraw(self, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
        """Remove the policy rules that `sync` added, which the kernel does not remove with the link.

        Return them in words; none if the link is not in the sandbox.
        """
        with attempt("withdraw", str(self)), self._found() as found:
            return () if found is None else withdraw(*found, sandbox_plan)

    @in_thread
    def announce(self) -> tuple[IpAddress, ...] | None:
        """Announce the addresses of the link to its neighbours, and return them; None if it is not in the sandbox."""
        with attempt("announce the addresses of", str(self)), self._found() as found:
            return None if found is None else _announce(*found)

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


def _announce(netlink: Netlink, link: Link) -> tuple[IpAddress, ...]:
    """Announce the addresses of a link, except link-local ones, from the thread's namespace; return them.

    Nothing is announced on a link that does not resolve addresses, or has no Ethernet address.
    """
    mac = bytes.fromhex((link.state.mac or "").replace(":", ""))
    addresses = tuple(dict.fromkeys(one.address.ip for one in find_addresses(netlink, link) if one.scope < SCOPE_LINK))
    if link.state.noarp or len(mac) != _MAC_BYTES or not addresses:
        return ()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:  # protocol 0: it receives nothing
        packets.bind((link.state.name, 0))
        for address in addresses:
            packets.send(frame(mac, address))
    return addresses


def frame(mac: bytes, address: IpAddress) -> bytes:
    """Return the Ethernet frame that announces an address of the link with a MAC."""
    return _arp(mac, address) if isinstance(address, IPv4Address) else _advertisement(mac, address)


def _arp(mac: bytes, address: IPv4Address) -> bytes:
    """Return a request for the address itself: hosts that know the address learn the MAC from the sender."""
    own = address.packed
    request = _ARP.pack(1, _ETH_P_IP, _MAC_BYTES, len(own), 1, mac, own, bytes(_MAC_BYTES), own)
    return _ETHERNET.pack(_BROADCAST, mac, _ETH_P_ARP) + request


def _advertisement(mac: bytes, address: IPv6Address) -> bytes:
    own, to = address.packed, _ALL_NODES.packed

    def message(checksum: int) -> bytes:
        option = (_TARGET_LINK_LAYER_ADDRESS, 1, mac)
        return _ADVERTISEMENT.pack(_NEIGHBOUR_ADVERTISEMENT, 0, checksum, _OVERRIDE, own, *option)

    length = _ADVERTISEMENT.size
    pseudo_header = own + to + struct.pack("!II", length, socket.IPPROTO_ICMPV6)
    packet = message(_checksum(pseudo_header + message(0)))
    header = _IPV6.pack(_VERSION_6, length, socket.IPPROTO_ICMPV6, _HOP_LIMIT, own, to)
    return _ETHERNET.pack(_ALL_NODES_MAC, mac, _ETH_P_IPV6) + header + packet


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
