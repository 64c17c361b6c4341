# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What can wait begins when Docker is quiet, when somebody waits for it, or when it has waited long enough."""

import asyncio

import pytest

from cnm_bridge.scheduling.idle_gate import IdleGate


class Docker:
    """Is busy until the test says that it is quiet."""

    quiet_for = 0.0

    def quiet_s(self, besides: str) -> float:
        """Tell for how long it has not wanted anything."""
        return self.quiet_for if besides != "quiet" else 60.0


@pytest.fixture
def docker() -> Docker:
    """A busy one."""
    return Docker()


@pytest.fixture
def idle_gate(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> IdleGate[str]:
    """One that is patient, with `a` put off."""
    monkeypatch.setattr("cnm_bridge.scheduling.idle_gate._LONGEST_S", 3600.0)
    idle_gate: IdleGate[str] = IdleGate(docker.quiet_s)
    idle_gate.add("a")
    return idle_gate


async def is_waiting(idle_gate: IdleGate[str], key: str = "a") -> bool:
    """Tell whether something still waits after some lulls."""
    try:
        async with asyncio.timeout(0.3):
            await idle_gate.wait(key)
    except TimeoutError:
        return True
    return False


async def test_docker_becomes_quiet(idle_gate: IdleGate[str], docker: Docker) -> None:
    """It is enough that it is so for a moment, whenever that is noticed."""
    assert await is_waiting(idle_gate)
    docker.quiet_for = 0.05
    assert await is_waiting(idle_gate)
    docker.quiet_for = 0.2
    assert not await is_waiting(idle_gate)


async def test_somebody_waits(idle_gate: IdleGate[str]) -> None:
    """For one thing, before it is waited for or meanwhile; others are not hurried, nor what nobody has put off."""
    idle_gate.add("b")
    idle_gate.hurry(["a", "c"])
    assert not await is_waiting(idle_gate)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(idle_gate.wait("b"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        idle_gate.add("b")  # once more, as Docker may ask: it is the same
        idle_gate.hurry(["b"])


async def test_quiet_but_for_itself(idle_gate: IdleGate[str]) -> None:
    """Docker may want something of one thing only."""
    idle_gate.add("quiet")
    assert not await is_waiting(idle_gate, "quiet")
    assert await is_waiting(idle_gate)


async def test_long_enough(idle_gate: IdleGate[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A Docker that is never quiet is not waited for any longer."""
    assert await is_waiting(idle_gate)
    monkeypatch.setattr("cnm_bridge.scheduling.idle_gate._LONGEST_S", 0.05)
    assert not await is_waiting(idle_gate)


async def test_what_is_not_put_off(idle_gate: IdleGate[str]) -> None:
    """It does not wait; nor does what was forgotten, as after a first attempt."""
    assert not await is_waiting(idle_gate, "b")
    idle_gate.forget("a")
    idle_gate.forget("a")
    assert not await is_waiting(idle_gate)
