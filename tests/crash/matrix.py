# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One cell of the crash matrix: a call during which the daemon dies, its next run, and what must be true then."""

from dataclasses import dataclass
from typing import Protocol

from cni_bridge_spec import get_str
from tests.crash.endpoint import Answer, Endpoint
from tests.crash.host import Host

KEPT = frozenset({"ready", "joined"})
"""The phases that a record may have after recovery."""


class Story(Protocol):
    """The life of one endpoint, with the call during which the daemon may die."""

    name: str
    endpoint: Endpoint
    deletes: bool
    """Whether the call is answered before its work begins, so that the daemon may die after the answer."""
    is_refused: bool
    """Whether the call fails and is undone. On a busy machine it is answered before the end of that."""

    def prepare(self) -> None:
        """Bring the endpoint to the state in which the call follows."""

    def send(self) -> Answer:
        """Make the call."""

    def check_answer(self, answer: Answer) -> None:
        """Assert that the answer of a daemon that did not die is right."""

    def finish(self) -> None:
        """Make the calls that Docker makes after a call that was answered, until the endpoint is deleted."""

    def go_on(self) -> None:
        """Do what Docker does while the daemon is dead."""

    def delete_complete(self, where: str) -> None:
        """Assert that the endpoint, which has a record, is complete; delete it."""

    def end(self, where: str) -> None:
        """Assert that the sandbox is as it was before, and remove what is not needed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What happened in a cell.

    Attributes:
        reached: The boundaries of the call up to the daemon's death, or all of them if it did not die.
        recovery: The boundaries that the next run reached until it answered.
        died_again: Whether the next run died at its boundary too.
    """

    reached: tuple[str, ...]
    recovery: tuple[str, ...]
    died_again: bool

    @property
    def cut_off(self) -> bool:
        """Whether a plugin ran at the first death: how far it came varies, and so does the recovery."""
        return self.reached[-1].startswith("while ")


def try_cell(host: Host, story: Story, boundary: int, again: int = 0) -> Cell:
    """Kill the daemon at a boundary of a call and its next run at boundary `again` of its start; then check everything.

    The number 0 stands for no boundary.

    Raises:
        AssertionError: Something is left behind, or lost.
    """
    before, endpoint = host.lab.state(), story.endpoint
    story.prepare()
    host.arm(boundary)
    answer = story.send()
    if not boundary:
        story.check_answer(answer)
        if story.deletes or story.is_refused:
            host.wait_gone(endpoint)
        reached = host.disarm()
        story.finish()
        story.end(f"{story.name} without interruption")
        host.assert_clean(before, f"{story.name} without interruption")
        return Cell(reached=reached, recovery=(), died_again=False)
    if answer is not None:
        assert story.deletes or story.is_refused, f"{story.name} has no boundary {boundary}"
        story.check_answer(answer)
    host.wait_dead()
    reached = host.disarm()
    where = f"killed in {story.name} at boundary {boundary}, {reached[-1]}"
    story.go_on()
    host.arm(again)
    died_again = host.start_to_die()
    recovery = host.disarm()
    if died_again:
        where += f"; in recovery at boundary {again}, {recovery[-1]}"
        host.start()
    host.neighbour.assert_intact(where)
    phase = host.phase(endpoint)
    must_be_gone = story.deletes and answer is not None
    assert phase is None or (phase in KEPT and not must_be_gone), f"{where}: the record is {phase} after recovery"
    refused = host.call("Leave")  # Docker repeats the call whose connection broke, without its body
    assert "no body" in get_str(refused or {}, "Err"), where
    if phase is not None:
        story.delete_complete(where)
    story.end(where)
    host.assert_clean(before, where)
    return Cell(reached=reached, recovery=recovery, died_again=died_again)
