# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The pyroute2 class of each rtnetlink message that is used.

pyroute2's own table imports the classes of all messages and its sockets, three times as much. Those of traffic control
take a twentieth of the start-up time, and are imported when they are first needed.
"""

from collections.abc import Mapping
from typing import Final

from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

__all__ = ["message_class"]

_CLASSES: Final[Mapping[int, type]] = {
    rtnl.RTM_NEWLINK: ifinfmsg,
    rtnl.RTM_DELLINK: ifinfmsg,
    rtnl.RTM_GETLINK: ifinfmsg,
    rtnl.RTM_NEWLINKPROP: ifinfmsg,
    rtnl.RTM_DELLINKPROP: ifinfmsg,
    rtnl.RTM_NEWADDR: ifaddrmsg,
    rtnl.RTM_DELADDR: ifaddrmsg,
    rtnl.RTM_GETADDR: ifaddrmsg,
    rtnl.RTM_NEWROUTE: rtmsg,
    rtnl.RTM_DELROUTE: rtmsg,
    rtnl.RTM_GETROUTE: rtmsg,
    rtnl.RTM_NEWRULE: fibmsg,
    rtnl.RTM_DELRULE: fibmsg,
    rtnl.RTM_GETRULE: fibmsg,
    rtnl.RTM_NEWNEIGH: ndmsg,
    rtnl.RTM_DELNEIGH: ndmsg,
    rtnl.RTM_GETNEIGH: ndmsg,
}
_TRAFFIC_CONTROL: Final = frozenset({rtnl.RTM_NEWQDISC, rtnl.RTM_GETQDISC, rtnl.RTM_NEWTFILTER, rtnl.RTM_GETTFILTER})


def message_class(kind: int) -> type:
    """Return the class of a message type."""
    if kind in _TRAFFIC_CONTROL:
        from pyroute2.netlink.rtnl.tcmsg import tcmsg  # noqa: PLC0415

        found: type = tcmsg
        return found
    return _CLASSES[kind]
