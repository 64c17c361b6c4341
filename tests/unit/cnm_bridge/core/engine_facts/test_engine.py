# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An engine's version is read from its description, and is known while the engine boots."""

import asyncio
from pathlib import Path

import pytest

from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import EngineVersion
from cnm_bridge.system import known_version
from cnm_bridge.system.known_version import KnownVersion


def test_what_guarded_networks_need() -> None:
    """Name servers in time from 28.1 on, and ports of internal networks from 29 on."""
    assert not EngineVersion(28, 0).calls_before_start
    assert EngineVersion(28, 1).calls_before_start
    assert not EngineVersion(28, 5).programs_internal
    assert EngineVersion(29, 0).programs_internal


@pytest.mark.parametrize(
    ("text", "version", "first"),
    [
        ("20.10.24+dfsg1", EngineVersion(20, 10), False),
        ("27.5.1", EngineVersion(27, 5), False),
        ("28.0.0", EngineVersion(28, 0), True),
        ("v29.7.2-rc.1", EngineVersion(29, 7), True),
        ("100.1", EngineVersion(100, 1), True),
    ],
)
def test_a_version(text: str, version: EngineVersion, *, first: bool) -> None:
    """From 28 on an engine makes the sandbox before it calls Join."""
    found = EngineVersion.parse(text)
    assert found == version
    assert version.makes_sandbox_first is first


@pytest.mark.parametrize(
    ("text", "disables"), [("20.10.24", True), ("25.0.0", True), ("26.0.0", False), ("28.5.2", False)]
)
def test_engines_that_disable_ipv6_in_every_sandbox(text: str, *, disables: bool) -> None:
    """There, the setting of a sandbox does not show what the user wants."""
    version = EngineVersion.parse(text)
    assert version is not None
    assert version.disables_ipv6 is disables


@pytest.mark.parametrize(("version", "forgets"), [((28, 5), False), ((29, 0), False), ((29, 1), True), ((29, 7), True)])
def test_a_version_that_forgets_networks(version: tuple[int, int], *, forgets: bool) -> None:
    """It was reported for 29.1, and seen with 29.7."""
    assert EngineVersion(*version).forgets_networks is forgets


@pytest.mark.parametrize("text", ["", "dev", "library-import", "28"])
def test_a_version_without_numbers(text: str) -> None:
    """A build without a version number is unknown."""
    assert EngineVersion.parse(text) is None


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_first_look_is_awaited(tmp_path: Path, *, is_there: bool) -> None:
    """A call that comes before it waits: not to have looked does not mean that the engine boots."""
    store = Store.open(tmp_path)
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
    store.close()


async def test_an_engine_that_boots_is_not_awaited(tmp_path: Path) -> None:
    """It does not answer before it has started the containers that wait for this. Later calls do not wait at all."""
    store = Store.open(tmp_path)
    known = KnownVersion(store)
    async with asyncio.timeout(30):
        await known.wait_looked()
    again = known.wait_looked()
    with pytest.raises(StopIteration):  # it has ended without a pause
        again.send(None)
    assert not known.is_up
    store.close()


async def test_an_engine_that_neither_answers_nor_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the start nothing is known of it; some time later it does not answer."""
    monkeypatch.setattr(known_version, "_GIVEN_UP_AFTER_S", 0.01)
    store = Store.open(tmp_path)
    known = KnownVersion(store)
    assert not known.was_asked
    await known.give_up()
    assert (known.was_asked, known.is_up) == (True, False)
    known.note(EngineVersion(28, 5))
    await known.give_up()
    assert known.is_up
    store.close()


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
