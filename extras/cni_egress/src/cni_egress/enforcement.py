# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Policies in force: a record in, rules and elements in the kernel out; and back, and again after a flush.

Each method can be repeated, and may be interrupted at any point: what it does first refuses more, never less.
"""

import errno
import os
import socket
import subprocess
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv6Address
from typing import Final, Self

from cni_egress.conntrack import Connection, forget_connections
from cni_egress.elements import Elements, set_of
from cni_egress.host_link import ignore_control_frames
from cni_egress.judgement import find_permission
from cni_egress.netlink import NetlinkError
from cni_egress.nftables import TABLE, Change, Element, Family, Nftables, Verb, key_address, key_ifname, key_mac
from cni_egress.policy import PortRange
from cni_egress.records import IpAddress, Record, RecordGone, Records
from cni_egress.routes import Routes
from cni_egress.second_lock import links_with_rule, locked_links, put_lock, remove_locks
from cni_egress.status import ask_daemon, names_in_use
from cni_egress.tables import (
    CLOSING,
    chain_of,
    count_rules,
    is_chain_of_policy,
    is_of_policy,
    render_base,
    render_policy,
    version_of,
)

__all__ = ["AddressTaken", "Enforcement", "MarkConflict", "NftFailed"]

_NFT_LIMIT_S: Final = 60.0
_ENTRANCES: Final = {"guard", "judge", "received", "check"}
"""The chains that each ADD looks at; without the others, packets lack the mark, and the routing rule refuses them."""
_SWEEP_AT: Final = 32
"""How many links without a container may be left before `release` looks for them, for which it reads all records."""
_GUARDS: Final = ((Family.INET, "links"), (Family.INET, "inside"), (Family.BRIDGE, "ports"))
"""The sets that say what is guarded at all: their elements stay for as long as the links exist."""
_OF_CONTAINERS: Final = (
    *((Family.INET, f"{name}{version}") for name in ("sources", "askers") for version in (4, 6)),
    *((Family.BRIDGE, name) for name in ("macs", "addresses4", "addresses6", "targets6")),
)
"""The sets that say what containers may do: their elements go with the records."""
_PATH: Final = "/usr/sbin:/sbin:/usr/local/sbin"


class NftFailed(Exception):  # called after what happened
    """The program `nft` has failed, or is missing; the message has its words."""


class AddressTaken(Exception):
    """An attachment on another link has the address, and policies are found by address."""


class MarkConflict(Exception):
    """Networks of this host have different marks, and there is one table for all."""


class Enforcement:
    """Puts policies in force, in the network namespace of the thread that makes it.

    Args:
        records: The records. The caller of a method that changes something holds their lock (`Records.locked`).
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._nftables = Nftables()
        self._elements = Elements(self._nftables, records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._nftables.close()

    def protect(self, record: Record) -> None:
        """Write a record and put its policy in force; packets of its container before that are refused.

        An attachment that had one of its addresses has lost it to this one: the IPAM plugin of the network decides.

        Raises:
            AddressTaken: An attachment on another link has one of its addresses. Nothing has been changed.
            MarkConflict: An attachment has another mark. Nothing has been changed.
            BadRecord: The record of an earlier attachment cannot be read.
            NetlinkError: The kernel has refused. The record stays for `release`.
            NftFailed: The same, of a policy that was not in force yet.
        """
        has_tables = self._has_tables(record.mark, is_quick=True)
        if not has_tables:
            self._require_mark(record)
        former = self._former(record)
        for other in former:
            self.release(other)
        self._records.put(record)
        put_lock(record.link, record.mark)
        if record.has_bridge:
            ignore_control_frames(record.link)
        if has_tables:
            self._put(record)
        else:
            self._make_tables()

    def change_policy(self, record: Record) -> None:
        """Replace the record of an attachment by one with another policy, and put that in force.

        What the new policy does not allow is closed when it returns: addresses that names have opened, and connections.
        If this is interrupted, `repair` completes it.

        Raises:
            NetlinkError: The kernel has refused. The record stays, for `repair`.
            NftFailed: The kernel has refused the policy, and nothing was changed.
            RecordGone: There is no such attachment.
        """
        former = self._records.find(record.container_id, record.ifname)
        if former is None:
            raise RecordGone(f"{record} has been deleted")
        is_wider = set(former.policy.entries) <= set(record.policy.entries)
        has_tables = self._has_tables(record.mark)
        if has_tables:
            self._put_chain(record)
            if not is_wider:  # policies that differ in names have the same chain: only this says that one is changed
                self._suspend(record)
        self._records.put(record)
        if has_tables:
            self._put(record, closes=not is_wider)
        else:
            self._make_tables()
            if not is_wider:
                self._close(record)
        self._remove_unused(_names_of(former))

    def release(self, record: Record) -> None:
        """Remove what is in force of a record, and the record.

        Its links stay guarded for as long as they exist: a process that still runs in the container reaches nothing.
        The chain of its policy stays for the next container that has it, for as long as others are guarded, until
        `sweep`: `nft` takes 15 ms to make one.

        Raises:
            NetlinkError: The kernel has refused. The record stays, for the next attempt.
        """
        self._records.forget_sources(record)
        taken = {address for address in record.addresses if self._records.by_source(address) is not None}
        left = replace(record, addresses=tuple(one for one in record.addresses if one not in taken))
        present = (
            replace(change, elements=tuple(one for one in change.elements if self._has(change, one)))
            for change in _changes(Verb.DELETE, left)
            if (change.family, change.set_name) not in _GUARDS
        )
        self._nftables.commit([change for change in present if change.elements])
        for address in left.addresses:
            if record.policy.has_names:
                self._elements.forget(address, record.policy.all_ports())
            forget_connections(self._nftables.netlink, address)
        self._records.remove(record)
        links = set().union(*self._guarded().values())
        if self._records.is_empty() or len(links - _links()) >= _SWEEP_AT:
            self.sweep()

    def sweep(self) -> None:
        """Remove what no record has: policies, elements, and the guards of links that do not exist any more.

        An operator may have loaded a ruleset again that was saved before a reboot.

        Raises:
            BadRecord: A record cannot be read.
            NetlinkError: The kernel has refused.
        """
        self.remove_stale_guards()
        records = self._records.all()
        wanted: dict[tuple[Family, str], set[bytes]] = {key: set() for key in _OF_CONTAINERS}
        for change in (change for record in records for change in _changes(Verb.ADD, record)):
            wanted.setdefault((change.family, change.set_name), set()).update(one.key for one in change.elements)
        for family, name in _OF_CONTAINERS:
            extra = tuple(Element(key) for key in self._nftables.keys(family, name) if key not in wanted[family, name])
            self._nftables.commit([Change(Verb.DELETE, family, name, extra)])
        names = (*self._nftables.chains(Family.INET), *self._nftables.sets(Family.INET))
        used = {name for record in records for name in _names_of(record)}
        self._remove_unused(name for name in names if is_of_policy(name) and name not in used)

    def stale_guards(self) -> set[str]:
        """Return the links that have a guard, do not exist, and are in no record.

        Without the lock of the records it is only a hint: an ADD may be at work.

        Raises:
            BadRecord: A record cannot be read.
            NetlinkError: The kernel has refused to answer.
        """
        gone = links_with_rule().union(*self._guarded().values()) - _links()
        if not gone:  # the usual case, in which no record is read
            return gone
        return gone.difference(*((record.link, record.port) for record in self._records.all()))

    def remove_stale_guards(self) -> set[str]:
        """Remove the guards of these links: what has their names later may be on a network that is not guarded.

        An ADD writes its record before its guard, and both under the lock, so no guard of a container is among them.

        Returns:
            The links.

        Raises:
            BadRecord: A record cannot be read, and nothing was removed.
            NetlinkError: The kernel has refused.
        """
        stale = self.stale_guards()
        if stale:
            remove_locks(stale)  # first: killed between the two, packets are refused with a line in the log
        for (family, name), links in self._guarded().items():
            gone = tuple(Element(key_ifname(link)) for link in sorted(links & stale))
            self._nftables.commit([Change(Verb.DELETE, family, name, gone)])
        return stale

    def guarded_links(self) -> set[str]:
        """Return the links from which only what containers may send is routed, also if no container is on them.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        guarded = self._guarded()
        return links_with_rule() | (guarded[Family.INET, "links"] - guarded[Family.BRIDGE, "ports"])

    def repair(self) -> tuple[str, ...]:
        """Put in force again whatever is missing of the records, as after `nft flush ruleset` or `ip rule flush`.

        What names had opened is opened again by the next queries; connections go on.

        Returns:
            What was missing, in words; empty if nothing was.

        Raises:
            BadRecord: A record cannot be read.
            NetlinkError: The kernel has refused.
            NftFailed: The program `nft` has failed.
        """
        found = []
        records = self._records.all()
        if not records:
            return ()
        mark = records[0].mark
        for link in {record.link for record in records} - locked_links(mark):
            put_lock(link, mark)
            found.append(f"the routing rule for {link}")
        if not self._has_tables(mark):
            self._make_tables()
            return (*found, "the tables cni-egress")
        for record in records:
            if missing := self._missing(record):
                self._put(record)
                found.append(f"{missing} of {record}")
        return tuple(found)

    def _guarded(self) -> dict[tuple[Family, str], set[str]]:
        """Return the links that have a guard, in each set of guards."""
        return {
            (family, name): {key.rstrip(b"\0").decode() for key in self._nftables.keys(family, name)}
            for family, name in _GUARDS
        }

    def require_nftables(self) -> None:
        """Raise an error unless the kernel has nf_tables, and the program `nft` runs.

        Raises:
            NetlinkError: The kernel has none, or this process may not use it.
            NftFailed: The program fails.
        """
        self._nftables.generation()
        _run_nft("")

    def missing(self, record: Record) -> str:
        """Return what is missing of a record's protection, in words; empty if it is complete.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        if not self._has_tables(record.mark):
            return "the tables cni-egress"
        if record.link not in locked_links(record.mark):
            return f"the routing rule for {record.link}"
        return self._missing(record)

    def _missing(self, record: Record) -> str:
        if not self._has_policy(record):
            return "the chain of the policy"
        for change in _changes(Verb.ADD, record):
            if not all(self._is_in_force(change, element) for element in change.elements):
                return f"an element in the set {change.set_name}"
        return ""

    def _has(self, change: Change, element: Element) -> bool:
        return self._nftables.find(change.family, change.set_name, element.key) is not None

    def _is_in_force(self, change: Change, element: Element) -> bool:
        found = self._nftables.find(change.family, change.set_name, element.key)
        return found is not None and found.chain == element.chain

    def _has_tables(self, mark: int, *, is_quick: bool = False) -> bool:
        """Return whether both tables are those of this version, and no rule has been removed."""
        looked_at = {*_ENTRANCES, version_of(mark)} if is_quick else None
        return all(
            self._nftables.count_rules(Family[family.upper()], chain) == count
            for (family, chain), count in count_rules(render_base(mark)).items()
            if looked_at is None or chain in looked_at
        )

    def _require_mark(self, record: Record) -> None:
        for other in self._records.all():
            if other.mark != record.mark:
                raise MarkConflict(f"{other} has the mark {other.mark:#x}, not {record.mark:#x}")

    def _has_policy(self, record: Record) -> bool:
        """Return whether the chain of a record's policy is there, and no rule of it has been removed."""
        ((family, chain), count) = next(iter(count_rules(_policy_text(record)).items()))
        return self._nftables.count_rules(Family[family.upper()], chain) == count

    def _make_tables(self) -> None:
        """Make both tables anew, with all records, in one transaction: connections go on."""
        records = self._records.all()
        policies = {chain_of(one.policy, one.subnets): _policy_text(one) for one in records}
        _run_nft("".join((render_base(records[0].mark), *policies.values(), *map(_element_text, records))))

    def _put_chain(self, record: Record) -> None:
        """Make the chain of a record's policy, unless it is complete."""
        if not self._has_policy(record):
            chain = chain_of(record.policy, record.subnets)
            emptied = f"table inet {TABLE} {{ chain {chain} {{ }}; }}\nflush chain inet {TABLE} {chain}\n"
            _run_nft(emptied + _policy_text(record))

    def _put(self, record: Record, *, closes: bool = True) -> None:
        """Put a record in force; the tables are there.

        Args:
            record: The record.
            closes: If another policy is in force, close what this one does not allow before this one is.
        """
        self._put_chain(record)
        others = {one.chain for _, one in self._find_policy(record)} - {"", chain_of(record.policy, record.subnets)}
        if others and closes:
            self._suspend(record)
            self._close(record)
        # The verdict of an element cannot be replaced.
        self._nftables.commit([*_deletions(self._find_policy(record)), *_changes(Verb.ADD, record)])
        for chain in others - {CLOSING}:
            with _ignoring(errno.ENOENT, errno.EBUSY):
                self._nftables.delete_chain(Family.INET, chain)

    def _suspend(self, record: Record) -> None:
        """Drop the packets of a container until `_put` completes what is begun."""
        self._nftables.commit([*_deletions(self._find_policy(record)), *_sources(record, CLOSING)])

    def _find_policy(self, record: Record) -> list[tuple[str, Element]]:
        """Return the elements that say which policy a container has, with the names of their sets."""
        found = []
        for address in record.addresses:
            for name in (f"sources{address.version}", f"askers{address.version}"):
                one = self._nftables.find(Family.INET, name, key_ifname(record.link) + key_address(address))
                found += [] if one is None else [(name, one)]
        return found

    def _close(self, record: Record) -> None:
        """Close what names have opened, and connections, as far as a record's policy does not allow them.

        Which name has opened an address is known to the daemon only. What it cannot tell is closed.
        """
        policy = record.policy
        names = names_in_use(ask_daemon(self._records.directory)).get((record.container_id, record.ifname), {})
        permitted = {
            (address, ports)
            for name, addresses in names.items()
            for ports in policy.ports_of(name)
            for address in addresses
        }
        with Routes() as routes:
            for source in record.addresses:
                self._elements.forget(source, policy.all_ports(), lambda *opened: opened in permitted)
                opened = {(one.destination, one.ports) for one in self._elements.opened(policy.all_ports(), source)}
                forget_connections(self._nftables.netlink, source, partial(_is_permitted, record, routes, opened))

    def _former(self, record: Record) -> list[Record]:
        """Return the attachments that end with this one."""
        found: dict[tuple[str, str], Record] = {}
        same = self._records.find(record.container_id, record.ifname)
        for other in (same, *map(self._records.by_source, record.addresses)):
            if other is None:
                continue
            is_same = (other.container_id, other.ifname) == (record.container_id, record.ifname)
            if not is_same and other.link != record.link and other.port in _links():
                raise AddressTaken(f"{other} has one of the addresses already, and policies are found by address")
            found[other.container_id, other.ifname] = other
        return list(found.values())

    def _remove_unused(self, names: Iterable[str]) -> None:
        """Remove chains and sets of policies, but those that are in use, or have gone."""
        for name in sorted(names, key=is_chain_of_policy, reverse=True):  # chains first: they use the sets
            remove = self._nftables.delete_chain if is_chain_of_policy(name) else self._nftables.delete_set
            with _ignoring(errno.ENOENT, errno.EBUSY):
                remove(Family.INET, name)


def _changes(verb: Verb, record: Record) -> Iterator[Change]:
    """Return the elements of a record: those that say what its container may do, and the guards of its links.

    The port of a bridge is guarded like the bridge: if root removes the bridge and makes it again, the port is no port,
    and the host routes what comes from it.
    """
    link = key_ifname(record.link)
    yield Change(verb, Family.INET, "links", tuple(Element(key_ifname(name)) for name in _guarded_by(record)))
    yield Change(verb, Family.INET, "inside", (Element(link),))
    yield from (replace(change, verb=verb) for change in _sources(record, chain_of(record.policy, record.subnets)))
    if record.policy.needs_responder:
        for address in record.addresses:
            yield Change(verb, Family.INET, f"askers{address.version}", (Element(link + key_address(address)),))
    if not record.has_bridge:
        return
    port = key_ifname(record.port)
    yield Change(verb, Family.BRIDGE, "ports", (Element(port),))
    yield Change(verb, Family.BRIDGE, "macs", (Element(port + key_mac(record.mac)),))
    for address in (*record.addresses, link_local(record.mac)):
        key = port + key_mac(record.mac) + key_address(address)
        yield Change(verb, Family.BRIDGE, f"addresses{address.version}", (Element(key),))
        if isinstance(address, IPv6Address):
            yield Change(verb, Family.BRIDGE, "targets6", (Element(key),))


def _guarded_by(record: Record) -> tuple[str, ...]:
    return (record.link, record.port) if record.has_bridge else (record.link,)


def _sources(record: Record, chain: str) -> Iterator[Change]:
    """Return the elements that lead a record's packets to a chain, each in a change of its own."""
    for address in record.addresses:
        key = key_ifname(record.link) + key_address(address)
        yield Change(Verb.ADD, Family.INET, f"sources{address.version}", (Element(key, chain=chain),))


def _deletions(found: Iterable[tuple[str, Element]]) -> Iterator[Change]:
    for name, element in found:
        yield Change(Verb.DELETE, Family.INET, name, (Element(element.key),))


def _is_permitted(
    record: Record, routes: Routes, opened: Collection[tuple[IpAddress, PortRange]], connection: Connection
) -> bool:
    """Return whether a record's policy allows a connection."""
    if record.policy.audit:
        return True
    to, protocol, port = connection.destination, connection.protocol, connection.port
    is_open = any(at == to and ports.covers(protocol, port) for at, ports in opened)
    return is_open or bool(
        find_permission(record.policy, record.subnets, to, protocol, port, is_hosts_own=routes.is_hosts_own(to))
    )


def _element_text(record: Record) -> str:
    """Return the same elements as text for `nft`."""
    chain = chain_of(record.policy, record.subnets)
    lines = [f'inet {TABLE} links {{ "{name}" }}' for name in _guarded_by(record)]
    lines.append(f'inet {TABLE} inside {{ "{record.link}" }}')
    for address in record.addresses:
        lines.append(f'inet {TABLE} sources{address.version} {{ "{record.link}" . {address} : goto {chain} }}')
        if record.policy.needs_responder:
            lines.append(f'inet {TABLE} askers{address.version} {{ "{record.link}" . {address} }}')
    if record.has_bridge:
        lines.append(f'bridge {TABLE} ports {{ "{record.port}" }}')
        lines.append(f'bridge {TABLE} macs {{ "{record.port}" . {record.mac} }}')
        for address in (*record.addresses, link_local(record.mac)):
            place = f'"{record.port}" . {record.mac}'
            lines.append(f"bridge {TABLE} addresses{address.version} {{ {place} . {address} }}")
            if isinstance(address, IPv6Address):
                lines.append(f"bridge {TABLE} targets6 {{ {place} . {int(address):#034x} }}")
    return "".join(f"add element {line}\n" for line in lines)


def link_local(mac: str) -> IPv6Address:
    """Return the link-local address that the kernel makes of a hardware address (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    host = bytes((octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:6]))
    return IPv6Address(b"\xfe\x80" + bytes(6) + host)


def _names_of(record: Record) -> Iterator[str]:
    """Return the names of what the policy of a record has for itself: its chain, and sets for its names."""
    yield chain_of(record.policy, record.subnets)
    for one in record.policy.all_ports():
        yield from (name for version in (4, 6) if is_of_policy(name := set_of(one, version)))


def _policy_text(record: Record) -> str:
    return render_policy(record.policy, record.subnets)


def _links() -> set[str]:
    """Return the links of this network namespace."""
    return {name for _, name in socket.if_nameindex()}


def _run_nft(text: str) -> None:
    """Carry out commands of `nft` in one transaction.

    Raises:
        NftFailed: It has failed, and nothing has been changed.
    """
    path = ":".join(filter(None, (os.environ.get("PATH"), _PATH)))
    try:
        ended = subprocess.run(
            ("nft", "-f", "-"),  # noqa: S607  # where distributions install it
            input=text.encode(),
            capture_output=True,
            check=False,
            timeout=_NFT_LIMIT_S,
            env={**os.environ, "PATH": path, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NftFailed(f"nft cannot be run: {exc}") from exc
    if ended.returncode:
        raise NftFailed(f"nft has failed: {' '.join(ended.stderr.decode('utf-8', 'replace').split())[:500]}")


@contextmanager
def _ignoring(*numbers: int) -> Iterator[None]:
    try:
        yield
    except NetlinkError as exc:
        if exc.errno not in numbers:
            raise
