# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What can wait begins when Docker is quiet, when somebody waits for it, or when it has waited long enough."""

import asyncio

import pytest

from cnm_bridge.scheduling.idle_gate import Lull


class Docker:
    """Wants something, until it is said not to."""

    quiet_for = 0.0

    def quiet_s(self, besides: str) -> float:
        """Tell for how long it has not wanted anything."""
        return self.quiet_for if besides != "quiet" else 60.0


@pytest.fixture
def docker() -> Docker:
    """A busy one."""
    return Docker()


@pytest.fixture
def lull(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> Lull[str]:
    """One that is patient, with `a` put off."""
    monkeypatch.setattr("cnm_bridge.scheduling.idle_gate._LONGEST_S", 3600.0)
    lull: Lull[str] = Lull(docker.quiet_s)
    lull.add("a")
    return lull


async def is_waiting(lull: Lull[str], key: str = "a") -> bool:
    """Tell whether something still waits after some lulls."""
    try:
        async with asyncio.timeout(0.3):
            await lull.wait(key)
    except TimeoutError:
        return True
    return False


async def test_docker_becomes_quiet(lull: Lull[str], docker: Docker) -> None:
    """It is enough that it is so for a moment, whenever that is noticed."""
    assert await is_waiting(lull)
    docker.quiet_for = 0.05
    assert await is_waiting(lull)
    docker.quiet_for = 0.2
    assert not await is_waiting(lull)


async def test_somebody_waits(lull: Lull[str]) -> None:
    """For one thing, before it is waited for or meanwhile; others are not hurried, nor what nobody has put off."""
    lull.add("b")
    lull.hurry(["a", "c"])
    assert not await is_waiting(lull)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lull.wait("b"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        lull.add("b")  # once more, as Docker may ask: it is the same
        lull.hurry(["b"])


async def test_quiet_but_for_itself(lull: Lull[str]) -> None:
    """Docker may want something of one thing only."""
    lull.add("quiet")
    assert not await is_waiting(lull, "quiet")
    assert await is_waiting(lull)


async def test_long_enough(lull: Lull[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A Docker that is never quiet is not waited for any longer."""
    assert await is_waiting(lull)
    monkeypatch.setattr("cnm_bridge.scheduling.idle_gate._LONGEST_S", 0.05)
    assert not await is_waiting(lull)


async def test_what_is_not_put_off(lull: Lull[str]) -> None:
    """It does not wait; nor does what was forgotten, as after a first attempt."""
    assert not await is_waiting(lull, "b")
    lull.forget("a")
    lull.forget("a")
    assert not await is_waiting(lull)
