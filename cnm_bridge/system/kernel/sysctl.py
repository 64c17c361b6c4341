# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads and writes the sysctls of the calling thread's network namespace: /proc/sys/net is per thread.

A setting is named by its path below /proc/sys, e.g. `net/ipv4/conf/eth0/arp_notify`. The settings of a new link start
with the namespace's defaults, so a baseline taken before the plugins run shows what they changed. A namespace has about
700 settings, which take 5 to 10 ms to read for the first time; so the caller selects those that matter.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cnm_bridge.core.link_state import Observation, Sysctl

_ROOT: Final = "/proc/sys"
_IPV6: Final = f"{_ROOT}/net/ipv6"
_OF_A_LINK: Final = re.compile(r"(net/ipv[46]/(?:conf|neigh))/([^/]+)/")
_FORWARDING: Final = "net/ipv4/ip_forward"  # also sets `forwarding` of all links, and other settings for a router
_LONGEST: Final = 4096  # bytes of a value

_NOT_CARRIED: Final = re.compile(
    r"accept_dad$"  # switched off in staging, so that plugins need not wait
    r"|^net/ipv6/conf/[^/]+/mtu$"  # follows the MTU of the link
    r"|^net/netfilter/nf_conntrack_(count|buckets)$"  # a counter; shared by all namespaces
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The settings of a staging namespace before plugins ran, and what to capture afterwards.

    Values are by name. For the settings of the link, which does not exist yet, they are those of `default`.
    """

    observation: Observation
    ifname: str
    values: Mapping[str, str]


def has_ipv6() -> bool:
    """Return whether the kernel has IPv6; `ipv6.disable=1` removes it."""
    return os.access(_IPV6, os.F_OK)


def is_ipv6_on(link: str) -> bool | None:
    """Return whether a link, or a new one if it does not exist, accepts IPv6 addresses; None if the kernel has none."""
    if not has_ipv6():
        return None
    scope = link if link and os.access(f"{_IPV6}/conf/{link}", os.F_OK) else "default"
    return read_setting(f"net/ipv6/conf/{scope}/disable_ipv6") != "1"


def is_ipv6_disabled() -> bool:
    """Return whether IPv6 is disabled on all links of the namespace, by `net.ipv6.conf.all.disable_ipv6=1`."""
    return read_setting("net/ipv6/conf/all/disable_ipv6") == "1"


def write_ipv6(scope: str, setting: str, value: int) -> None:
    """Set `net.ipv6.conf.<scope>.<setting>`; the scope is a link, `default` or `all`."""
    write_setting(f"net/ipv6/conf/{scope}/{setting}", str(value))


def write_setting(name: str, value: str) -> None:
    """Set a setting; an `OSError` has the file name."""
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
    except OSError:  # some settings are write-only, others unreadable until they have been written
        return None
    finally:
        os.close(fd)


def name_for_link(name: str, old: str, new: str) -> str:
    """Return the name of a setting with the link name `old` replaced by `new`; other names are returned unchanged."""
    found = _OF_A_LINK.match(name)
    return f"{found[1]}/{new}/{name[found.end() :]}" if found and found[2] == old else name


def take_baseline(observation: Observation, ifname: str) -> Baseline:
    """Read the values that `changed_settings` compares with."""
    names = _all_names() if observation.settings is None else [_origin(name, ifname) for name in observation.settings]
    return Baseline(observation=observation, ifname=ifname, values=_read(names))


def changed_settings(baseline: Baseline) -> tuple[Sysctl, ...]:
    """Return the settings that have changed, in the order in which they must be set.

    A setting that did not exist before, for example of a module that has been loaded since, is not included. The
    setting of a link is included if setting the one of all links would change it. So are all settings that the
    configuration makes plugins set, changed or not.
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
    """Sort key: settings that change others come first."""
    return name != _FORWARDING, "/all/" not in name, "/default/" not in name, name


def _of_link(name: str, ifname: str) -> str:
    """Return the link's setting that a setting for all links changes; for other names, the name itself."""
    if name == _FORWARDING:
        return f"net/ipv4/conf/{ifname}/forwarding"
    return name_for_link(name, "all", ifname)


def _origin(name: str, ifname: str) -> str:
    """Return the setting that the kernel copies to this setting of a new link."""
    # Only the initial namespace shows the defaults for neighbours; `lo` has the same values.
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
