# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A changed configuration is validated and logged, and the endpoints that were made before are counted."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories, Runtime
from cnm_bridge.core.planning.plan import configuration_digest
from cnm_bridge.driver.networks.configuration_watch import ConfigurationWatch
from cnm_bridge.system.scheduling import TimeSlice
from tests.records import NETWORK, endpoint, put

PLUGIN = '#!/bin/sh\necho \'{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}\'\n'


def document(*types: str) -> JsonObject:
    """Return the list `lan`."""
    return {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": one} for one in types]}


@pytest.fixture(name="store")
def open_store(tmp_path: Path) -> Iterator[Store]:
    """A store of the test."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture(name="watch")
def make_watch(store: Store, tmp_path: Path) -> ConfigurationWatch:
    """A watch of the directory `conf`; there is one plugin, `good`."""
    for name in ("conf", "bin"):
        (tmp_path / name).mkdir()
    plugin = tmp_path / "bin/good"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    return ConfigurationWatch(store, ConfigurationDirectories(tmp_path / "conf"), Runtime(tmp_path / "bin"))


async def test_changes_of_a_list_in_use(store: Store, watch: ConfigurationWatch, tmp_path: Path) -> None:
    """Each change is logged once, with the reason if the list is unusable; restoring the old content ends it."""
    file = tmp_path / "conf/lan.conflist"
    file.write_text(json.dumps(document("good")))
    digest = configuration_digest(document("good"))
    await put(store, replace(endpoint("1" * 64), configuration_digest=digest))
    await put(store, endpoint("2" * 64))  # of an earlier version: nothing is known of its list
    with capture_logs() as logs:
        await watch.look()
        assert await watch.outdated() == {}
        file.write_text(json.dumps(document("good", "good")))
        await watch.look()
        await watch.look()
        assert await watch.outdated() == {NETWORK: 1}
        file.write_text(json.dumps(document("good", "missing", "other")))
        await watch.look()
        file.unlink()
        await watch.look()
        assert await watch.outdated() == {NETWORK: 1}
        file.write_text(json.dumps(document("good")))
        await watch.look()
        assert await watch.outdated() == {}
    events = [(one["event"], one["endpoints"]) for one in logs]
    changed, invalid = ("configuration.changed", 2), ("configuration.invalid", 2)
    assert events == [changed, invalid, invalid, changed]
    assert "missing" in logs[1]["error"]
    assert "lan" in logs[2]["error"]


async def test_a_list_that_is_used_before_the_next_look(
    store: Store, watch: ConfigurationWatch, tmp_path: Path
) -> None:
    """Its endpoints are not outdated."""
    await watch.look()
    (tmp_path / "conf/lan.conflist").write_text(json.dumps(document("good")))
    await put(store, replace(endpoint("1" * 64), configuration_digest=configuration_digest(document("good"))))
    assert await watch.outdated() == {}


async def test_counting_executes_nothing(store: Store, watch: ConfigurationWatch, tmp_path: Path) -> None:
    """A plugin that hangs delays the report of a change, and no answer; the change is reported all the same."""
    file = tmp_path / "conf/lan.conflist"
    file.write_text(json.dumps(document("good")))
    await put(store, replace(endpoint("1" * 64), configuration_digest=configuration_digest(document("good"))))
    await watch.look()
    (tmp_path / "bin/good").write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\nexit 1\n")
    file.write_text(json.dumps(document("good", "good")))
    with capture_logs() as logs:
        assert await watch.outdated() == {NETWORK: 1}
        assert not (tmp_path / "executed").exists()
        assert logs == []
        await watch.look()
    assert (tmp_path / "executed").exists()
    assert [one["event"] for one in logs] == ["configuration.changed"]


async def test_a_list_that_nothing_uses(watch: ConfigurationWatch, tmp_path: Path) -> None:
    """Its changes are not logged."""
    with capture_logs() as logs:
        await watch.look()
        (tmp_path / "conf/lan.conflist").write_text(json.dumps(document("good")))
        await watch.look()
    assert logs == []


async def test_a_list_that_is_used_before_its_first_look(
    store: Store, watch: ConfigurationWatch, tmp_path: Path
) -> None:
    """A new list has not changed; its later changes are logged."""
    file = tmp_path / "conf/lan.conflist"
    with capture_logs() as logs:
        await watch.look()
        file.write_text(json.dumps(document("good")))
        await put(store, endpoint("1" * 64))
        await watch.look()
        assert logs == []
        file.write_text(json.dumps(document("good", "good")))
        await watch.look()
    assert [one["event"] for one in logs] == ["configuration.changed"]


@pytest.mark.parametrize(
    ("types", "event"), [(("good", "good"), "configuration.changed"), (("missing",), "configuration.invalid")]
)
async def test_a_list_that_changes_before_its_first_look(
    store: Store, watch: ConfigurationWatch, tmp_path: Path, types: tuple[str, ...], event: str
) -> None:
    """The endpoint was made from another content, so the list has changed."""
    with capture_logs() as logs:
        await watch.look()
        digest = configuration_digest(document("good"))
        await put(store, replace(endpoint("1" * 64), configuration_digest=digest))
        (tmp_path / "conf/lan.conflist").write_text(json.dumps(document(*types)))
        await watch.look()
    assert [one["event"] for one in logs] == [event]


async def test_the_work_does_not_grow_with_the_changed_lists(
    store: Store, watch: ConfigurationWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoints are counted once for all lists that changed, and other tasks run between two endpoints."""
    file = tmp_path / "conf/lan.conflist"
    file.write_text(json.dumps(document("good")))
    await watch.look()
    for number in range(3):
        digest = configuration_digest(document("good"))
        await put(store, replace(endpoint(f"{number}" * 64), configuration_digest=digest))
    for number in range(20):
        (tmp_path / f"conf/{number}.conflist").write_text(json.dumps({**document("good"), "name": f"unused{number}"}))
    file.write_text(json.dumps(document("good", "good")))
    pauses = Counter[str]()

    async def pause(_: TimeSlice) -> None:
        pauses["now"] += 1

    monkeypatch.setattr(TimeSlice, "pause", pause)
    await watch.look()
    assert pauses["now"] == len(store.endpoints())
    assert await watch.outdated() == {NETWORK: 3}
    assert pauses["now"] == 2 * len(store.endpoints())
