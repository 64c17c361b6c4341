# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The crash matrix notices whatever a DEL takes from a neighbour."""

from typing import Final

import pytest

from tests.crash.host import Host
from tests.crash.lists import LISTS
from tests.crash.matrix import try_cell
from tests.crash.moved import Call, MovedStory
from tests.lab import Lab

_HARMFUL: Final = "harmful"
_HARM: Final = "/run/crash/harm"
_PLUGIN: Final = f"""#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}}' ;;
ADD) sed 's/.*"prevResult"://; s/}}$//' ;;
DEL) . {_HARM} ;;
esac
"""
"""A plugin whose DEL does to others what a file says."""
_INSIDE: Final = "nsenter --net=/run/netns/neighbour"
_NUMBER: Final = (
    "number() { iptables -t nat -S $1 | grep -n -- $2 | head -n 1 | { IFS=: read n _; echo $((n - 1)); }; }"
)

HARMS: Final = {
    "iptables -D CNI-FORWARD -s 10.81.0.2/32 -j ACCEPT": (
        "ip filter -A CNI-FORWARD -s 10.81.0.2/32 -j ACCEPT",
        "no connection: the host outside, 198.51.100.2",
    ),
    f"{_NUMBER}; iptables -t nat -D CNI-HOSTPORT-DNAT $(number CNI-HOSTPORT-DNAT 8080)": (
        "ip nat -A CNI-HOSTPORT-DNAT -p tcp ",
        "no connection: from outside to its published port",
    ),
    "ip6tables -t nat -F POSTROUTING": (
        "ip6 nat -A POSTROUTING -s fd81::2/128 ",
        "no connection: the host outside, fd98::2",
    ),
    "ip route del fd81::/64": ("the host has lost: fd81::", "no connection: gateway fd81::1"),
    f"{_INSIDE} ip route del default": ("its sandbox has lost: default via 10.81.0.1",),
    f"{_INSIDE} ip rule add from 10.81.0.2 lookup 100": ("its sandbox has more: 32765:",),
    "rm /var/lib/cni/networks/crash/10.81.0.2": ("reservations: /var/lib/cni/networks/crash/10.81.0.2",),
}
"""What the DEL does, and the differences."""


def test_what_a_del_takes_from_a_neighbour_is_found(lab: Lab) -> None:
    """A lost rule, route, reservation or connection, and something new in the neighbour's sandbox, fail the cell."""
    lab.write(f"/opt/cni/bin/{_HARMFUL}", _PLUGIN, mode=0o755)
    lab.write(_HARM, ":\n")
    with Host(lab, [*LISTS["bridge"], {"type": _HARMFUL}]) as host:
        try_cell(host, MovedStory(host, Call.DELETE), 0)
        lab.write(_HARM, "\n".join(HARMS))
        with pytest.raises(AssertionError) as found:
            try_cell(host, MovedStory(host, Call.DELETE), 0)
    for harm, lines in HARMS.items():
        for line in lines:
            assert line in str(found.value), harm
