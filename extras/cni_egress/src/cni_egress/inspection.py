# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is in force: policies, containers, what names have opened; and whether a container may connect somewhere.

The kernel is asked, not the configuration: the element of a container's address, the chain to which it leads, the sets.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from cni_egress.conntrack import Connection, count_connections
from cni_egress.elements import Elements, Opened
from cni_egress.enforcement import Enforcement
from cni_egress.judgement import find_permission
from cni_egress.nftables import Nftables
from cni_egress.policy import BadEntry, Policy, PortRange, Protocol
from cni_egress.records import DEFAULT_MARK, IpAddress, Record, Records
from cni_egress.refusals import Why
from cni_egress.routes import Routes
from cni_egress.second_lock import foreign_marks
from cni_egress.status import ask_daemon, names_in_use
from cni_invoker.documents.jsontypes import JsonObject, JsonValue

__all__ = ["Answer", "Destination", "check_destination", "describe_networks", "describe_status"]

_SHORTEST_ID: Final = 4
_DNS: Final = 53
_WATCHED: Final = "the network only watches: it is logged, and passes"


def describe_status(records: Records) -> JsonObject:
    """Return whether all is in force that the records need, as JSON.

    ```
    {"version": 1, "isRunning": true, "needsDaemon": true, "attachments": 12, "mark": 268435456,
     "guarded": ["agents0"],
     "missing": [{"containerId": "5a4d…", "ifName": "eth0", "network": "agents", "what": "the tables cni-egress"}],
     "conflicts": ["a routing rule of priority 5210 uses the mark 0x10000000/0x10000000"]}
    ```

    Raises:
        BadRecord: A record cannot be read.
        NetlinkError: The kernel has refused to answer.
    """
    found = records.all()
    mark = found[0].mark if found else DEFAULT_MARK
    with Enforcement(records) as enforcement:
        missing = [(record, what) for record in found if (what := enforcement.missing(record))]
        guarded = sorted(enforcement.guarded_links())
    return {
        "version": 1,
        "isRunning": records.has_responder(),
        "needsDaemon": any(one.policy.needs_responder for one in found),
        "attachments": len(found),
        "mark": mark,
        "guarded": [*guarded],
        "missing": [
            {"containerId": one.container_id, "ifName": one.ifname, "network": one.network, "what": what}
            for one, what in missing
        ],
        "conflicts": [
            f"a routing rule of priority {priority} uses the mark {value:#x}/{mask:#x}"
            for priority, value, mask in foreign_marks(mark)
        ],
    }


def describe_networks(records: Records, network: str | None, lines: Iterable[JsonObject]) -> list[JsonValue]:
    """Return the guarded networks with their containers, as JSON.

    Args:
        records: The records.
        network: Only this network; None: all.
        lines: The log, from which refusals are counted.

    Raises:
        BadRecord: A record cannot be read.
        NetlinkError: The kernel has refused to answer.
    """
    found = [one for one in records.all() if network in {None, one.network}]
    names = names_in_use(ask_daemon(records.directory))
    refused = Counter(str(line.get("container")) for line in lines)
    ports = {one for record in found for one in record.policy.all_ports()}
    opened: dict[IpAddress, list[Opened]] = {}
    with Nftables() as nftables:
        for one in Elements(nftables, records).opened(ports):
            opened.setdefault(one.source, []).append(one)
    reached: dict[IpAddress, dict[Connection, int]] = {}
    sources = frozenset(address for record in found for address in record.addresses)
    for (source, connection), count in count_connections(sources).items():
        reached.setdefault(source, {})[connection] = count
    networks: dict[str, list[Record]] = {}
    for record in found:
        networks.setdefault(record.network, []).append(record)
    described: list[JsonValue] = []
    for name, of_network in sorted(networks.items()):
        shared = [one for one in of_network[0].policy.entries if all(one in it.policy.entries for it in of_network)]
        attachments: list[JsonValue] = [
            {
                "containerId": record.container_id,
                "ifName": record.ifname,
                "addresses": [str(one) for one in record.addresses],
                "allow": [one for one in record.policy.entries if one not in shared],
                "open": _describe_opened(record, opened, names.get((record.container_id, record.ifname), {})),
                "reached": _describe_reached(record, reached, names.get((record.container_id, record.ifname), {})),
                "refused": refused[record.container_id],
            }
            for record in of_network
        ]
        described.append(
            {
                "network": name,
                "audit": of_network[0].policy.audit,
                "allow": [*shared],
                "subnets": [str(one) for one in of_network[0].subnets],
                "attachments": attachments,
            }
        )
    return described


def _describe_opened(
    record: Record, opened: Mapping[IpAddress, Sequence[Opened]], names: Mapping[str, frozenset[IpAddress]]
) -> list[JsonValue]:
    found: dict[tuple[str, IpAddress], tuple[list[str], float]] = {}
    for one in (one for source in record.addresses for one in opened.get(source, ())):
        name = _name_of(names, one.destination)
        ports, seconds = found.setdefault((name, one.destination), ([], one.seconds))
        ports.append(str(one.ports))
        found[name, one.destination] = (ports, max(seconds, one.seconds))
    return [
        {"name": name, "address": str(address), "ports": [*sorted(ports)], "seconds": round(seconds)}
        for (name, address), (ports, seconds) in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1])))
    ]


def _describe_reached(
    record: Record,
    reached: Mapping[IpAddress, Mapping[Connection, int]],
    names: Mapping[str, frozenset[IpAddress]],
) -> list[JsonValue]:
    """Return where a container has connections, or had some until minutes ago; not its queries of names."""
    found = [
        (_name_of(names, to.destination), str(to.destination), _show_service(to), count)
        for source in record.addresses
        for to, count in reached.get(source, {}).items()
        if not (record.policy.needs_responder and to.port == _DNS)
    ]
    return [
        {"name": name, "address": address, "port": port, "connections": count}
        for name, address, port, count in sorted(found)
    ]


def _show_service(to: Connection) -> str:
    """Return e.g. `443/tcp`; the number of a protocol without ports."""
    known = to.protocol in {Protocol.TCP, Protocol.UDP}
    return f"{to.port}/{Protocol(to.protocol).name.lower()}" if known else str(to.protocol)


def _name_of(names: Mapping[str, frozenset[IpAddress]], address: IpAddress) -> str:
    """Return a name that has led to an address; "" if the daemon knows none."""
    return next((name for name, addresses in names.items() if address in addresses), "")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a container wants to connect.

    Attributes:
        host: A name or an address.
        port: The port.
        protocol: TCP or UDP.
    """

    host: str
    port: int
    protocol: Protocol

    @classmethod
    def parse(cls, text: str) -> "Destination":
        """Parse `NAME:PORT`, `ADDRESS:PORT/udp` or `[2001:db8::1]:PORT`; TCP is the default.

        Raises:
            BadEntry: It has another form; the message says what to write.
        """
        host, colon, service = text.rpartition(":")
        port, _, protocol = service.partition("/")
        if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
            raise BadEntry(f"{text!r}: write NAME:PORT, ADDRESS:PORT/udp or [IPV6]:PORT")
        # The parser of entries has the words for all that can be wrong.
        one = Policy.parse([f"{host}:{port}/{protocol or 'tcp'}"])
        if one.wildcards or one.host or any(rule.network.num_addresses > 1 for rule in one.networks):
            raise BadEntry(f"{text!r}: write one name or address")
        return cls(host.strip("[]").lower().removesuffix("."), int(port), Protocol[(protocol or "tcp").upper()])

    @property
    def address(self) -> IpAddress | None:
        """The address; None if it is a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a container may connect.

    Attributes:
        record: The container.
        allowed: Whether it may.
        why: Why, or why not.
        opened: The addresses of the name that are open now, as JSON.
    """

    record: Record
    allowed: bool
    why: str
    opened: tuple[JsonValue, ...] = ()


def check_destination(records: Records, who: str, destination: Destination) -> Answer | None:
    """Return whether a container may connect; None if no guarded container is meant.

    Args:
        records: The records.
        who: The container's ID or the beginning of it, or one of its addresses.
        destination: Where it wants to connect.

    Raises:
        BadRecord: A record cannot be read.
        NetlinkError: The kernel has refused to answer.
    """
    answers = [_check(records, record, destination) for record in _find(records, who)]
    return next((one for one in answers if one.allowed), answers[0] if answers else None)


def _find(records: Records, who: str) -> list[Record]:
    try:
        record = records.by_source(ip_address(who))
    except ValueError:
        is_long = len(who) >= _SHORTEST_ID
        found = [one for one in records.all() if one.container_id == who]
        return found or [one for one in records.all() if is_long and one.container_id.startswith(who)]
    return [] if record is None else [record]


def _check(records: Records, record: Record, destination: Destination) -> Answer:
    with Enforcement(records) as enforcement:
        missing = enforcement.missing(record)
    if missing:
        return Answer(record, allowed=False, why=f"it is not fully guarded: {missing} is missing")
    if record.policy.needs_responder and destination.address is None and not records.has_responder():
        return Answer(record, allowed=False, why="cni-egress does not run, so names do not resolve")
    with Nftables() as nftables:
        ports = record.policy.all_ports()
        opened = [one for at in record.addresses for one in Elements(nftables, records).opened(ports, at)]
    names = names_in_use(ask_daemon(records.directory)).get((record.container_id, record.ifname), {})
    address = destination.address
    if address is None:
        found = _check_name(record, destination)
        known = names.get(destination.host, frozenset())
        return replace(found, opened=tuple(_open_addresses(one for one in opened if one.destination in known)))
    return _check_address(record, destination, address, opened, names)


def _open_addresses(opened: Iterable[Opened]) -> list[JsonValue]:
    seconds = {str(one.destination): round(one.seconds) for one in opened}
    return [{"address": address, "seconds": left} for address, left in sorted(seconds.items())]


def _check_name(record: Record, destination: Destination) -> Answer:
    policy = record.policy
    ports = policy.ports_of(destination.host)
    if _covers(ports, destination):
        return Answer(record, allowed=True, why=f"the allow-list has {destination.host} with {_join(ports)}")
    if policy.audit:
        return Answer(record, allowed=True, why=_WATCHED)
    if ports:
        return Answer(record, allowed=False, why=f"{Why.PORT}: {destination.host} is allowed with {_join(ports)}")
    return Answer(record, allowed=False, why=str(Why.NAME))


def _check_address(
    record: Record,
    destination: Destination,
    address: IpAddress,
    opened: Sequence[Opened],
    names: Mapping[str, frozenset[IpAddress]],
) -> Answer:
    if all(one.version != address.version for one in record.addresses):
        return Answer(record, allowed=False, why=f"it has no IPv{address.version} address")
    with Routes() as routes:
        is_hosts_own = routes.is_hosts_own(address)
    entry = find_permission(
        record.policy, record.subnets, address, destination.protocol, destination.port, is_hosts_own=is_hosts_own
    )
    if entry:
        return Answer(record, allowed=True, why=entry)
    here = [one for one in opened if one.destination == address]
    for one in here:
        if one.ports.covers(destination.protocol, destination.port):
            name = _name_of(names, one.destination) or "a name"
            return Answer(record, allowed=True, why=f"{name} has opened it, for {one.seconds:.0f} s from now on")
    if record.policy.audit:
        return Answer(record, allowed=True, why=_WATCHED)
    return Answer(record, allowed=False, why=_refusal(record.policy, [one.ports for one in here], is_hosts_own))


def _refusal(policy: Policy, ports: Sequence[PortRange], is_hosts_own: bool) -> str:
    if is_hosts_own:
        return "it is an address of the host, for which an entry host:PORT is needed"
    if ports:
        return f"{Why.PORT}: open are {_join(ports)}"
    return f"{Why.DESTINATION}{', and no name has opened it' if policy.has_names else ''}"


def _covers(ports: Iterable[PortRange], destination: Destination) -> bool:
    return any(one.covers(destination.protocol, destination.port) for one in ports)


def _join(ports: Iterable[PortRange]) -> str:
    return ", ".join(map(str, sorted(set(ports))))
