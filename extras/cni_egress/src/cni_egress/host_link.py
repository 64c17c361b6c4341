# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where a container is attached to the host: a port of a bridge, or a link of its own."""

import errno
import socket
import struct
from collections.abc import Sequence
from typing import Final

from cni_egress.netlink import NESTED, NetlinkError, Socket, attribute, attributes
from cni_plugin import CallError, ErrorCode

__all__ = ["find_place", "ignore_control_frames"]

_GET_LINK: Final = 18
_NAME, _MASTER, _INFO = 3, 10, 18
_INFO_KIND, _INFO_DATA = 1, 2
_VLAN_FILTERING: Final = 7
_OPTIONS: Final = 46
_CHANGE_LINK: Final = 16
_LINK: Final = struct.Struct("=BxHiII")
_Fields = dict[int, bytes]


def find_place(names: Sequence[str]) -> tuple[str, str]:
    """Return the link from which a container's packets are routed, and the host's end of the container's own link.

    Args:
        names: The host's links in the result of the plugins before this one.

    Raises:
        CallError: It is no bridge and no ptp link, so that packets can leave without the host's rules (code 7).
    """
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for name in names:
            fields = _find(netlink, 0, name)
            if fields is None or _kind(fields) != "veth":
                continue
            if _MASTER not in fields:
                return name, name
            (index,) = struct.unpack("=I", fields[_MASTER])
            master = _find(netlink, index, "")
            if master is None or _kind(master) != "bridge":
                break
            bridge = master[_NAME].rstrip(b"\0").decode()
            data = dict(attributes(dict(attributes(master.get(_INFO, b""))).get(_INFO_DATA, b"")))
            if data.get(_VLAN_FILTERING, b"\0") != b"\0":
                raise CallError(
                    ErrorCode.INVALID_CONFIGURATION,
                    f"egress cannot guard a bridge with VLANs, and {bridge} has them",
                    "remove `vlan` and `vlanTrunk` from the bridge plugin, and give each VLAN a bridge of its own",
                )
            return bridge, name
    raise CallError(
        ErrorCode.INVALID_CONFIGURATION,
        "egress guards containers behind the plugins bridge and ptp only",
        "the links of macvlan, ipvlan, host-device and the like send past the rules of the host; the result before "
        f"egress has {', '.join(names) or 'no link'} on the host",
    )


def ignore_control_frames(bridge: str) -> None:
    """Have a bridge learn no hardware address from frames of LLDP and STP, which no table of nf_tables sees.

    With one such frame a container could have the bridge send it what is for its neighbor.

    Raises:
        NetlinkError: The kernel has refused.
    """
    option = struct.pack("=II", 1, 1)  # BR_BOOLOPT_NO_LL_LEARN
    data = attribute(_INFO_KIND, b"bridge\0") + attribute(_INFO_DATA | NESTED, attribute(_OPTIONS, option))
    body = _LINK.pack(0, 0, 0, 0, 0) + attribute(_NAME, bridge.encode() + b"\0") + attribute(_INFO | NESTED, data)
    with Socket(socket.NETLINK_ROUTE) as netlink:
        netlink.request(_CHANGE_LINK, 0, body)


def _find(netlink: Socket, index: int, name: str) -> _Fields | None:
    body = _LINK.pack(0, 0, index, 0, 0)
    if name:
        body += attribute(_NAME, name.encode() + b"\0")
    try:
        answer = netlink.ask(_GET_LINK, body)
    except NetlinkError as exc:
        if exc.errno in {errno.ENODEV, errno.EINVAL, errno.ERANGE}:
            return None
        raise
    return None if answer is None else dict(attributes(answer[_LINK.size :]))


def _kind(fields: _Fields) -> str:
    return dict(attributes(fields.get(_INFO, b""))).get(_INFO_KIND, b"").rstrip(b"\0").decode()
