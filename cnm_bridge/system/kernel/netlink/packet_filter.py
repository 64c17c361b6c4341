# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Looks for packet filter rules and IPsec in the namespace of the calling thread."""

import os
import socket
import struct
from errno import EOPNOTSUPP, EPROTONOSUPPORT
from pathlib import Path
from typing import Final

from pyroute2.netlink import (
    NETLINK_NETFILTER,
    NETLINK_XFRM,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
)

from cnm_bridge.system.kernel.netlink.socket import render_attribute, split_attributes

_GET_TABLES: Final = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
_GET_POLICY: Final = 0x15  # XFRM_MSG_GETPOLICY
_GET_STATE: Final = 0x12  # XFRM_MSG_GETSA
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_ANY_FAMILY: Final = bytes(4)  # nfgenmsg
_IPTABLES: Final = ("ip_tables_names", "ip6_tables_names", "arp_tables_names")
_GET_CHAIN: Final = 10 << 8 | 4  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN
_TABLE, _NAME, _HOOK, _USE = 1, 3, 4, 6  # NFTA_CHAIN_TABLE and so on
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_FAMILY: Final = struct.Struct("=BBH")  # nfgenmsg


def find_firewall(*, reply_limit_s: float) -> str | None:
    """Return which packet filter has tables in this namespace, in words; None if none has."""
    if _has_any(NETLINK_NETFILTER, _GET_TABLES, _ANY_FAMILY, reply_limit_s):
        return "nftables tables"
    for file in _IPTABLES:
        path = Path("/proc/thread-self/net", file)
        if os.access(path, os.R_OK) and path.read_text().strip():
            return "iptables tables"
    return None


def has_ipsec(*, reply_limit_s: float) -> bool:
    """Return whether this namespace has IPsec policies or states."""
    return any(_has_any(NETLINK_XFRM, question, b"", reply_limit_s) for question in (_GET_POLICY, _GET_STATE))


def _has_any(protocol: int, question: int, body: bytes, reply_limit_s: float) -> bool:
    """Return whether a dump has any entry; a kernel without this protocol or request has none."""
    try:
        conversation = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    except OSError as exc:
        if exc.errno in {EPROTONOSUPPORT, EOPNOTSUPP}:
            return False
        raise
    with conversation:
        conversation.settimeout(reply_limit_s)
        header = _HEADER.pack(_HEADER.size + len(body), question, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
        conversation.send(header + body)
        _, kind, *_ = _HEADER.unpack_from(conversation.recv(65536))
    return kind not in {NLMSG_DONE, NLMSG_ERROR}


def has_chain(version: int, table: str, chain: str) -> bool:
    """Return whether a table of iptables has a chain.

    It takes one request, some 20 µs, whatever the number of rules. iptables keeps its chains in nftables tables of the
    same names. iptables-legacy does not: its chains are not found.

    A chain without rules to which no rule jumps is left of a flush (`iptables -F`) and does not count, unless it is one
    of the kernel's. What cannot be asked, for example because no descriptor is free, counts as existing.

    Args:
        version: 4 for iptables, 6 for ip6tables.
        table: The table, e.g. `nat`.
        chain: The chain.
    """
    names = ((_TABLE, table), (_NAME, chain))
    body = _FAMILY.pack(_FAMILIES[version], 0, 0)
    body += b"".join(render_attribute(number, name.encode() + b"\0") for number, name in names)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as conversation:
            conversation.send(_HEADER.pack(_HEADER.size + len(body), _GET_CHAIN, NLM_F_REQUEST, 1, 0) + body)
            # The kernel has answered before `send` returns.
            reply = conversation.recv(65536, socket.MSG_DONTWAIT)
    except OSError:
        return True
    length, kind, *_ = _HEADER.unpack_from(reply)
    if kind == NLMSG_ERROR:
        return False
    found = dict(split_attributes(reply[_HEADER.size + _FAMILY.size : length]))
    return _HOOK in found or any(found.get(_USE, b"?"))
