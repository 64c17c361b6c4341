# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's own options, `com.docker.network.*`: implemented here, left to Docker, or refused; pure.

None is ignored silently; docs/configuration.md has the table. Source of the names: moby
`daemon/libnetwork/netlabel/labels.go`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cnm_bridge.core.errors import NULL_IPAM, BadOption

_OWN_NAMES: Final = "cni."

SYSCTLS: Final = "com.docker.network.endpoint.sysctls"
"""Sysctls of the link. libnetwork applies them from Engine 27 on, this driver on all engines."""

IFNAME: Final = "com.docker.network.endpoint.ifname"
"""The name of the link (`interface_name` in compose). libnetwork lets no remote driver choose it (Join's `DstName`)."""

_ENABLE_IPV4: Final = "com.docker.network.enable_ipv4"
_ENABLE_IPV6: Final = "com.docker.network.enable_ipv6"
_MESSAGES: Final = "com.docker.network.advertise_addr_nmsgs"
_INTERVAL: Final = "com.docker.network.advertise_addr_ms"
NETWORK_OPTIONS: Final = frozenset({_ENABLE_IPV4, _ENABLE_IPV6, _MESSAGES, _INTERVAL})
"""Options that Docker itself reads for networks of any driver; this driver announces addresses as they say, too."""

_MOST_MESSAGES: Final = 3
_INTERVALS_MS: Final = range(100, 2001)
"""Both ranges and the defaults are those of moby (`osl/interface_linux.go`, `AdvertiseAddrNMsgsMax` and its like)."""

_WAYS: Final[Mapping[str, str]] = {
    "com.docker.network.container_iface_prefix": "give cni.ifname-prefix instead",
    "com.docker.network.driver.mtu": 'the plugins set the MTU; write "mtu" into the CNI configuration',
    "com.docker.network.internal": "give --internal instead",
}
"""Option → what to do instead."""
_OTHER_DRIVERS: Final[Mapping[str, str]] = {
    "parent": 'write the link as "master" into the CNI configuration; `cni-bridge network create NAME --parent LINK '
    "--subnet SUBNET` makes one, and its network",
    **dict.fromkeys(
        ("macvlan_mode", "ipvlan_mode"), 'write it as "mode" into the plugin macvlan or ipvlan of the CNI configuration'
    ),
}
"""The same for options of networks of Docker's drivers macvlan and ipvlan, whose names have no prefix."""
_BRIDGES_OWN: Final = ("com.docker.network.bridge.", "com.docker.network.host_ipv")
_FOR_BRIDGE: Final = (
    "is for networks of Docker's own driver bridge; what this network does is up to its CNI configuration"
)

_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
"""The values that Go's `strconv.ParseBool` accepts."""

_IFNAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_SYSCTL: Final = re.compile(r"(net\.(?:ipv4|ipv6)\.(?:conf|neigh))\.ifname\.([a-z0-9_]+)=([^\n]*)", re.IGNORECASE)
"""Case-insensitive, because `docker run --network name=N,driver-opt=…` of 20.10 converts options to lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSetting:
    """A sysctl of the container's link.

    Attributes:
        family: Its directory below /proc/sys, e.g. `net/ipv4/conf`.
        name: Its name, e.g. `log_martians`.
    """

    family: str
    name: str
    value: str

    def path(self, ifname: str) -> str:
        """Return the path below /proc/sys for a link."""
        return f"{self.family}/{ifname}/{self.name}"

    def __str__(self) -> str:
        return self.path("IFNAME").replace("/", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcements:
    """How often the addresses of a network's endpoints are announced to their neighbours, and with which pause."""

    count: int = _MOST_MESSAGES
    interval_s: float = 1.0


def refuse_docker_option(option: str) -> None:
    """Refuse an option of Docker or its drivers that is known to have no effect on networks of this driver.

    Raises:
        BadOption: It is one.
    """
    way = _WAYS.get(option) or _OTHER_DRIVERS.get(option) or (_FOR_BRIDGE if option.startswith(_BRIDGES_OWN) else None)
    if way is not None:
        raise BadOption(option, way)


def split_unknown(options: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return an endpoint's options that are ours or known to be Docker's, and the names of the others.

    Docker and other tools add options of their own (a newer engine, docker-py, compose). They are no reason to refuse
    a container: no driver of Docker's does, so the caller logs them. Names that begin as ours remain, and are refused.
    """
    known = {IFNAME, SYSCTLS, *_WAYS}
    unknown = tuple(
        option
        for option in sorted(options)
        if option not in known and not option.lower().startswith((_OWN_NAMES, *_BRIDGES_OWN))
    )
    return {option: value for option, value in options.items() if option not in unknown}, unknown


def refuse_unread(options: Mapping[str, str], *, ipv4: bool | None, ipv6: bool) -> None:
    """Refuse options of a network that its engine ignores because it is too old.

    They are the user's `-o` options and the engine's `default-network-opts`. `ipv4` and `ipv6` say what is enabled in
    Docker's IPAM; `ipv4` is None before Engine 28, which does not send it.

    Raises:
        BadOption: One is ignored, or has an invalid value.
    """
    flags = {}
    for option in (_ENABLE_IPV4, _ENABLE_IPV6):
        if option in options:
            if options[option] not in _BOOLEANS:
                raise BadOption(option, f"{options[option]!r} is neither true nor false")
            flags[option] = _BOOLEANS[options[option]]
    if ipv4 is not None:  # Engine 28 reads them; a different value comes from --ipv4 or --ipv6, which take precedence
        return
    if not flags.get(_ENABLE_IPV4, True):
        raise BadOption(
            _ENABLE_IPV4,
            f"this Docker Engine does not read it, being older than 28; make the network with {NULL_IPAM}",
        )
    if flags.get(_ENABLE_IPV6, ipv6) != ipv6:
        raise BadOption(_ENABLE_IPV6, "this Docker Engine does not read it; give --ipv6, or leave that out, instead")


def parse_announcements(options: Mapping[str, str]) -> Announcements:
    """Return how addresses are announced on a network with these options."""
    announcements = Announcements()
    if _MESSAGES in options:
        announcements = replace(
            announcements, count=_parse_number(_MESSAGES, options[_MESSAGES], range(_MOST_MESSAGES + 1))
        )
    if _INTERVAL in options:
        announcements = replace(
            announcements, interval_s=_parse_number(_INTERVAL, options[_INTERVAL], _INTERVALS_MS) / 1000
        )
    return announcements


def _parse_number(option: str, text: str, allowed: range) -> int:
    number = int(text) if text.isascii() and text.isdigit() else -1
    if number not in allowed:
        raise BadOption(option, f"{text!r} is not a number from {allowed[0]} to {allowed[-1]}")
    return number


def parse_ifname(text: str) -> str:
    """Parse the name of a link."""
    if _IFNAME.fullmatch(text) is None or text in {".", "..", "lo"}:
        raise BadOption(IFNAME, f"{text!r} cannot be the name of a link; give 1 to 15 letters, digits, '_', '-' or '.'")
    return text


def parse_sysctls(text: str) -> tuple[LinkSetting, ...]:
    """Parse settings such as `net.ipv4.conf.IFNAME.log_martians=1,net.ipv4.neigh.IFNAME.app_solicit=3`."""
    settings = []
    for part in map(str.strip, text.split(",")):
        match = _SYSCTL.fullmatch(part)
        if match is None:
            raise BadOption(
                SYSCTLS,
                f"{part!r} is not of the form net.ipv4.conf.IFNAME.NAME=VALUE, with IFNAME as it stands here; net.ipv6 "
                "and neigh are possible too",
            )
        family = match[1].lower().replace(".", "/")
        settings.append(LinkSetting(family=family, name=match[2].lower(), value=match[3].strip()))
    return tuple(settings)
