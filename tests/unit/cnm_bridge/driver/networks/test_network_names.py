# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks without `-o cni.network` get their name from the engine, once, in the background."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cni_bridge_state import NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable, Refused
from cnm_bridge.driver.networks.engine_import import NetworkNameResolver
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.scheduling import KeyedLocks
from tests.records import network_record

NETWORK = network_record("a1" * 32, configuration=None, name=None)


class Names(Engine):
    """Gives the answers one after another, and repeats the last one."""

    def __init__(self, *answers: str | Exception | None) -> None:
        super().__init__("unix:///none", 1.0)
        self.answers = list(answers)
        self.asked: list[str] = []
        self.first_asked = asyncio.Event()

    async def network_name(self, network_id: str) -> str | None:
        """Return, or raise, the next answer."""
        self.asked.append(network_id)
        self.first_asked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def running(store: Store, names: Names, patience_s: float = 5) -> AsyncIterator[NetworkNameResolver]:
    """Run a resolver."""
    name_resolver = NetworkNameResolver(store, names, KeyedLocks(), patience_s)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(name_resolver.run())
        yield name_resolver
        task.cancel()


async def test_the_name_is_stored(store: Store) -> None:
    """The engine is asked again if it does not know the network yet, is down, or answers nonsense."""
    names = Names(None, EngineUnavailable("booting"), ZeroDivisionError("a bug"), "blue")
    await store.put_network(NETWORK)
    async with running(store, names) as name_resolver:
        name_resolver.learn(NETWORK.id)
        assert await name_resolver.wait(NETWORK.id) == "blue"
    stored = store.find_network(NETWORK.id)
    assert stored is not None
    assert stored.name == "blue"
    assert names.asked == [NETWORK.id] * 4


async def test_a_missing_name_is_resolved_after_a_restart(store: Store) -> None:
    """A restarted daemon asks for networks without a name, and for no other."""
    await store.put_network(NETWORK)
    async with running(store, Names("blue")) as name_resolver:
        await asyncio.sleep(0)
        assert await name_resolver.wait(NETWORK.id) == "blue"
    new = replace(NETWORK, id=NetworkId("b2" * 32))
    await store.put_network(new)
    names = Names("other")
    async with running(store, names) as name_resolver:
        await asyncio.sleep(0)
        assert await name_resolver.wait(new.id) == "other"
    assert names.asked == [new.id]


async def test_waiting_for_a_name_ends_with_an_error(store: Store) -> None:
    """If the engine never answers, the user's command fails with what to do, and does not hang."""
    await store.put_network(NETWORK)
    async with running(store, Names(EngineUnavailable("away")), patience_s=0.1) as name_resolver:
        name_resolver.learn(NETWORK.id)
        with pytest.raises(Refused, match="make the network with -o cni"):
            await name_resolver.wait(NETWORK.id)


async def test_waiting_ends_when_the_network_is_removed(store: Store) -> None:
    """Docker may remove a network before its name is known; the name is not requested any more."""
    names = Names(None)
    await store.put_network(NETWORK)
    async with running(store, names, patience_s=3600) as name_resolver:
        name_resolver.learn(NETWORK.id)
        await names.first_asked.wait()
        await store.remove_network(NETWORK.id)
        with pytest.raises(Refused):
            await name_resolver.wait(NETWORK.id)
    assert store.find_network(NETWORK.id) is None


async def test_a_resolver_that_is_run_again(store: Store) -> None:
    """After an error of the daemon it continues with the network that it was asking for, and with new ones."""
    await store.put_network(NETWORK)
    names = Names(None)
    resolver = NetworkNameResolver(store, names, KeyedLocks(), 5.0)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(resolver.run())
        await names.first_asked.wait()
        task.cancel()
    names.answers = ["blue"]
    new = replace(NETWORK, id=NetworkId("b2" * 32))
    await store.put_network(new)
    resolver.learn(new.id)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(resolver.run())
        assert [await resolver.wait(network.id) for network in (NETWORK, new)] == ["blue", "blue"]
        task.cancel()
    assert names.asked.count(new.id) == 1
