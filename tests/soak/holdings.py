# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What plugins have made for a running container, read from the output of iproute2, tc and /proc/sys; pure.

Each item is a readable line. The lines of a link are also kept in general form, with placeholders for its name,
addresses and MAC address, so that the links of one list can be compared with each other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_str, get_int, get_objects, get_str, parse_json

INSIDE: Final = r"""
printf '%s\n' 'link show' 'addr show' 'route show table all' 'rule show' 'neigh show nud permanent' 'neigh show proxy' |
    ip -o -d -batch - 2>&1
ip -6 -o rule show | sed 's/^/IPv6 /'
tc qdisc show
grep -rs '' /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf /proc/sys/net/core/somaxconn
for pair; do
    from=${pair%,*} to=${pair#*,}
    busybox ping -c 1 -W 1 -I "$from" "$to" >/dev/null 2>&1 || echo "silent: $to" &
done
wait
"""
"""Prints what a network namespace has, and which addresses do not answer.

Its arguments are pairs of addresses, separated by a comma: a link's own, and one that must answer there."""

ON_HOST: Final = r"""
ip -json -details link show
echo
ip -o -d route show table all
tc qdisc show
"""
"""Prints the other ends of the containers' links, and the routes to them."""

_SECTION: Final = "\n"
_LINK: Final = re.compile(
    r"\d+: (?P<name>[^@:]+)(@(if(?P<end>\d+)|[^:]+))?: <(?P<flags>\S*)> mtu (?P<mtu>\d+)(?P<rest>.*)"
)
_MAC: Final = re.compile(r"link/ether (\S+)")
_ADDRESS: Final = re.compile(r"\d+: (?P<link>\S+) +(?P<family>inet6?) (?P<address>[^/ ]+)/(?P<prefix>\d+) ")
_LINK_LOCAL: Final = re.compile(r"\bfe80:|\bff00:|^multicast ")
_HANDLE: Final = re.compile(r"\b[0-9a-f]+: (?=dev )")
_VOLATILE: Final = re.compile(r"\b(refcnt \d+|tentative|nodad|linkdown) ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link in a container.

    Attributes:
        addresses: Its addresses, without prefixes and without link-local ones.
        general: Everything about it, inside and on the host, in general form.
    """

    addresses: frozenset[str]
    general: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a running container has.

    Attributes:
        lines: Everything in its namespace, and on the host for its links.
        links: Its links except `lo`, by name.
        silent: The addresses that do not answer its pings.
    """

    lines: frozenset[str]
    links: Mapping[str, Link]
    silent: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLinks:
    """The host's side.

    Attributes:
        names: The names of links, by index.
        lines: The lines about each link, by name, with LINK instead of the name.
        routes: The routes to a single address, by address, with LINK instead of the link's name.
    """

    names: Mapping[int, str]
    lines: Mapping[str, frozenset[str]]
    routes: Mapping[str, frozenset[str]]


def read_host(printed: str) -> HostLinks:
    """Parse the output of `ON_HOST`."""
    links, _, others = printed.partition(_SECTION)
    found = get_objects({"links": parse_json(links.encode())}, "links")
    lines = {get_str(link, "ifname"): {_host_link(link)} for link in found}
    routes: dict[str, set[str]] = {}
    for line in map(_plain, others.splitlines()):
        device = re.search(r"\bdev (\S+)", line)
        if device is None:
            continue
        general = re.sub(rf"\b{re.escape(device[1])}\b", "LINK", line)
        if line.startswith("qdisc "):
            lines.setdefault(device[1], set()).add(f"on the host: {general}")
        elif "table local" not in line:
            routes.setdefault(line.split()[1], set()).add(f"on the host: {general}")
    return HostLinks(
        names={get_int(link, "ifindex"): get_str(link, "ifname") for link in found},
        lines={name: frozenset(of) for name, of in lines.items()},
        routes={address: frozenset(of) for address, of in routes.items()},
    )


def read_holdings(printed: str, host: HostLinks) -> Holdings:
    """Parse the output of `INSIDE` in a container's namespace."""
    raw = printed.splitlines()
    links = {found["name"]: found for line in raw if (found := _LINK.match(line))}
    lines = [line for line in map(_read_line, raw) if line is not None]
    addresses: dict[str, set[str]] = {name: set() for name in links}
    for line in raw:
        if (found := _ADDRESS.match(line)) and not _LINK_LOCAL.search(line):
            addresses[found["link"]].add(found["address"])
    ends = {name: set(_other_end(found, addresses[name], host)) for name, found in links.items()}
    return Holdings(
        lines=frozenset((*lines, *(f"{name}: {line}" for name, of in ends.items() for line in of))),
        links={
            name: Link(
                addresses=frozenset(addresses[name]),
                general=frozenset(_generalise(name, found, addresses[name], lines)) | ends[name],
            )
            for name, found in links.items()
            if name != "lo"
        },
        silent=frozenset(line.removeprefix("silent: ") for line in raw if line.startswith("silent: ")),
    )


def _read_line(line: str) -> str | None:
    """Return a line without its irrelevant parts; None if nothing is left."""
    if found := _LINK.match(line):
        flags = " ".join(sorted(set(found["flags"].split(",")) & {"UP", "NOARP", "PROMISC", "ALLMULTI"}))
        mac = _MAC.search(found["rest"])
        return f"link {found['name']}: {flags} mtu {found['mtu']}{f' mac {mac[1]}' if mac else ''}"
    if line.startswith("silent: ") or _LINK_LOCAL.search(line) or not line.strip():
        return None
    if found := _ADDRESS.match(line):
        return f"address {found['address']}/{found['prefix']} dev {found['link']}"
    return _plain(line)


def _plain(line: str) -> str:
    return _VOLATILE.sub("", _HANDLE.sub("", line)).strip()


def _generalise(name: str, link: re.Match[str], addresses: Iterable[str], lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines about a link or its addresses, in general form."""
    mac = _MAC.search(str(link["rest"]))
    words = {name: "LINK", **{address: f"ADDRESS-{6 if ':' in address else 4}" for address in addresses}}
    if mac:
        words[mac[1]] = "MAC"
    pattern = re.compile("|".join(rf"(?<![\w.:]){re.escape(word)}(?![\w.:]*\w)" for word in words))
    for line in lines:
        general = pattern.sub(lambda found: words[found[0]], line)
        if general != line:
            yield general


def _other_end(link: re.Match[str], addresses: Iterable[str], host: HostLinks) -> Iterator[str]:
    """Yield what the host has for a link: its other end or its parent, and routes to its addresses."""
    name = host.names.get(int(link["end"] or 0))
    if link["end"] is not None and name is None:
        yield "on the host: nothing"
    yield from host.lines.get(name or "", ())
    for address in addresses:
        for route in host.routes.get(address, ()):
            yield route.replace(f" {address} ", " ADDRESS ")


def _host_link(link: JsonObject) -> str:
    info = as_object(link.get("linkinfo", {}), "linkinfo")
    port = as_object(info.get("info_slave_data", {}), "info_slave_data")
    flags: JsonValue = link.get("flags")
    is_up = isinstance(flags, list) and "UP" in flags
    found = {key: port[key] for key in ("state", "hairpin", "isolated", "learning", "flood") if key in port}
    return (
        f"on the host: {find_str(info, 'info_kind')}, master {find_str(link, 'master')}, mtu {get_int(link, 'mtu')}, "
        f"{'up' if is_up else 'down'}, {found}"
    )
