# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which names each container has asked for, and which addresses were opened for them; pure.

From it the names are asked for again before their addresses are closed, the log learns the name of an address, and an
answer that has just opened its addresses need not open them again.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cni_egress.message import Question, to_text
from cni_egress.records import IpAddress, Record

__all__ = ["NamesInUse"]

_QUESTIONS: Final = 256
"""How many questions of a container are remembered; those that were asked longest ago go first."""


@dataclass(slots=True)
class _Use:
    record: Record
    addresses: tuple[IpAddress, ...]
    due: float
    end: float


class NamesInUse:
    """The questions of containers whose answers have opened addresses."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], OrderedDict[Question, _Use]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._uses.values()))

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
        uses = self._uses.setdefault(_key(record), OrderedDict())
        uses[question] = _Use(record, addresses, due, end)
        uses.move_to_end(question)
        if len(uses) > _QUESTIONS:
            uses.popitem(last=False)

    def is_open(self, record: Record, question: Question, addresses: tuple[IpAddress, ...], until: float) -> bool:
        """Return whether the same answer has opened its addresses for at least so long, under the same record."""
        use = self._of(record).get(question)
        if use is None or use.record is not record or use.end < until:
            return False
        return use.addresses == addresses or set(use.addresses) == set(addresses)

    def end_of(self, record: Record, addresses: tuple[IpAddress, ...]) -> float:
        """Return when the last of these addresses is closed that answers to a container have opened; 0: none is open.

        Names share addresses, and to open one for a shorter time must not close it for another name.
        """
        wanted = set(addresses)
        ends = (use.end for use in self._of(record).values() if not wanted.isdisjoint(use.addresses))
        return max(ends, default=0.0)

    def name_of(self, record: Record, address: IpAddress) -> str:
        """Return the name that has last led a container to an address; "" if none has."""
        for question, use in reversed(self._of(record).items()):
            if address in use.addresses:
                return to_text(question.name)
        return ""

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
            uses[question] = _Use(record, addresses, due, end)

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

    def _of(self, record: Record) -> OrderedDict[Question, _Use]:
        return self._uses.get(_key(record)) or OrderedDict()


def _key(record: Record) -> tuple[str, str]:
    """Return what identifies an attachment, also when its policy has changed."""
    return record.container_id, record.ifname
