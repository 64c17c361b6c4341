# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Deferred work starts when Docker is idle, when an urgent operation needs it, or after the longest wait."""

import asyncio

import pytest

from cnm_bridge.system.scheduling.idle_gate import IdleGate


class Docker:
    """A Docker that is busy until the test sets how long it has been idle."""

    quiet_for = 0.0

    def quiet_s(self, besides: str) -> float:
        """Return for how long Docker has been idle."""
        return self.quiet_for if besides != "quiet" else 60.0


@pytest.fixture
def docker() -> Docker:
    """A busy Docker."""
    return Docker()


@pytest.fixture
def idle_gate(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> IdleGate[str]:
    """A gate that waits for an hour, with `a` deferred."""
    monkeypatch.setattr("cnm_bridge.system.scheduling.idle_gate._LONGEST_S", 3600.0)
    idle_gate: IdleGate[str] = IdleGate(docker.quiet_s)
    idle_gate.add("a")
    return idle_gate


async def is_waiting(idle_gate: IdleGate[str], key: str = "a") -> bool:
    """Return whether work still waits after some checks of the gate."""
    try:
        async with asyncio.timeout(0.3):
            await idle_gate.wait(key)
    except TimeoutError:
        return True
    return False


async def wait_open(idle_gate: IdleGate[str], key: str = "a") -> None:
    """Wait until the gate lets work start, which it must; the limit only ends a test that hangs."""
    async with asyncio.timeout(30):
        await idle_gate.wait(key)


async def test_deferred_work_starts_when_docker_is_idle(idle_gate: IdleGate[str], docker: Docker) -> None:
    """A short time of idleness is enough, whenever it is noticed."""
    assert await is_waiting(idle_gate)
    docker.quiet_for = 0.05
    assert await is_waiting(idle_gate)
    docker.quiet_for = 0.2
    await wait_open(idle_gate)


async def test_hurried_work_starts_at_once(idle_gate: IdleGate[str]) -> None:
    """`expedite` works before and during the wait; other work stays deferred, and unknown keys are ignored."""
    idle_gate.add("b")
    idle_gate.expedite(["a", "c"])
    await wait_open(idle_gate)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(idle_gate.wait("b"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        idle_gate.add("b")  # adding a key again, as Docker may, changes nothing
        idle_gate.expedite(["b"])


async def test_calls_about_the_work_itself_do_not_count(idle_gate: IdleGate[str]) -> None:
    """Docker may be busy with one endpoint only, which then does not hold up that endpoint's work."""
    idle_gate.add("quiet")
    await wait_open(idle_gate, "quiet")
    assert await is_waiting(idle_gate)


async def test_deferred_work_starts_after_the_longest_wait(
    idle_gate: IdleGate[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Docker that is always busy does not defer work forever."""
    assert await is_waiting(idle_gate)
    monkeypatch.setattr("cnm_bridge.system.scheduling.idle_gate._LONGEST_S", 0.05)
    await wait_open(idle_gate)


async def test_work_that_is_not_deferred_does_not_wait(idle_gate: IdleGate[str]) -> None:
    """This includes work that was forgotten, as after a first attempt."""
    await wait_open(idle_gate, "b")
    idle_gate.forget("a")
    idle_gate.forget("a")
    await wait_open(idle_gate)
