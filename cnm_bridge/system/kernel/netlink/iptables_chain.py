# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds one chain of iptables, by a single netlink request, whatever the number of rules.

iptables keeps its chains in nftables tables of the same names. iptables-legacy does not: its chains are not found.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Final

from pyroute2.netlink import NETLINK_NETFILTER, NLM_F_REQUEST, NLMSG_ERROR

__all__ = ["has_chain"]

_GET_CHAIN: Final = 10 << 8 | 4  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN
_TABLE, _NAME, _HOOK, _USE = 1, 3, 4, 6  # NFTA_CHAIN_TABLE and so on
_KIND: Final = 0x3FFF  # NLA_TYPE_MASK
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_FAMILY: Final = struct.Struct("=BBH")  # nfgenmsg
_ATTRIBUTE: Final = struct.Struct("=HH")  # nlattr


def has_chain(version: int, table: str, chain: str) -> bool:
    """Return whether a table of iptables has a chain, in the namespace of the calling thread; takes some 20 µs.

    A chain without rules to which no rule jumps is left of a flush (`iptables -F`) and does not count, unless it is one
    of the kernel's. What cannot be asked, for example because no descriptor is free, counts as existing.

    Args:
        version: 4 for iptables, 6 for ip6tables.
        table: The table, e.g. `nat`.
        chain: The chain.
    """
    body = _FAMILY.pack(_FAMILIES[version], 0, 0) + _attribute(_TABLE, table) + _attribute(_NAME, chain)
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
    found = dict(_attributes(reply[_HEADER.size + _FAMILY.size : length]))
    return _HOOK in found or any(found.get(_USE, b"?"))


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        length, kind = _ATTRIBUTE.unpack_from(content, at)
        yield kind & _KIND, content[at + _ATTRIBUTE.size : at + length]
        at += length + -length % 4


def _attribute(kind: int, text: str) -> bytes:
    content = text.encode() + b"\0"
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind) + content + bytes(-len(content) % 4)
