# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The root qdisc of a link: find one that is not the kernel's own choice, and set it.

Every function works in the namespace of the conversation it is given and raises `OSError` where the kernel refuses.
"""

from socket import AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE
from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_NEWQDISC

from cnm_bridge.kernel.carried import Qdisc
from cnm_bridge.kernel.errors import NotCarriable
from cnm_bridge.kernel.links import Link
from cnm_bridge.kernel.netlink import Netlink

__all__ = ["find_qdisc", "set_qdisc"]

_ROOT: Final = 0xFFFFFFFF  # TC_H_ROOT
_ALONE: Final = frozenset({"bfifo", "codel", "fq", "fq_codel", "pfifo", "tbf"})
"""Kinds that are whole by themselves, without classes and filters, and that the kernel takes as it tells them."""


def find_qdisc(netlink: Netlink, link: Link) -> Qdisc | None:
    """Give the root qdisc, None where nobody has set one; what the kernel chooses itself has no handle.

    Raises:
        NotCarriable: There are several, or one that is not whole by itself.
    """
    found = None
    for message in netlink.dump(RTM_GETQDISC, {"family": AF_UNSPEC}):
        handle = message.field("handle")
        if message.field("index") != link.index or not handle:
            continue
        kind = message.text("TCA_KIND") or ""
        if kind not in _ALONE or message.field("parent") != _ROOT:
            raise NotCarriable(f"qdisc {kind}")
        found = Qdisc(kind=kind, handle=handle, options=message.find("TCA_OPTIONS") or b"")
    return found


def set_qdisc(netlink: Netlink, link: Link, qdisc: Qdisc) -> None:
    """Set the root qdisc."""
    fields = {"family": AF_UNSPEC, "index": link.index, "handle": qdisc.handle, "parent": _ROOT}
    wanted = (("TCA_KIND", qdisc.kind), ("TCA_OPTIONS", qdisc.options))
    netlink.request(RTM_NEWQDISC, fields, wanted, flags=NLM_F_CREATE | NLM_F_REPLACE)
