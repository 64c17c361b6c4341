# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One cell of the crash matrix: a call during which the daemon dies, its next run, and what must be true then."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cni_bridge_spec import get_object, get_str
from tests.crash.host import Answer, Endpoint, Host
from tests.lab import LabState

__all__ = ["Call", "Cell", "try_cell"]

_KEPT = frozenset({"ready", "joined"})


class Call(StrEnum):
    """The call during which the daemon dies."""

    CREATE = "create"
    JOIN = "join"
    LEAVE = "leave"
    DELETE = "delete"
    DELETE_JOINED = "delete without leave"


_DELETES: Final = frozenset({Call.DELETE, Call.DELETE_JOINED})
"""These are answered before the teardown starts, so the daemon may die after the answer."""


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


def try_cell(host: Host, call: Call, boundary: int, again: int = 0) -> Cell:
    """Kill the daemon at a boundary of `call` and its next run at boundary `again` of its start; then check everything.

    The number 0 stands for no boundary.

    Raises:
        AssertionError: Something is left behind, or lost.
    """
    before = host.lab.state()
    endpoint = host.endpoint()
    _prepare(endpoint, call)
    host.arm(boundary)
    answer = _send(endpoint, call)
    if not boundary:
        assert answer is not None
        assert "Err" not in answer, answer
        if call in _DELETES:
            host.wait_gone(endpoint)
        reached = host.disarm()
        _finish(host, endpoint, call)
        _assert_clean(host, before, f"{call} without interruption")
        return Cell(reached=reached, recovery=(), died_again=False)
    assert answer is None or (call in _DELETES and answer == {}), f"{call} has no boundary {boundary}"
    host.wait_dead()
    reached = host.disarm()
    where = f"killed in {call} at boundary {boundary}, {reached[-1]}"
    host.arm(again)
    died_again = host.start_to_die()
    recovery = host.disarm()
    if died_again:
        where += f"; in recovery at boundary {again}, {recovery[-1]}"
        host.start()
    assert host.neighbour.has_network(), f"{where}: the neighbour has lost its network"
    _check_and_delete(host, endpoint, call, is_deleted=call in _DELETES and answer is not None, where=where)
    _assert_clean(host, before, where)
    return Cell(reached=reached, recovery=recovery, died_again=died_again)


def _prepare(endpoint: Endpoint, call: Call) -> None:
    """Bring the endpoint to the state in which `call` follows."""
    if call is Call.CREATE:
        return
    assert get_object(endpoint.create() or {}, "Interface")
    if call is Call.JOIN:
        return
    assert get_object(endpoint.join() or {}, "InterfaceName")
    endpoint.move_in()
    if call in {Call.LEAVE, Call.DELETE_JOINED}:
        return
    assert endpoint.leave() == {}
    endpoint.move_out()


def _send(endpoint: Endpoint, call: Call) -> Answer:
    match call:
        case Call.CREATE:
            return endpoint.create()
        case Call.JOIN:
            return endpoint.join()
        case Call.LEAVE:
            return endpoint.leave()
        case Call.DELETE | Call.DELETE_JOINED:
            return endpoint.delete()


def _finish(host: Host, endpoint: Endpoint, call: Call) -> None:
    """Make the calls that Docker makes after a call that was answered, until the endpoint is deleted."""
    if call is Call.LEAVE:
        endpoint.move_out()
    if call not in _DELETES:
        assert endpoint.delete() == {}
        host.wait_gone(endpoint)


def _check_and_delete(host: Host, endpoint: Endpoint, call: Call, *, is_deleted: bool, where: str) -> None:
    """Assert that the endpoint is either gone or complete, as its record says, and delete it if it is complete.

    It must be gone if its DeleteEndpoint was answered.
    """
    phase = host.phase(endpoint)
    assert phase is None or (phase in _KEPT and not is_deleted), f"{where}: the record is {phase} after recovery"
    refused = host.call("Leave")  # Docker repeats the call whose connection broke, without its body
    assert "no body" in get_str(refused or {}, "Err"), where
    if phase is None:
        return
    if call in {Call.LEAVE, Call.DELETE_JOINED}:
        assert endpoint.has_network(), f"{where}: the container has lost its network"
        assert endpoint.leave() == {}, where
        endpoint.move_out()
    else:
        assert get_object(endpoint.create() or {}, "Interface"), f"{where}: the endpoint cannot be created again"
        assert get_object(endpoint.join() or {}, "InterfaceName"), where
        endpoint.move_in()
        assert endpoint.has_network(), f"{where}: the endpoint does not reach its gateways"
        assert endpoint.leave() == {}, where
        endpoint.move_out()
    assert endpoint.delete() == {}, where
    host.wait_gone(endpoint)


def _assert_clean(host: Host, before: LabState, where: str) -> None:
    left = host.lab.wait_clean(before)
    assert not left, f"{where}; left behind:\n{left}"
