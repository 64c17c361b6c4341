# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who goes alone when first, and who does not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cni_invoker import Attachment, NetworkConfigurationList, PluginConfiguration, Result
from cni_invoker.shared_chains import SharedChains
from spec import JsonObject

PORTS = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": [{"hostPort": 8080}]})
NO_PORTS = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": []})
IPV4 = Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}]})
IPV6 = Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": "fd00::9/64"}]})
PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}


def plugin(document: JsonObject) -> PluginConfiguration:
    """Return a plugin's configuration."""
    return NetworkConfigurationList.from_document({"name": "net", "plugins": [document]}).plugins[0]


async def most_at_once(
    chains: SharedChains, document: JsonObject, attachment: Attachment = PORTS, prev_result: Result | None = IPV4
) -> int:
    """Return how many of three ADDs run at the same time."""
    running, most = 0, 0

    async def add() -> None:
        nonlocal running, most
        async with chains.first_alone(plugin(document), attachment, prev_result):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(add())
    return most


@pytest.mark.parametrize(
    "document",
    [PORTMAP, {"type": "firewall"}, {"type": "bridge", "ipMasq": True}, {"type": "ptp", "ipMasq": True}],
)
async def test_the_first_goes_alone(document: JsonObject) -> None:
    """Plugins that make shared chains run alone, until one of them has succeeded."""
    chains = SharedChains()
    with pytest.raises(RuntimeError):
        async with chains.first_alone(plugin(document), PORTS, IPV4):
            raise RuntimeError
    order: list[str] = []

    async def add(name: str, work: Callable[[], Awaitable[None]]) -> None:
        async with chains.first_alone(plugin(document), PORTS, IPV4):
            order.append(f"{name} begins")
            await work()
            order.append(f"{name} ends")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(add("a", lambda: asyncio.sleep(0.01)))
        tasks.create_task(add("b", lambda: asyncio.sleep(0.01)))
        tasks.create_task(add("c", lambda: asyncio.sleep(0.01)))
    assert order[:2] == ["a begins", "a ends"]
    assert order[2:4] == ["b begins", "c begins"]
    assert await most_at_once(chains, document) == 3


@pytest.mark.parametrize(
    ("document", "attachment"),
    [
        ({"type": "bridge"}, PORTS),
        ({"type": "bridge", "ipMasq": False}, PORTS),
        ({"type": "macvlan", "ipMasq": True}, PORTS),
        (PORTMAP, NO_PORTS),
        ({"type": "portmap"}, PORTS),
    ],
)
async def test_others_never_wait(document: JsonObject, attachment: Attachment) -> None:
    """Plugins that make no shared chain, or have nothing to do this time, run at once from the beginning."""
    assert await most_at_once(SharedChains(), document, attachment) == 3


async def test_each_family_has_a_first() -> None:
    """IPv6 has chains of its own: its first user goes alone even after IPv4's."""
    chains = SharedChains()
    async with chains.first_alone(plugin(PORTMAP), PORTS, IPV4):
        pass
    assert await most_at_once(chains, PORTMAP, prev_result=IPV4) == 3
    async with chains.first_alone(plugin(PORTMAP), PORTS, IPV6):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await most_at_once(chains, PORTMAP, prev_result=IPV6)
