# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An engine's version, known while it boots, and its networks are read from its answers."""

import asyncio
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.system import known_version
from cnm_bridge.system.known_version import KnownVersion

TRAITS = ("calls_before_start", "disables_ipv6", "forgets_networks", "makes_sandbox_first", "programs_internal")
SINCE_28_1 = {"makes_sandbox_first", "calls_before_start"}


@pytest.mark.parametrize(
    ("text", "version", "traits"),
    [
        ("20.10.24+dfsg1", EngineVersion(20, 10), {"disables_ipv6"}),
        ("25.0.0", EngineVersion(25, 0), {"disables_ipv6"}),
        ("26.0.0", EngineVersion(26, 0), set()),
        ("27.5.1", EngineVersion(27, 5), set()),
        ("28.0.0", EngineVersion(28, 0), {"makes_sandbox_first"}),
        ("28.1.0", EngineVersion(28, 1), SINCE_28_1),
        ("28.5.2", EngineVersion(28, 5), SINCE_28_1),
        ("29.0.0", EngineVersion(29, 0), {*SINCE_28_1, "programs_internal"}),
        ("v29.1.0-rc.1", EngineVersion(29, 1), {*SINCE_28_1, "programs_internal", "forgets_networks"}),
        ("100.1", EngineVersion(100, 1), {*SINCE_28_1, "programs_internal", "forgets_networks"}),
    ],
)
def test_a_version(text: str, version: EngineVersion, traits: set[str]) -> None:
    """What the engines do differently: with IPv6, with the order of calls, and with networks after a failed start."""
    assert EngineVersion.parse(text) == version
    assert {trait for trait in TRAITS if getattr(version, trait)} == traits


@pytest.mark.parametrize("text", ["", "dev", "library-import", "28"])
def test_a_version_without_numbers(text: str) -> None:
    """A build without a version number is unknown."""
    assert EngineVersion.parse(text) is None


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_first_look_is_awaited(store: Store, *, is_there: bool) -> None:
    """A call that comes before it waits: not to have looked does not mean that the engine boots."""
    known = KnownVersion(store)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(known.wait_looked())
        await asyncio.sleep(0)
        assert not waiting.done()
        if is_there:
            known.note(EngineVersion(28, 5))
        else:
            known.lose()
    assert known.is_up is is_there


async def test_an_engine_that_boots_is_not_awaited(store: Store) -> None:
    """It does not answer before it has started the containers that wait for this. Later calls do not wait at all."""
    known = KnownVersion(store)
    async with asyncio.timeout(30):
        await known.wait_looked()
    again = known.wait_looked()
    with pytest.raises(StopIteration):  # it has ended without a pause
        again.send(None)
    assert not known.is_up


async def test_an_engine_that_neither_answers_nor_refuses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the start nothing is known of it; some time later it does not answer."""
    monkeypatch.setattr(known_version, "_GIVEN_UP_AFTER_S", 0.01)
    known = KnownVersion(store)
    seen = [known.is_up]
    await known.give_up()
    seen.append(known.is_up)
    known.note(EngineVersion(28, 5))
    await known.give_up()
    assert [*seen, known.is_up] == [None, False, True]


async def test_a_version_is_known_after_a_restart(tmp_path: Path) -> None:
    """A booting engine starts containers before it answers."""
    with_engine = Store.open(tmp_path)
    known = KnownVersion(with_engine)
    assert known.current is None
    known.note(EngineVersion(28, 5))
    assert known.is_up
    await known.keep()
    known.lose()
    with_engine.close()
    after_restart = Store.open(tmp_path)
    again = KnownVersion(after_restart)
    assert again.current == EngineVersion(28, 5)
    assert not again.is_up
    after_restart.close()


IPV4, IPV6 = "10.22.0.0/16", "fd22::/64"
DOCUMENT: JsonObject = {"Id": "6f" * 32, "Name": "shop_blue", "Internal": False, "Containers": {}}


@pytest.mark.parametrize(
    ("families", "subnets"),
    [
        ({"EnableIPv6": True}, (IPV4, IPV6)),  # before Engine 28
        ({"EnableIPv6": False}, (IPV4,)),
        ({"EnableIPv4": True, "EnableIPv6": False}, (IPV4,)),
        ({"EnableIPv4": False, "EnableIPv6": True}, (IPV6,)),
        ({"EnableIPv4": False, "EnableIPv6": False}, ()),
    ],
)
def test_a_family_that_is_switched_off_has_no_pool(families: JsonObject, subnets: tuple[str, ...]) -> None:
    """Docker still shows its subnet, and assigns no address from it."""
    pools: list[JsonObject] = [{"Subnet": IPV4}, {"Subnet": IPV6}]
    document: JsonObject = {**DOCUMENT, "IPAM": {"Config": [*pools]}, **families}
    assert tuple(str(pool.subnet) for pool in EngineNetwork.from_json(document).pools) == subnets


@pytest.mark.parametrize(
    ("labels", "name"),
    [(None, None), ({}, None), ({"com.docker.compose.network": "blue"}, "blue")],
    ids=["no labels", "other labels", "made by compose"],
)
def test_the_name_in_a_compose_file(labels: JsonObject | None, name: str | None) -> None:
    """Compose puts the project's name before it, and keeps it as a label."""
    assert EngineNetwork.from_json({**DOCUMENT, "Labels": labels}).compose_name == name
