# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The reservations of a cluster: made, found and released by transactions of etcd, without locks."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from cni_invoker.documents.jsontypes import JsonError
from cni_ipam_etcd.etcd import Etcd, Pair, absent, delete, put, read, same
from cni_ipam_etcd.ranges import IpAddress, RangeSet, first_gap
from cni_ipam_etcd.reservation import Keys, Reservation, last_key
from cni_ipam_etcd.settings import Settings
from cni_plugin import CallError, ErrorCode

__all__ = ["FULL", "TAKEN", "Reservations"]

FULL: Final = 102
"""The code of an error if all addresses of a set are assigned."""
TAKEN: Final = 103
"""The code of an error if a requested address is assigned."""

_PAGE: Final = 512
"""How many keys are read at once."""


class Reservations:
    """The reservations below the prefix of the settings.

    Args:
        etcd: The cluster.
        settings: The prefix, and the name of this node.
    """

    def __init__(self, etcd: Etcd, settings: Settings) -> None:
        self._etcd = etcd
        self._keys = Keys(settings.prefix)
        self._node = settings.node
        self._machine = settings.machine.encode()

    @classmethod
    @contextmanager
    def connected(cls, settings: Settings) -> Iterator["Reservations"]:
        """Give the reservations of a cluster, with a connection for the body."""
        etcd = Etcd(settings)
        try:
            yield cls(etcd, settings)
        finally:
            etcd.close()

    def reserve(
        self, attachment: tuple[str, str, str], sets: Sequence[RangeSet], requested: Sequence[IpAddress | None]
    ) -> tuple[IpAddress, ...]:
        """Reserve an address of each set: all of them, or none.

        Args:
            attachment: The network, the container ID and the ifname.
            sets: The sets.
            requested: The address that must be that of a set; None: any.

        Raises:
            CallError: A set is full (code 102), a requested address is assigned (code 103), the attachment has
                addresses already, another host has this node's name (code 7), or etcd does not answer (codes 100 and
                101).
        """
        network, container_id, ifname = attachment
        chosen = [wanted or one.draw(_random()) for one, wanted in zip(sets, requested, strict=True)]
        while True:
            mine = Reservation(
                network=network,
                node=self._node,
                container_id=container_id,
                ifname=ifname,
                addresses=tuple(chosen),
                time=_now(),
            )
            found = self._put(mine)
            if found is None or any(pair.value == mine.render() for pair in found):  # of an attempt without an answer
                return mine.addresses
            existing = {pair.key: pair for pair in found}
            self._own(existing.get(self._keys.owner(self._node)))
            if self._keys.attachment(mine) in existing:
                what = f"{ifname} of {container_id} on node {self._node} has addresses on network {network} already"
                raise CallError(ErrorCode.INTERNAL, f"{what}; DEL it first")
            for index, (one, wanted) in enumerate(zip(sets, requested, strict=True)):
                pair = existing.get(self._keys.address(network, chosen[index]))
                if pair is not None and wanted is not None:
                    raise CallError(TAKEN, f"{wanted} is assigned to {_describe(pair)}")
                if pair is not None:
                    chosen[index] = self.find_free(network, one)

    def _put(self, mine: Reservation) -> tuple[Pair, ...] | None:
        keys = self._keys.of(mine)
        owner = self._keys.owner(self._node)
        return self._etcd.transact(
            compare=[*map(absent, keys), same(owner, self._machine)],
            success=[*(put(key, mine.render()) for key in keys), put(self._keys.node(self._node), _now().encode())],
            failure=list(map(read, (*keys, owner))),
        )

    def claim(self) -> None:
        """Make sure that this host alone reserves addresses under the node's name.

        Raises:
            CallError: Another host does (code 7).
        """
        owner = self._keys.owner(self._node)
        pairs, _ = self._etcd.read_range(owner, owner + "\0")
        self._own(pairs[0] if pairs else None)

    def _own(self, owner: Pair | None) -> None:
        """Take the node's name if it has no owner.

        Raises:
            CallError: Another host is its owner (code 7).
        """
        if owner is None:
            key = self._keys.owner(self._node)
            left = self._etcd.transact([absent(key)], [put(key, self._machine)], [read(key)])
            owner = None if not left else left[0]
        if owner is not None and owner.value != self._machine:
            raise CallError(
                ErrorCode.INVALID_CONFIGURATION,
                f"node {self._node} is another host, which reserves addresses under this name",
                "give each host a name of its own: `node` in the settings of etcd, or the host's name. If this host is "
                f"new and that one is gone: cni-ipam-etcd release --node {self._node} --force",
            )

    def find_free(self, network: str, one: RangeSet) -> IpAddress:
        """Return an address of a set that is free, the next one from a random one on.

        Raises:
            CallError: There is none (code 102), or another program uses the prefix (code 7).
        """
        beginning = self._keys.addresses(network, one.version)
        revision = 0  # of the first page; all others must be of the same, or an address may be seen as taken wrongly
        for first, last in one.stretches(one.draw(_random())):
            end = self._keys.address(network, one.address(last)) + "\0"
            while first <= last:
                start = self._keys.address(network, one.address(first))
                page, revision = self._etcd.read_range(start, end, limit=_PAGE, keys_only=True, revision=revision)
                gap = first_gap(first, [self._number(pair, beginning) for pair in page])
                if gap <= last and (len(page) < _PAGE or gap < first + len(page)):
                    return one.address(gap)
                first = gap  # noqa: PLW2901  # the next page
        raise CallError(FULL, f"all {one.size} addresses of {one.text} on network {network} are assigned")

    def _number(self, pair: Pair, beginning: str) -> int:
        try:
            return self._keys.parse_address(pair.key)
        except ValueError:
            raise _foreign(pair, f"it is not the key of an address below {beginning}") from None

    def find(self, network: str, container_id: str, ifname: str) -> tuple[Reservation, bytes] | None:
        """Return the reservation of an attachment of this node with the value of its keys; None if there is none.

        Raises:
            CallError: Its key has something else (code 7).
        """
        key = f"{self._keys.attachments(self._node, network)}{container_id}/{ifname}"
        pairs, _ = self._etcd.read_range(key, key + "\0")
        return None if not pairs else (_parse(pairs[0]), pairs[0].value)

    def release(self, found: Reservation, value: bytes) -> None:
        """Delete a reservation, unless it has been replaced; what others have put under its keys stays.

        Args:
            found: The reservation.
            value: The value of its keys.
        """
        keys = self._keys.of(found)
        while keys:  # nothing is written beside: an etcd without space refuses that, and not that keys are deleted
            compare = [same(key, value) for key in keys]
            left = self._etcd.transact(compare, list(map(delete, keys)), list(map(read, keys)))
            if left is None:
                break
            keys = [pair.key for pair in left if pair.value == value]
        with suppress(CallError):
            self.mark_seen()

    def missing(self, found: Reservation, value: bytes) -> tuple[IpAddress, ...]:
        """Return which addresses of a reservation are no longer its own."""
        keys = {self._keys.address(found.network, one): one for one in found.addresses}
        left = self._etcd.transact([same(key, value) for key in keys], [], list(map(read, keys)))
        intact = keys if left is None else {pair.key for pair in left if pair.value == value}
        return tuple(address for key, address in keys.items() if key not in intact)

    def of_node(self, node: str = "", network: str = "") -> Iterator[tuple[Reservation, bytes]]:
        """Yield all reservations, or those of a node, or those of one of its networks; each with its keys' value.

        Raises:
            CallError: There is something else below the prefix (code 7).
        """
        first = self._keys.attachments(node, network)
        end = last_key(first)
        while True:
            page, _ = self._etcd.read_range(first, end, limit=_PAGE)
            for pair in page:
                yield _parse(pair), pair.value
            if len(page) < _PAGE:
                return
            first = page[-1].key + "\0"

    def forget_owner(self, node: str) -> None:
        """Let another host take a node's name."""
        self._etcd.transact([], [delete(self._keys.owner(node))])

    def mark_seen(self) -> None:
        """Write down that this node is alive."""
        self._etcd.transact([], [put(self._keys.node(self._node), _now().encode())])

    def nodes(self) -> dict[str, datetime]:
        """Return when each node was last seen, by its own clock.

        Raises:
            CallError: There is something else below the prefix (code 7).
        """
        first = self._keys.nodes()
        pairs, _ = self._etcd.read_range(first, last_key(first))
        seen = {}
        for pair in pairs:
            try:
                seen[pair.key.removeprefix(first)] = datetime.fromisoformat(pair.value.decode())
            except ValueError as exc:
                raise _foreign(pair, str(exc)) from exc
        return seen


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _random() -> int:
    return int.from_bytes(os.urandom(8))


def _parse(pair: Pair) -> Reservation:
    try:
        return Reservation.parse(pair.value)
    except JsonError as exc:
        raise _foreign(pair, str(exc)) from exc


def _describe(pair: Pair) -> str:
    try:
        return str(Reservation.parse(pair.value))
    except JsonError:
        return f"another program, which has written {pair.key}"


def _foreign(pair: Pair, reason: str) -> CallError:
    return CallError(
        ErrorCode.INVALID_CONFIGURATION,
        f"{pair.key} in etcd is not a reservation: {reason}",
        "does another program use the prefix? Choose another `prefix` in the settings of etcd, or delete the key",
    )
