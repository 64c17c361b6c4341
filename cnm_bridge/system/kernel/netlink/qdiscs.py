# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds and sets the root qdisc of a link, unless it is the kernel's default.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

from collections.abc import Iterator
from socket import AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE
from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWQDISC

from cnm_bridge.core.link_state import NotCarriable, Qdisc
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink

_ROOT: Final = 0xFFFFFFFF  # TC_H_ROOT
_ALONE: Final = frozenset({"bfifo", "codel", "fq", "fq_codel", "pfifo", "tbf"})
"""Kinds without classes, which the kernel accepts in the form in which it reports them."""
_FILTERED: Final = frozenset({"fq_codel"})
"""Those that can nevertheless have filters."""
_UNDERSTOOD: Final = {
    *("TCA_KIND", "TCA_OPTIONS", "TCA_STATS", "TCA_STATS2", "TCA_XSTATS"),
    "12",  # TCA_HW_OFFLOAD: a state
}


def find_qdisc(netlink: Netlink, index: int) -> Qdisc | None:
    """Return the root qdisc of the link with this index, None if it is the kernel's default.

    Raises:
        NotCarriable: There are several qdiscs, or the qdisc has classes, filters or unsupported attributes.
    """
    found = None
    for message in _with_handle(netlink, index):
        kind = message.text("TCA_KIND") or ""
        if kind not in _ALONE or message.field("parent") != _ROOT:
            raise NotCarriable(f"qdisc {kind}")
        if not message.names() <= _UNDERSTOOD:
            raise NotCarriable(f"qdisc {kind} with a size table or an estimator")
        found = _parse(message)
        if kind in _FILTERED and _has_filters(netlink, index, found.handle):
            raise NotCarriable(f"qdisc {kind} with filters")
    return found


def has_qdisc(netlink: Netlink, index: int, qdisc: Qdisc) -> bool:
    """Return whether the link with this index has this root qdisc."""
    return any(
        message.field("parent") == _ROOT and _parse(message) == qdisc for message in _with_handle(netlink, index)
    )


def set_qdisc(netlink: Netlink, link: Link, qdisc: Qdisc) -> None:
    """Set the root qdisc."""
    fields = {"family": AF_UNSPEC, "index": link.index, "handle": qdisc.handle, "parent": _ROOT}
    wanted = (("TCA_KIND", qdisc.kind), ("TCA_OPTIONS", qdisc.options))
    netlink.request(RTM_NEWQDISC, fields, wanted, flags=NLM_F_CREATE | NLM_F_REPLACE)


def _with_handle(netlink: Netlink, index: int) -> Iterator[Message]:
    """Yield the qdiscs of a link that have a handle; the kernel's default has none."""
    for message in netlink.dump(RTM_GETQDISC, {"family": AF_UNSPEC}):
        if message.field("index") == index and message.field("handle"):
            yield message


def _parse(message: Message) -> Qdisc:
    kind, options = message.text("TCA_KIND") or "", message.find("TCA_OPTIONS") or b""
    return Qdisc(kind=kind, handle=message.field("handle"), options=options)


def _has_filters(netlink: Netlink, index: int, handle: int) -> bool:
    return bool(netlink.dump(RTM_GETTFILTER, {"family": AF_UNSPEC, "index": index, "parent": handle}))
