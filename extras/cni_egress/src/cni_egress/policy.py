# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a container may reach: the entries of an allow-list, and the policy that they make; pure.

```
api.example.com              TCP 443 and 80, and UDP 443
api.example.com:22           TCP and UDP 22; :22/tcp and :8000-8100/udp, too
api.example.com:*            every protocol and port
*.example.com                each name below example.com, but not example.com
10.0.5.7, 2001:db8::/32      every protocol and port
10.0.5.0/24:5432/tcp         [2001:db8::/32]:443
host:8080/tcp                a service of the host itself, at any of its addresses
@github                      the entries of a set, which the caller reads
```
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, get_bool, get_strings

__all__ = ["LIMIT", "BadEntry", "IpNetwork", "NetworkRule", "Policy", "PortRange", "Protocol", "expand_sets"]

IpNetwork = IPv4Network | IPv6Network

LIMIT: Final = 10_000
"""How many entries a policy may have, those of sets included. The kernel takes seconds for many more."""

_LAST_PORT: Final = 65535
_LONGEST_NAME: Final = 253
_HOST: Final = "host"
_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_SET: Final = re.compile(r"@[A-Za-z0-9][A-Za-z0-9_.-]*")
_PORTS: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?:/([a-z]+))?", re.IGNORECASE)
_PUBLIC_SUFFIXES: Final = frozenset(
    f"{second}.{country}"
    for country, seconds in {
        "ar": "com gob net org",
        "at": "ac co gv or",
        "au": "asn com edu gov id net org",
        "br": "com edu gov net org",
        "cn": "ac com edu gov net org",
        "hk": "com edu gov net org",
        "id": "ac co go or web",
        "il": "ac co gov net org",
        "in": "ac co edu firm gov net org",
        "jp": "ac ad co ed go gr lg ne or",
        "kr": "ac co go ne or re",
        "mx": "com edu gob net org",
        "nz": "ac co govt net org school",
        "pl": "com edu gov net org waw",
        "ru": "com msk net org spb",
        "sg": "com edu gov net org",
        "th": "ac co go in or",
        "tr": "com edu gov net org",
        "tw": "com edu gov net org",
        "ua": "com edu gov net org",
        "uk": "ac co gov ltd me net nhs org plc sch",
        "za": "ac co gov net org web",
    }.items()
    for second in seconds.split()
)
"""Common suffixes of two labels under which anyone can have a name. Every single label counts as one as well."""


class BadEntry(ValueError):
    """An entry of an allow-list is invalid; the message quotes it, and says what to write instead."""


class Protocol(IntEnum):
    """A transport protocol, by its number; `ANY` is every protocol."""

    ANY = 0
    TCP = 6
    UDP = 17


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Ports of a protocol.

    Attributes:
        protocol: The protocol; `ANY` stands for every protocol, with 0 and 65535 as ports.
        first: The first port.
        last: The last port, which is the first if there is one port.
    """

    protocol: Protocol
    first: int
    last: int

    def covers(self, protocol: int, port: int) -> bool:
        """Return whether it has a port of a protocol, by the protocol's number."""
        return self.protocol is Protocol.ANY or (self.protocol == protocol and self.first <= port <= self.last)

    def __str__(self) -> str:
        if self.protocol is Protocol.ANY:
            return "*"
        ports = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{ports}/{self.protocol.name.lower()}"


Ports = tuple[PortRange, ...]

EVERYTHING: Final = PortRange(Protocol.ANY, 0, _LAST_PORT)
_WEB: Final[Ports] = (
    PortRange(Protocol.TCP, 80, 80),
    PortRange(Protocol.TCP, 443, 443),
    PortRange(Protocol.UDP, 443, 443),
)
"""What a name alone allows."""


@dataclass(frozen=True, slots=True)
class NetworkRule:
    """An allowed network, or one address.

    Attributes:
        network: Its addresses.
        ports: What is allowed at them.
    """

    network: IpNetwork
    ports: PortRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a container may reach.

    Attributes:
        entries: The entries as they were written, without duplicates, in order.
        names: The ports of each allowed name.
        wildcards: The ports of the names below a name, e.g. those of `*.example.com` under `example.com`.
        networks: The allowed networks.
        host: The services of the host.
        audit: Whether everything passes, and what no entry allows is only logged.
        public_suffixes: Whether entries such as `*.com` were permitted.
    """

    entries: tuple[str, ...] = ()
    names: Mapping[str, Ports] = field(default_factory=dict)
    wildcards: Mapping[str, Ports] = field(default_factory=dict)
    networks: tuple[NetworkRule, ...] = ()
    host: Ports = ()
    audit: bool = False
    public_suffixes: bool = False

    @classmethod
    def parse(cls, entries: Iterable[str], *, audit: bool = False, public_suffixes: bool = False) -> "Policy":
        """Parse an allow-list, without sets (see `expand_sets`).

        Args:
            entries: The entries.
            audit: Whether everything passes and is only logged.
            public_suffixes: Whether wildcards of public suffixes, such as `*.com`, are permitted.

        Raises:
            BadEntry: An entry is invalid, or there are too many.
        """
        builder = _Builder(public_suffixes)
        written = tuple(dict.fromkeys(entry.strip() for entry in entries))
        if len(written) > LIMIT:
            raise BadEntry(f"{len(written)} entries: a policy may have {LIMIT}; allow larger networks, or a wildcard")
        for entry in written:
            builder.add(entry)
        return cls(
            entries=written,
            names={name: _merge(ports) for name, ports in builder.names.items()},
            wildcards={name: _merge(ports) for name, ports in builder.wildcards.items()},
            networks=tuple(dict.fromkeys(builder.networks)),
            host=_merge(builder.host),
            audit=audit,
            public_suffixes=public_suffixes,
        )

    @classmethod
    def from_document(cls, document: JsonObject) -> "Policy":
        """Parse what `document` has made.

        Raises:
            BadEntry: An entry is invalid.
            JsonError: It has another form.
        """
        return cls.parse(
            get_strings(document, "allow"),
            audit=get_bool(document, "audit"),
            public_suffixes=get_bool(document, "publicSuffixes"),
        )

    @property
    def document(self) -> JsonObject:
        """The policy as JSON, e.g. `{"allow": ["api.example.com"], "audit": false}`."""
        allow: list[JsonValue] = [*self.entries]
        return {"allow": allow, "audit": self.audit, **({"publicSuffixes": True} if self.public_suffixes else {})}

    @property
    def has_names(self) -> bool:
        """Whether it allows a name."""
        return bool(self.names or self.wildcards)

    @property
    def needs_responder(self) -> bool:
        """Whether the container's queries go to the responder: not if only addresses are allowed."""
        return self.has_names or self.audit

    def ports_of(self, name: str) -> Ports:
        """Return what is allowed at the addresses of a name; empty: nothing, the name is refused.

        Args:
            name: A name in any case, with or without the dot at its end.
        """
        name = name.lower().removesuffix(".")
        found = list(self.names.get(name, ()))
        if self.wildcards:
            found += [one for parent in _parents(name) for one in self.wildcards.get(parent, ())]
        return _merge(found)

    def all_ports(self) -> Ports:
        """Return what is allowed at the addresses of any name, without duplicates."""
        return tuple(sorted({one for ports in (*self.names.values(), *self.wildcards.values()) for one in ports}))


def expand_sets(entries: Iterable[str], read: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """Replace each `@set` by its entries, and those of the sets in it.

    Args:
        entries: The entries.
        read: Returns the entries of a set by its name; raises `BadEntry` if there is no such set.

    Raises:
        BadEntry: A set is not found, has an invalid name, or contains itself.
    """
    return _expand(entries, read, ())


def _expand(entries: Iterable[str], read: Callable[[str], Sequence[str]], inside: tuple[str, ...]) -> Iterator[str]:
    for entry in entries:
        if not entry.startswith("@"):
            yield entry
            continue
        if not _SET.fullmatch(entry):
            raise BadEntry(f"{entry!r}: the name of a set has letters, digits, '.', '-' and '_', e.g. @github")
        if entry in inside:
            raise BadEntry(f"{entry!r}: the set contains itself: {' > '.join((*inside, entry))}")
        yield from _expand(read(entry[1:]), read, (*inside, entry))


def _parents(name: str) -> Iterator[str]:
    """Return the names above a name: of `a.b.example.com`, `b.example.com`, `example.com` and `com`."""
    while (dot := name.find(".")) >= 0:
        name = name[dot + 1 :]
        yield name


def _merge(ports: Iterable[PortRange]) -> Ports:
    """Return ports in order, without duplicates and without what `*` covers."""
    found = sorted(set(ports))
    return (EVERYTHING,) if EVERYTHING in found else tuple(found)


class _Builder:
    """Collects the rules of entries."""

    def __init__(self, public_suffixes: bool) -> None:
        self.names: dict[str, list[PortRange]] = {}
        self.wildcards: dict[str, list[PortRange]] = {}
        self.networks: list[NetworkRule] = []
        self.host: list[PortRange] = []
        self._public_suffixes = public_suffixes

    def add(self, entry: str) -> None:
        """Add an entry."""
        if entry.startswith("@"):
            raise BadEntry(f"{entry!r}: sets are not permitted here")
        _check_form(entry)
        target, ports_text = _split(entry)
        ports = _parse_ports(entry, ports_text)
        if target == _HOST:
            if not ports_text or ports == (EVERYTHING,):
                raise BadEntry(f"{entry!r}: which services of the host? Write {_HOST}:PORT/tcp")
            self.host += ports
        elif (network := _find_network(entry, target)) is not None:
            self.networks += [NetworkRule(network, one) for one in ports or (EVERYTHING,)]
        else:
            name, is_wildcard = self._check_name(entry, target)
            (self.wildcards if is_wildcard else self.names).setdefault(name, []).extend(ports or _WEB)

    def _check_name(self, entry: str, target: str) -> tuple[str, bool]:
        """Return a name in lower case, without `*.`, and whether it was there."""
        if target == "*":
            raise BadEntry(f"{entry!r} would allow every name; to allow everything, write 0.0.0.0/0 and ::/0")
        name = target.lower().removesuffix(".")
        is_wildcard = name.startswith("*.")
        name = name.removeprefix("*.")
        if "*" in name:
            raise BadEntry(
                f"{entry!r}: '*' may only be the whole first label, e.g. *.{name.replace('*', '').strip('.')}"
            )
        if not name.isascii():
            raise BadEntry(f"{entry!r}: write the ASCII form{_ascii_form(name)}")
        if "_" in name:
            raise BadEntry(f"{entry!r}: names of hosts have no underscore")
        if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in name.split(".")):
            raise BadEntry(
                f"{entry!r} is not the name of a host: labels have 1 to 63 letters, digits and inner hyphens, and the "
                f"name at most {_LONGEST_NAME} characters"
            )
        if name.rpartition(".")[2].isdigit():
            raise BadEntry(f"{entry!r} is neither an address nor a name: the last label of a name is not a number")
        if is_wildcard and not self._public_suffixes and ("." not in name or name in _PUBLIC_SUFFIXES):
            raise BadEntry(
                f"{entry!r}: anyone can have a name below {name}; allow the names that are needed, or permit public "
                "suffixes"
            )
        return name, is_wildcard


def _check_form(entry: str) -> None:
    """Refuse what people write in place of a name."""
    if not entry:
        raise BadEntry("an entry is empty; write a name, an address or a network")
    if any(character.isspace() or not character.isprintable() for character in entry):
        raise BadEntry(f"{entry!r} has a space or a control character; write one entry for each destination")
    if "://" in entry:
        scheme, _, rest = entry.partition("://")
        host = re.split(r"[/:?#]", rest)[0] or "NAME"
        port = {"http": ":80/tcp", "https": ""}.get(scheme.lower(), ":PORT")
        raise BadEntry(f"{entry!r}: a policy knows no {scheme}://; write {host}{port}")
    if "@" in entry or "?" in entry or "#" in entry or "%" in entry:
        raise BadEntry(f"{entry!r}: write the name or the address alone, with a port if it is needed")


def _split(entry: str) -> tuple[str, str]:
    """Return the destination and the ports, without the colon between them."""
    if entry.startswith("["):
        inside, bracket, rest = entry[1:].partition("]")
        if not bracket or ":" not in inside or (rest and not rest.startswith(":")) or rest == ":":
            raise BadEntry(f"{entry!r}: write an IPv6 network with a port as [2001:db8::/32]:443")
        return inside, rest[1:]
    if entry.count(":") > 1:  # an IPv6 address
        return entry, ""
    target, colon, ports = entry.partition(":")
    if colon and not ports:
        raise BadEntry(f"{entry!r}: the port is missing")
    return target, ports


def _parse_ports(entry: str, text: str) -> Ports:
    """Return the ports of an entry; empty if it has none."""
    if not text:
        return ()
    if text == "*":
        return (EVERYTHING,)
    match = _PORTS.fullmatch(text)
    if match is None:
        raise BadEntry(f"{entry!r}: {text!r} is not a port: write 443, 8000-8100, 53/udp or *")
    first = int(match[1])
    last = int(match[2] or first)
    name = (match[3] or "").upper()
    if name and name not in {"TCP", "UDP"}:
        raise BadEntry(f"{entry!r}: the protocol {match[3]!r} is unknown; there are tcp and udp")
    if not 1 <= first <= _LAST_PORT or not 1 <= last <= _LAST_PORT:
        raise BadEntry(f"{entry!r}: ports are 1 to {_LAST_PORT}")
    if first > last:
        raise BadEntry(f"{entry!r}: the range begins after its end; write {last}-{first}")
    protocols = [Protocol[name]] if name else [Protocol.TCP, Protocol.UDP]
    return tuple(PortRange(protocol, first, last) for protocol in protocols)


def _find_network(entry: str, target: str) -> IpNetwork | None:
    """Return the network of an entry; None if it is not an address."""
    address, slash, _ = target.partition("/")
    if not re.fullmatch(r"[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*", address):
        if slash:
            raise BadEntry(f"{entry!r}: a policy knows no paths; write {address}")
        return None
    try:
        interface = ip_interface(target)
    except ValueError:
        if not slash and ":" not in target:
            return None  # the check of names has better words
        raise BadEntry(f"{entry!r} is not an address or a network, e.g. 10.0.5.0/24 or 2001:db8::/32") from None
    if interface.ip != interface.network.network_address:
        raise BadEntry(f"{entry!r} has host bits; write {interface.network} or {interface.ip}")
    if interface.version == 6 and interface.ip.ipv4_mapped is not None:  # noqa: PLR2004
        raise BadEntry(f"{entry!r}: write the IPv4 address, {interface.ip.ipv4_mapped}")
    return ip_network(target)


def _ascii_form(name: str) -> str:
    try:
        return f", {name.encode('idna').decode('ascii')}"
    except UnicodeError:
        return ""
