# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Packet filter rules: whether the namespace of the calling thread has any. They cannot be carried into another one."""

import os
import socket
import struct
from pathlib import Path
from typing import Final

from pyroute2.netlink import NETLINK_NETFILTER, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR

__all__ = ["find_firewall"]

_GET_TABLES: Final = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_ANY_FAMILY: Final = bytes(4)  # nfgenmsg
_IPTABLES: Final = ("ip_tables_names", "ip6_tables_names")


def find_firewall(*, reply_limit_s: float) -> str | None:
    """Tell, in words, which packet filter has rules or tables here; None where none has."""
    if _has_nftables(reply_limit_s):
        return "nftables tables"
    for file in _IPTABLES:
        path = Path("/proc/thread-self/net", file)
        if os.access(path, os.R_OK) and path.read_text().strip():
            return "iptables tables"
    return None


def _has_nftables(reply_limit_s: float) -> bool:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as conversation:
        conversation.settimeout(reply_limit_s)
        length = _HEADER.size + len(_ANY_FAMILY)
        conversation.send(_HEADER.pack(length, _GET_TABLES, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + _ANY_FAMILY)
        _, kind, *_ = _HEADER.unpack_from(conversation.recv(65536))
    return kind not in {NLMSG_DONE, NLMSG_ERROR}  # an error: the kernel has no nftables
