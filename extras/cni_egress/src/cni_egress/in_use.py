# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which names each container has asked for, and which addresses were opened for them; pure.

From it the names are asked for again before their addresses are closed, the log learns the name of an address, and an
answer that has just opened its addresses need not open them again.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from cni_egress.message import Question, Type, to_text
from cni_egress.records import IpAddress, Record

__all__ = ["NamesInUse"]

_QUESTIONS: Final = 256
"""How many questions of a container are remembered; those that were asked longest ago go first."""
_TOGETHER_S: Final = 10.0
_BYTES_V4, _BYTES_V6 = 4, 16
_OPEN: Final = 50_000
"""How many addresses one container may have opened that are not closed yet, counted each time. Who controls an allowed
zone and a container could otherwise fill the kernel's memory."""


@dataclass(slots=True)
class _Use:
    """A question, without itself. There may be 50 000, so its addresses are bytes, one behind the other, in order."""

    record: Record
    addresses: bytes
    due: float
    end: float


@dataclass(slots=True)
class _Opened:
    ends: deque[tuple[float, int]] = field(default_factory=deque)
    total: int = 0


class NamesInUse:
    """The questions of containers whose answers have opened addresses."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], dict[Question, _Use]] = {}
        self._opened: dict[tuple[str, str], _Opened] = {}

    def __len__(self) -> int:
        return sum(map(len, self._uses.values()))

    def admit(self, record: Record, count: int, *, now: float, end: float) -> bool:
        """Return whether a container may open further addresses, and count them if it may.

        Args:
            record: The container.
            count: How many addresses.
            now: The time.
            end: When they are closed.
        """
        opened = self._opened.setdefault(_key(record), _Opened())
        while opened.ends and opened.ends[0][0] <= now:
            opened.total -= opened.ends.popleft()[1]
        if opened.total + count > _OPEN:
            return False
        if opened.ends and end - opened.ends[-1][0] < _TOGETHER_S:
            end, before = max(end, opened.ends[-1][0]), opened.ends.pop()[1]
            opened.ends.append((end, before + count))
        else:
            opened.ends.append((end, count))
        opened.total += count
        return True

    def note(
        self, record: Record, question: Question, addresses: tuple[IpAddress, ...], *, due: float, end: float
    ) -> None:
        """Write down that the answer to a question has opened addresses.

        Args:
            record: Who has asked.
            question: The question.
            addresses: The addresses that were opened.
            due: When it has to be asked again.
            end: When the addresses are closed.
        """
        uses = self._uses.setdefault(_key(record), {})
        uses.pop(question, None)  # so that it is the last one
        uses[question] = _Use(record, _pack(addresses), due, end)
        if len(uses) > _QUESTIONS:
            del uses[next(iter(uses))]

    def is_open(self, record: Record, question: Question, addresses: tuple[IpAddress, ...], until: float) -> bool:
        """Return whether the same answer has opened its addresses for at least so long, under the same record."""
        use = self._of(record).get(question)
        return use is not None and use.record is record and use.end >= until and use.addresses == _pack(addresses)

    def end_of(self, record: Record, addresses: tuple[IpAddress, ...]) -> float:
        """Return when the last of these addresses is closed that answers to a container have opened; 0: none is open.

        Names share addresses, and to open one for a shorter time must not close it for another name.
        """
        wanted = {one.packed for one in addresses}
        uses = self._of(record).items()
        ends = (
            use.end
            for question, use in uses
            if any(one in use.addresses for one in wanted) and not wanted.isdisjoint(_unpack(question, use))
        )
        return max(ends, default=0.0)

    def name_of(self, record: Record, address: IpAddress) -> str:
        """Return the name that has last led a container to an address; "" if none has."""
        for question, use in reversed(self._of(record).items()):
            if address.packed in _unpack(question, use):
                return to_text(question.name)
        return ""

    def names(self) -> Iterator[tuple[tuple[str, str], str, list[IpAddress]]]:
        """Yield container ID and ifname of an attachment, a name that it has asked for, and what was opened for it."""
        for key, uses in self._uses.items():
            for question, use in uses.items():
                yield key, to_text(question.name), [ip_address(one) for one in _unpack(question, use)]

    def count(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many names containers use, and how many addresses these have opened, both by network."""
        names: Counter[str] = Counter()
        addresses: Counter[str] = Counter()
        for uses in self._uses.values():
            for question, use in uses.items():
                addresses[use.record.network] += len(use.addresses) // _size(question)
            names[use.record.network] += len({question.name for question in uses})
        return names, addresses

    def due(self, now: float) -> Iterator[tuple[Record, Question]]:
        """Yield the questions that have to be asked again, with the records under which they were asked."""
        for uses in tuple(self._uses.values()):
            for question, use in tuple(uses.items()):
                if use.due <= now:
                    yield use.record, question

    def make_all_due(self) -> None:
        """Have all questions asked again: the kernel has lost what they had opened."""
        for uses in self._uses.values():
            for use in uses.values():
                use.due = use.end = 0.0

    def renew(
        self, record: Record, question: Question, addresses: tuple[IpAddress, ...], *, due: float, end: float
    ) -> None:
        """Write down what a question that was asked again has opened, if it is still remembered."""
        uses = self._of(record)
        if question in uses:
            uses[question] = _Use(record, _pack(addresses), due, end)

    def postpone(self, record: Record, question: Question, due: float) -> None:
        """Set when a question that was not answered has to be asked again."""
        use = self._of(record).get(question)
        if use is not None:
            use.due = due

    def forget(self, record: Record, question: Question | None = None) -> None:
        """Forget a question of a container, or all of them."""
        uses = self._of(record)
        if question is not None:
            uses.pop(question, None)
        if question is None or not uses:
            self._uses.pop(_key(record), None)
        if question is None:
            self._opened.pop(_key(record), None)

    def _of(self, record: Record) -> dict[Question, _Use]:
        return self._uses.get(_key(record), {})


def _pack(addresses: Iterable[IpAddress]) -> bytes:
    return b"".join(sorted(one.packed for one in addresses))


def _unpack(question: Question, use: _Use) -> list[bytes]:
    size = _size(question)
    return [use.addresses[begin : begin + size] for begin in range(0, len(use.addresses), size)]


def _size(question: Question) -> int:
    return _BYTES_V6 if question.type == Type.AAAA else _BYTES_V4


def _key(record: Record) -> tuple[str, str]:
    """Return what identifies an attachment, also when its policy has changed."""
    return record.container_id, record.ifname
