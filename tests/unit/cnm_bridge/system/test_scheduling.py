# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each key has one holder, and keys are independent."""

import asyncio

from cnm_bridge.system.scheduling import KeyedLocks


async def test_holders_of_one_key_are_serialized() -> None:
    """The second waits for the first, in the order of arrival."""
    locks: KeyedLocks[str] = KeyedLocks()
    order: list[str] = []
    inside = asyncio.Event()

    async def hold(name: str, until: asyncio.Event) -> None:
        async with locks.hold("key"):
            order.append(f"{name} in")
            inside.set()
            await until.wait()
            order.append(f"{name} out")

    first, second = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold("first", first))
        await inside.wait()
        tasks.create_task(hold("second", second))
        second.set()
        await asyncio.sleep(0)
        first.set()
    assert order == ["first in", "first out", "second in", "second out"]


async def test_other_keys_are_independent() -> None:
    """Two keys can be held at the same time."""
    locks: KeyedLocks[str] = KeyedLocks()
    async with asyncio.timeout(5), locks.hold("a"), locks.hold("b"):
        pass


async def test_a_free_key_takes_no_memory() -> None:
    """The lock of a key is removed when it is released, also after an error."""
    locks: KeyedLocks[int] = KeyedLocks()
    for key in range(3):
        try:
            async with locks.hold(key):
                raise LookupError
        except LookupError:
            pass
    assert not locks._locks
    assert not locks._users
