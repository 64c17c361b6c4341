# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Looks for packet filter rules in the namespace of the calling thread."""

import os
import socket
import struct
from errno import EOPNOTSUPP, EPROTONOSUPPORT
from pathlib import Path
from typing import Final

from pyroute2.netlink import (
    NETLINK_NETFILTER,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
)

_GET_TABLES: Final = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_ANY_FAMILY: Final = bytes(4)  # nfgenmsg
_IPTABLES: Final = ("ip_tables_names", "ip6_tables_names", "arp_tables_names")


def find_firewall(*, reply_limit_s: float) -> str | None:
    """Return which packet filter has tables in this namespace, in words; None if none has."""
    if _has_nftables(reply_limit_s):
        return "nftables tables"
    for file in _IPTABLES:
        path = Path("/proc/thread-self/net", file)
        if os.access(path, os.R_OK) and path.read_text().strip():
            return "iptables tables"
    return None


def _has_nftables(reply_limit_s: float) -> bool:
    """Return whether a dump of the tables has any; a kernel without nftables has none."""
    try:
        conversation = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    except OSError as exc:
        if exc.errno in {EPROTONOSUPPORT, EOPNOTSUPP}:
            return False
        raise
    with conversation:
        conversation.settimeout(reply_limit_s)
        size = _HEADER.size + len(_ANY_FAMILY)
        conversation.send(_HEADER.pack(size, _GET_TABLES, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + _ANY_FAMILY)
        _, kind, *_ = _HEADER.unpack_from(conversation.recv(65536))
    return kind not in {NLMSG_DONE, NLMSG_ERROR}
