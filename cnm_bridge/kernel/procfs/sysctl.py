# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Settings of the network namespace that the calling thread is in: /proc/sys/net shows each thread its own.

A setting is named by its path below /proc/sys, e.g. `net/ipv4/conf/eth0/arp_notify`. Those of a link begin as what the
namespace has for new links; so what a plugin changed shows in comparison with a baseline taken before it ran. A
namespace has some seven hundred, which cost 5 to 10 ms to read for the first time: the caller says which are of
interest.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cnm_bridge.kernel.records.extras import Sysctl

__all__ = [
    "Baseline",
    "Observation",
    "changed_settings",
    "has_ipv6",
    "name_for_link",
    "read_setting",
    "take_baseline",
    "write_ipv6",
    "write_setting",
]

_ROOT: Final = "/proc/sys"
_IPV6: Final = f"{_ROOT}/net/ipv6"
_OF_A_LINK: Final = re.compile(r"(net/ipv[46]/(?:conf|neigh))/([^/]+)/")
_FORWARDING: Final = "net/ipv4/ip_forward"  # sets those of all links, and others to what fits routers or hosts
_LONGEST: Final = 4096  # bytes of a value

_NOT_CARRIED: Final = re.compile(
    r"accept_dad$"  # switched off in staging, so that plugins need not wait
    r"|^net/ipv6/conf/[^/]+/mtu$"  # follows the MTU of the link
    r"|^net/netfilter/nf_conntrack_(count|buckets)$"  # counts; belongs to all namespaces
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is captured in a staging namespace besides links, addresses, routes, rules, neighbours and qdiscs.

    Attributes:
        settings: Names of settings to compare, None for all.
        stated: Names of settings that the configuration makes plugins set. They are carried even if unchanged, because
            Docker sets other values for some of them.
        thorough: Whether to look for everything that cannot be carried, such as packet filter rules.
    """

    settings: tuple[str, ...] | None = ()
    stated: tuple[str, ...] = ()
    thorough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a staging namespace was before plugins ran.

    Attributes:
        observation: What is looked at.
        ifname: What the link will be called.
        values: The values of settings by name; those of the link are `default`'s.
    """

    observation: Observation
    ifname: str
    values: Mapping[str, str]


def has_ipv6() -> bool:
    """Return whether the kernel has IPv6 at all (it has not with `ipv6.disable=1`)."""
    return os.access(_IPV6, os.F_OK)


def write_ipv6(scope: str, setting: str, value: int) -> None:
    """Set `net.ipv6.conf.<scope>.<setting>`; the scope is a link, `default` or `all`.

    Raises:
        OSError: Names the file.
    """
    write_setting(f"net/ipv6/conf/{scope}/{setting}", str(value))


def write_setting(name: str, value: str) -> None:
    """Set a setting; errors as in `write_ipv6`."""
    fd = os.open(f"{_ROOT}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def read_setting(name: str) -> str | None:
    """Return the value of a setting, None if there is none or it cannot be read."""
    try:
        fd = os.open(f"{_ROOT}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, _LONGEST).decode(errors="surrogateescape").rstrip("\n")
    except OSError:  # some can only be written, some only be read once they have been written
        return None
    finally:
        os.close(fd)


def name_for_link(name: str, old: str, new: str) -> str:
    """Return the name that a setting of the link `old` has for `new`; any other stays as it is."""
    found = _OF_A_LINK.match(name)
    return f"{found[1]}/{new}/{name[found.end() :]}" if found and found[2] == old else name


def take_baseline(observation: Observation, ifname: str) -> Baseline:
    """Read what `changed_settings` compares with."""
    names = _all_names() if observation.settings is None else [_origin(name, ifname) for name in observation.settings]
    return Baseline(observation=observation, ifname=ifname, values=_read(names))


def changed_settings(baseline: Baseline) -> tuple[Sysctl, ...]:
    """Return the settings that have changed, in the order in which they must be set.

    A setting that did not exist before, for example of a module that was loaded meanwhile, is not included. The setting
    of a link is included if setting the one of all links would change it. So are all settings that the configuration
    makes plugins set, changed or not.
    """
    observation = baseline.observation
    names = _all_names() if observation.settings is None else observation.settings
    values = _read(sorted({*names, *observation.stated}, key=_order))
    changed = {
        name: value
        for name, value in values.items()
        if (before := baseline.values.get(_origin(name, baseline.ifname))) is not None and before != value
    }
    kept = {*changed, *(_of_link(name, baseline.ifname) for name in changed)}
    return tuple(
        Sysctl(name=name, value=value)
        for name, value in values.items()
        if name in observation.stated or (name in kept and not _NOT_CARRIED.search(name))
    )


def _order(name: str) -> tuple[bool, bool, bool, str]:
    """Sort key: what changes others comes before them."""
    return name != _FORWARDING, "/all/" not in name, "/default/" not in name, name


def _of_link(name: str, ifname: str) -> str:
    """Return the name of a link's own setting for that of all links, else the name itself."""
    if name == _FORWARDING:
        return f"net/ipv4/conf/{ifname}/forwarding"
    return name_for_link(name, "all", ifname)


def _origin(name: str, ifname: str) -> str:
    """Return the name of the setting whose value a setting of a new link has."""
    # only the machine's first namespace shows the defaults of neighbours; `lo` has them as well
    return name_for_link(name, ifname, "lo" if "/neigh/" in name else "default")


def _read(names: Iterable[str]) -> dict[str, str]:
    values = ((name, read_setting(name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _all_names() -> list[str]:
    names: list[str] = []
    directories = ["net"]
    while directories:
        directory = directories.pop()
        with os.scandir(f"{_ROOT}/{directory}") as entries:
            for entry in entries:
                kind = directories if entry.is_dir() else names
                kind.append(f"{directory}/{entry.name}")
    return names
