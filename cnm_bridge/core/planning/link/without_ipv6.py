# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A link on which IPv6 is disabled, although its list gives IPv6 addresses; pure.

The option `com.docker.network.endpoint.sysctls` disables it on one link. `docker run --sysctl
net.ipv6.conf.all.disable_ipv6=1` disables it on all links; Docker does not tell a driver. It enables IPv6 on a link of
which it knows an IPv6 address (moby `libnetwork/osl/interface_linux.go`, setInterfaceIPv6), and so do plugins. As on
Docker's own networks, such a link has no IPv6, whatever the list says.
"""

from dataclasses import replace
from typing import Final

from cnm_bridge.core.link_state import Snapshot, Sysctl

_IPV4: Final = 4
_OF_IPV6: Final = "net/ipv6/"
_AF_INET6: Final = 10


def without_ipv6(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with IPv6 disabled on the link, and nothing of IPv6."""
    return replace(
        snapshot,
        addresses=tuple(one for one in snapshot.addresses if one.address.version == _IPV4),
        routes=tuple(
            route
            for route in snapshot.routes
            if {route.destination.version, route.gateway.version if route.gateway else _IPV4} == {_IPV4}
        ),
        rules=tuple(rule for rule in snapshot.rules if rule.message[0] != _AF_INET6),
        neighbours=tuple(one for one in snapshot.neighbours if one.address.version == _IPV4),
        sysctls=(
            *(sysctl for sysctl in snapshot.sysctls if not sysctl.name.startswith(_OF_IPV6)),
            _switched_off(snapshot),
        ),
    )


def disables_ipv6(snapshot: Snapshot) -> bool:
    """Return whether the settings of the link disable IPv6, as those of `without_ipv6` do."""
    return _switched_off(snapshot) in snapshot.sysctls


def sets_ipv6(snapshot: Snapshot) -> bool:
    """Return whether plugins or options have set anything of IPv6, such as `disable_ipv6` of the link."""
    return any(sysctl.name.startswith(_OF_IPV6) for sysctl in snapshot.sysctls)


def _switched_off(snapshot: Snapshot) -> Sysctl:
    return Sysctl(name=f"net/ipv6/conf/{snapshot.link.name}/disable_ipv6", value="1")
